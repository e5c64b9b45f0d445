"""``selvage run``: the controller of live servers, driving or observing."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from contracts.documents.drill import Undo
from contracts.errors import DocumentError, refusal
from scripts.cli.measuring.request import read_key
from scripts.cli.options import (
    GENERATION_TOKENS,
    PROBE_LIMIT,
    READMIT_OVER,
    SCRAPE_TIMEOUT,
    VERIFY_PROBES,
    options,
)

if TYPE_CHECKING:
    from controller.options import ControllerSetup
    from live.control.alarm_log import AlarmTeller
    from live.control.loop import Turn
    from live.run.assemble import Assembled
    from live.run.options import RunOptions

#: Default undo of a drill.
_UNSAID = Undo()


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command()(options(RunRequest)(run))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """The options of ``selvage run``."""

    policy: Annotated[str, typer.Argument(help="RoutePolicy document; default: the shipped one.")] = ""
    folder: Annotated[
        Path | None,
        typer.Option("--folder", help="Folder of the fleet; with --pool: for state, log and reference."),
    ] = None
    pool: Annotated[
        str, typer.Option("--pool", help="KernelPool whose kernels list servers that run already.")
    ] = ""
    start_envoy: Annotated[
        bool,
        typer.Option(
            "--start-envoy", help="With --pool: drive through an Envoy of our own, which goes on afterwards."
        ),
    ] = False
    envoy_port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of that Envoy; 0: as before, or any free one.")
    ] = 0
    end_envoy: Annotated[
        bool, typer.Option("--end-envoy", help="With --pool: end that Envoy, and nothing else.")
    ] = False
    observe: Annotated[bool, typer.Option("--observe", help="Judge and report; move nothing.")] = False
    contract: Annotated[str, typer.Option(help="KernelContract; default: serving-pool.")] = ""
    meta: Annotated[str, typer.Option(help="MetaContract that keeps it; default: the policy document's.")] = (
        ""
    )
    model: Annotated[str, typer.Option(help="Name that the servers know; default: their first.")] = ""
    api_key_env: Annotated[str, typer.Option(help="Environment variable that holds the servers' key.")] = ""
    api_key_file: Annotated[Path | None, typer.Option(help="Or the file that holds it.")] = None
    ca_file: Annotated[Path | None, typer.Option(help="Certificates of a private authority, PEM.")] = None
    prompts: Annotated[Path | None, typer.Option(help="Golden prompts; default: the shipped ones.")] = None
    reference: Annotated[str, typer.Option(help="URL of the reference server.")] = ""
    probe_tokens: Annotated[
        float, typer.Option("--probe-tokens", min=0.1, help="Prompt tokens per second and replica.")
    ] = 64.0
    generation_tokens: GENERATION_TOKENS = 32.0
    probe_limit: PROBE_LIMIT = 2.0
    scrape_timeout: SCRAPE_TIMEOUT = 1.0
    verify_probes: VERIFY_PROBES = _UNSAID.verify_probes
    readmit_over: READMIT_OVER = _UNSAID.readmit_over_s
    restart_to_heal: Annotated[
        bool,
        typer.Option(
            "--restart-to-heal", help="Restart it before its traffic returns; servers of `selvage fleet`."
        ),
    ] = False
    sampled_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            help="Loopback port that takes sampled log-probabilities of users' answers; 0: any.",
        ),
    ] = None
    metrics_port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of the controller's metrics; 0: any.")
    ] = 9464
    metrics_address: Annotated[str, typer.Option(help="Address of the controller's metrics.")] = "127.0.0.1"
    seconds: Annotated[float, typer.Option(min=0.0, help="End after so many seconds; 0: at Ctrl-C.")] = 0.0


def run(asked: RunRequest) -> None:
    """Drive the fleet of `selvage fleet up`, or servers of others: judge them, or move what they get."""
    from live.control import clocks
    from live.control.alarm_log import AlarmTeller
    from live.control.metrics import ControllerMetrics

    _refuse_contradictions(asked)
    if asked.end_envoy:
        _end_envoy(asked)
        return
    with ExitStack() as stack:
        stop = stack.enter_context(clocks.stopped_by_signals())
        typer.echo("reading stored reference answers, or asking the reference server", err=True)
        one = stack.enter_context(_assembled(asked))
        controller = one.controller
        prober = one.prober
        metrics = ControllerMetrics(
            controller.setup,
            observes=controller.observes,
            sent_tokens=lambda: prober.sent_tokens,
            passive=one.passive.alarms,
            scrapes=one.scrapes.in_force,
        )
        url, close = metrics.serve(asked.metrics_port, asked.metrics_address)
        stack.callback(close)
        for line in one.notes:
            typer.echo(line, err=True)
        does = "observes" if controller.observes else "drives"
        typer.echo(
            f"{controller.setup.policy.policy_id} {does}; metrics at {url}; log in {one.folder}", err=True
        )
        controller.watch(
            metrics, _Teller(controller.setup, AlarmTeller(controller.setup, one.passive, one.scrapes))
        )
        turns = clocks.run_on_the_beat(controller.step, controller.setup.fleet.tick_s, stop, asked.seconds)
    typer.echo(f"ended after {turns} turns; the last table stands", err=True)


class _Teller:
    """``TurnWatcher`` that prints moves, alarms and failures, and a lasting failure once."""

    def __init__(self, setup: ControllerSetup, alarms: AlarmTeller) -> None:
        self._setup, self._alarms, self._last = setup, alarms, ""

    def turn(self, turn: Turn) -> None:
        """Print the news of a turn."""
        from live.control.journal import turn_texts

        for line in (*turn_texts(turn, self._setup), *self._alarms.lines(turn)):
            typer.echo(f"{turn.at_s:.0f} {line}", err=True)
        if turn.error and turn.error != self._last:
            typer.echo(f"{turn.at_s:.0f} {turn.error}; the last table stands", err=True)
        self._last = turn.error


def _assembled(asked: RunRequest) -> AbstractContextManager[Assembled]:
    from live.fleet.control import fleets_folder
    from live.fleet.state import FleetFolder
    from live.run.assemble import controlled_fleet, listed_servers

    if not asked.pool:
        place = (asked.folder or fleets_folder() / "live").resolve()
        return controlled_fleet(FleetFolder(path=place), options_of(asked))
    port = asked.envoy_port if asked.start_envoy else None
    return listed_servers(asked.pool, _folder_of_pool(asked), options_of(asked), port)


def _refuse_contradictions(asked: RunRequest) -> None:
    """DocumentError if options exclude each other, or nothing would move the servers of a pool."""
    chosen = [
        name
        for name, given in (
            ("--observe", asked.observe),
            ("--start-envoy", asked.start_envoy),
            ("--end-envoy", asked.end_envoy),
        )
        if given
    ]
    if not asked.pool and (asked.start_envoy or asked.end_envoy):
        hint = "name the pool; a fleet of `selvage fleet up` has its gateway"
        raise _refusal(chosen[-1], "--pool with it", "none", hint)
    if not asked.pool:
        return
    if len(chosen) > 1:
        raise _refusal(
            "--pool", "one of --observe, --start-envoy, --end-envoy", " and ".join(chosen), "choose"
        )
    if not chosen:
        hint = "add one; a fleet of `selvage fleet up` is driven by --folder"
        expected = "--observe, or --start-envoy, as nothing of ours routes to servers of others"
        raise _refusal("--pool", expected, "neither", hint)


def _end_envoy(asked: RunRequest) -> None:
    """End the Envoy of the pool's servers, unless a controller drives it."""
    from live.control.claim import controlling
    from live.run.own_gateway import end_gateway

    folder = _folder_of_pool(asked)
    with controlling(folder):
        typer.echo(
            "Envoy is ended" if end_gateway(folder) else f"no Envoy of ours runs in {folder}", err=True
        )


def _folder_of_pool(asked: RunRequest) -> Path:
    from live.fleet.control import fleets_folder

    return (asked.folder or fleets_folder() / "observed" / Path(asked.pool).stem).resolve()


def _refusal(path: str, expected: str, actual: str, hint: str) -> DocumentError:
    return refusal("selvage run", expected, actual, hint, path=path)


def options_of(asked: RunRequest) -> RunOptions:
    """Options of a controller of live servers, from ``asked`` on the command line."""
    from live.run.options import ProbeOptions, ReturnOptions, RunOptions

    own = ProbeOptions()
    return RunOptions(
        policy=asked.policy,
        contract=asked.contract,
        meta=asked.meta,
        observe=asked.observe,
        model=asked.model,
        api_key=_key(asked),
        key_file=asked.api_key_file,
        ca_file=asked.ca_file,
        probes=ProbeOptions(
            prompts=asked.prompts or own.prompts,
            tokens_per_s=asked.probe_tokens,
            generation_tokens_per_s=asked.generation_tokens,
            limit_s=asked.probe_limit,
            reference_url=asked.reference,
        ),
        returns=ReturnOptions(
            verify_probes=asked.verify_probes,
            readmit_over_s=asked.readmit_over,
            restart=asked.restart_to_heal,
        ),
        scrape_timeout_s=asked.scrape_timeout,
        sampled_port=asked.sampled_port,
    )


#: Settings that servers of a fleet of this machine were started with.
_FLEETS_KEY = "VLLM_API_KEY"


def _key(asked: RunRequest) -> str:
    """The servers' key; for a fleet of this machine its start-up key, unless another is named."""
    named = read_key("--api-key", asked.api_key_env, asked.api_key_file)
    if named or asked.pool or not os.environ.get(_FLEETS_KEY):
        return named
    return read_key("--api-key", _FLEETS_KEY, None)
