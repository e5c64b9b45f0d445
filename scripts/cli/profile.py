"""``selvage profile``: measure kernels against the reference kernel; ``selvage profile table``: the drift.

Wiring only: the measuring is in ``live``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from contracts.documents.profile import KernelProfile
from contracts.errors import DocumentError
from contracts.loading.files import json_text
from contracts.loading.loader import load_as
from live.measure.drift_table import drift_page, drift_table
from scripts.cli.options import options
from scripts.cli.profile_run import BackendName, ProfileRequest, problem, run_profile


def register(app: typer.Typer) -> None:
    """Add the command to ``app``: options on the group itself, ``table`` below it."""
    app.callback(invoke_without_command=True)(options(ProfileOptions)(profile))
    app.command("table")(table)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileOptions:
    """The options of ``selvage profile``."""

    context: typer.Context
    model: Annotated[
        str, typer.Option(help="Checkpoint folder or hub name; without it the shipped reference model.")
    ] = ""
    kernel: Annotated[
        list[str] | None, typer.Option(help="Kernel to measure, repeatable; without it all that are known.")
    ] = None
    backend: Annotated[BackendName, typer.Option(help="What runs the kernels.")] = BackendName.VLLM
    endpoint: Annotated[str, typer.Option(help="URL of a running server, for --backend openai.")] = ""
    endpoint_model: Annotated[
        str, typer.Option(help="Model name the server knows; without it the server's first.")
    ] = ""
    prompts: Annotated[
        Path | None, typer.Option(help="JSON lines with slice and text or token_ids per prompt.")
    ] = None
    faults: Annotated[
        bool | None,
        typer.Option("--faults/--no-faults", help="Measure fault doses; without either, on fp16 and bf16."),
    ] = None
    dose: Annotated[
        list[str] | None,
        typer.Option(help="Of the fault conditions only this one, repeatable, e.g. requantise-w4."),
    ] = None
    repeats: Annotated[int, typer.Option(min=1, max=16, help="Passes over the prompts.")] = 2
    out: Annotated[Path | None, typer.Option(help="Folder for the profiles.")] = None
    seed: Annotated[int, typer.Option(min=0, help="Seed of the sampled-token columns.")] = 0
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON summary.")] = False


def profile(asked: ProfileOptions) -> None:
    """Measure candidate kernels against the float32 reference on golden prompts per slice."""
    if asked.context.invoked_subcommand is not None:
        return
    if asked.out is None:
        raise typer.BadParameter("--out DIR is required")
    request = ProfileRequest(
        model=asked.model,
        kernels=tuple(asked.kernel or ()),
        backend=BackendName.OPENAI if asked.endpoint else asked.backend,
        endpoint=asked.endpoint,
        endpoint_model=asked.endpoint_model,
        prompts=asked.prompts,
        faults=asked.faults,
        doses=tuple(asked.dose or ()),
        repeats=asked.repeats,
        out=asked.out,
        seed=asked.seed,
    )
    written = run_profile(request)
    summary = [_summary(load_as(KernelProfile, path), path) for path in written]
    if asked.as_json:
        typer.echo(json_text({"profiles": summary}))
    else:
        typer.echo(drift_table([load_as(KernelProfile, path) for path in written]))


def table(
    folder: Annotated[Path, typer.Argument(help="Folder with profiles.")],
    page: Annotated[bool, typer.Option("--page", help="Print the whole page, faults and notes too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of Markdown.")] = False,
) -> None:
    """Print the drift table (kernel, precision, slice) of the profiles in FOLDER as Markdown."""
    paths = sorted(folder.glob("*.yaml"))
    if not paths:
        raise DocumentError([problem(str(folder), "a folder with profiles", "no *.yaml", "check the path")])
    profiles = [load_as(KernelProfile, path) for path in paths]
    if as_json:
        summary = [_summary(one, path) for one, path in zip(profiles, paths, strict=True)]
        typer.echo(json_text({"profiles": summary}))
        return
    typer.echo(drift_page(profiles) if page else drift_table(profiles), nl=not page)


def _summary(document: KernelProfile, path: Path) -> dict[str, object]:
    healthy = document.spec.conditions[0]
    drift = {m.slice: m.mean for m in healthy.measures if m.metric == "kl_mean"}
    return {
        "conditions": len(document.spec.conditions),
        "file": path.name,
        "kernel": document.spec.kernel,
        "kl_mean_nats": drift,
        "step_time_relative_error": document.spec.step_time.relative_error,
    }
