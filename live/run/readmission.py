"""Assembles the verification of replicas after quarantine from a run's options."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx

from contracts.errors import DocumentError, MeasurementError
from controller.healing.records import HealingTerms
from live.errors import LiveError
from live.heal.mender import ServerMender, Verification
from live.heal.readmission import Readmissions
from live.measure.endpoint import Endpoint
from live.measure.prompts import Prompt
from live.ports import Discovery
from live.probe.answers import Line
from live.probe.generation import short_prompts
from live.probe.golden_answers import golden_answers
from live.run.generation import server_lengths
from live.run.options import ProbeOptions, ReturnOptions, RunOptions
from live.run.world import World, access

#: File in a run's folder with the replicas that are being re-admitted.
KEPT = "healing.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceSource:
    """The source of right answers. store: where they are kept; kernel: the kernel that gives them."""

    prompts: Sequence[Prompt]
    endpoint: Endpoint
    store: Path
    kernel: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Servers:
    """The servers of a run. names: of all; restart: restarts a server and waits; None: not allowed."""

    discovery: Discovery
    names: Sequence[str]
    client: httpx.Client
    model: str
    restart: Callable[[str], bool] | None


def readmissions(
    asked: ReturnOptions, probes: ProbeOptions, known: ReferenceSource, servers: Servers, folder: Path
) -> tuple[Readmissions | None, str]:
    """The verification of returning replicas (None: there is none), and a note to print."""
    if asked.verify_probes == 0:
        return None, "replicas come back from quarantine unverified, as was asked"
    try:
        found = verification(probes, known)
    except (MeasurementError, httpx.HTTPError, DocumentError) as error:
        return None, f"replicas come back from quarantine unverified: {error}"[:300]
    terms = HealingTerms(
        verify_probes=asked.verify_probes, readmit_over_s=asked.readmit_over_s, restart=asked.restart
    )

    def find(name: str) -> ServerMender:
        return mender_of(name, servers, found)

    how = "a restart, " if asked.restart else ""
    message = (
        f"replicas come back from quarantine by {how}{asked.verify_probes} generation probes that agree,"
        f" over {asked.readmit_over_s:g} s"
    )
    return Readmissions(find, terms, folder / KEPT, servers.names), message


def returning(
    world: World, options: RunOptions, prompts: Sequence[Prompt], stack: ExitStack
) -> tuple[Readmissions | None, str]:
    """``readmissions`` for the servers of ``world``; ``stack`` closes it."""
    kernel, url = world.trusted()
    endpoint = access(options, options.probes.reference_url or url, world.model)
    known = ReferenceSource(
        prompts=prompts, endpoint=endpoint, store=world.folder / "reference", kernel=kernel
    )
    servers = Servers(
        discovery=world.discovery,
        names=tuple(one.name for one in world.replicas),
        client=stack.enter_context(access(options, url).client()),
        model=world.model,
        restart=world.restart,
    )
    found, told = readmissions(options.returns, options.probes, known, servers, world.folder)
    if found is not None:
        stack.callback(found.close)
    return found, told


def verification(probes: ProbeOptions, known: ReferenceSource) -> Verification:
    """Short generation prompts with the answers of the trusted server, requested once and kept.

    Raises MeasurementError if no prompt fits its context, or an answer does not end well.
    """
    with known.endpoint.client() as client:
        line = Line(client, known.endpoint.base, known.endpoint.model)
        lengths = server_lengths(line, probes)
        prompts = short_prompts(known.prompts, lengths)
        if not prompts:
            raise MeasurementError(f"{known.endpoint.base}: no generation probe fits the prompts")
        questions = [one.question() for one in prompts]
        identity = (known.kernel, *known.endpoint.model_identity(client), str(lengths))
        golden = golden_answers(known.store, line, questions, identity)
    return Verification(prompts=prompts, golden=golden, limit_s=probes.limit_s)


def mender_of(name: str, servers: Servers, found: Verification, *, unflushed: bool = False) -> ServerMender:
    """The mender of the replica ``name`` of ``servers``; ``unflushed`` as in ``ServerMender``."""
    restart = servers.restart
    return ServerMender(
        line=lambda: _line(servers, name, found),
        verification=found,
        restarts=None if restart is None else lambda: restart(name),
        unflushed=unflushed,
    )


def _line(servers: Servers, name: str, found: Verification) -> Line:
    """A connection to the replica's present address; LiveError if it has none."""
    url = next((one.url for one in servers.discovery.replicas() if one.name == name), "")
    if not url:
        raise LiveError(f"{name}: no such replica")
    return Line(servers.client, url, servers.model, found.prompts[0].slice)
