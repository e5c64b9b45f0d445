"""Checks of ``selvage profile`` before it measures anything: places, doses, unusable servers.

Measuring takes minutes to hours; anything that would end it half-way is detected first.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from contracts.documents.profile import HEALTHY
from contracts.errors import refusal
from scripts.cli.measuring.request import ProfileRequest

if TYPE_CHECKING:
    from live.measure.backend import ServingBackend
    from live.measure.kernels import Kernel
    from live.measure.measurement import MeasurePlan
    from live.measure.prompts import Prompt


def refuse_unheard(request: ProfileRequest) -> None:
    """DocumentError for an option that this run would ignore, instead of ignoring it for hours."""
    server, reference = request.server, request.reference
    alone = [] if server.url else [word for word in server.words() if word.startswith("--")]
    unheard = [(word, "--endpoint") for word in alone if word != "--ca-file" or not reference.url]
    words = {"--reference-model": reference.model, "--reference-key-env": reference.key_env}
    words["--reference-key-file"] = str(reference.key_file or "")
    unheard += [
        (word, "--reference-endpoint") for word, given in words.items() if given and not reference.url
    ]
    if unheard:
        word, beside = unheard[0]
        raise refusal(word, f"{beside} beside it", "none", f"add {beside}, or leave it out")
    if server.url and request.faults:
        step = "leave it out; give badly configured servers by --condition"
        raise refusal("--faults", "kernels that run here", "a running server", step)
    if reference.url and reference.device_map:
        step = "leave out one of the two"
        raise refusal("--device-map", "a reference on this machine", "a server", step)


def refuse_overwriting(request: ProfileRequest, kernels: list[Kernel], golden: list[Prompt]) -> None:
    """DocumentError if a profile, or other prompts that profiles refer to, exist in the folder already."""
    from live.measure.prompts import dump_prompts

    there = [f"{kernel.name}.yaml" for kernel in kernels if (request.out / f"{kernel.name}.yaml").exists()]
    if there and not request.force:
        told_ = ", ".join(there)
        raise refusal(str(request.out), "a folder without them", told_, "add --force")
    refuse_other(request, request.out / "prompts.jsonl", dump_prompts(golden).encode())


def refuse_other(request: ProfileRequest, path: Path, content: bytes) -> None:
    """DocumentError if ``path`` has any other content than ``content``, unless ``--force`` was given."""
    if not request.force and path.exists() and path.read_bytes() != content:
        step = "name another --out, or add --force and measure every kernel in it again"
        raise refusal(str(path), "what this run writes, or nothing", "another file", step)


def refuse_unknown_doses(request: ProfileRequest, plans: list[MeasurePlan]) -> None:
    """DocumentError for a ``--dose`` that no measured kernel has."""
    known = {one.name for plan in plans for one in plan.doses}
    known |= {one.name for plan in plans for one in plan.restarts}
    unknown = sorted(set(request.doses) - known)
    if unknown:
        wanted = "a fault condition of a kernel that is measured under faults"
        raise refusal("--dose", wanted, unknown[0], "see docs/profiles.md, or add --faults")


def refuse_unusable_servers(
    request: ProfileRequest, backend: ServingBackend, plans: list[MeasurePlan], golden: list[Prompt]
) -> None:
    """DocumentError or MeasurementError if a condition is given twice, or a running server, the measured one
    or a condition's, cannot be reached, refuses the key, or does not score the longest prompt.
    """
    from live.measure.backends.openai_backend import OpenaiBackend

    if not isinstance(backend, OpenaiBackend):
        return
    servers = [server for plan in plans for server in plan.servers]
    names = [HEALTHY, *(server.name for server in servers)]
    twice = next((name for at, name in enumerate(names) if name in names[:at]), None)
    if twice is not None:
        message = f"{twice} twice" if twice != HEALTHY else f"{twice}, which the measured server is"
        raise refusal("--condition", "a name for each server", message, "choose another name")
    urls = ", ".join([request.server.endpoint.base, *(server.endpoint.base for server in servers)])
    print(f"Trying {urls} by one prompt.", file=sys.stderr, flush=True)
    longest = max(golden, key=lambda prompt: prompt.positions)
    for one in (backend, *(OpenaiBackend(server.endpoint) for server in servers)):
        one.try_out(longest)
