"""``selvage profile``: measure kernels against the reference kernel; ``selvage profile table``: the drift;
``selvage profile agree``: whether several profiles of one server agree on its steps.

Wiring only: the measuring is in ``live``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from contracts.documents.profile import KernelProfile
from contracts.errors import refusal
from contracts.loading.files import json_text
from contracts.loading.loader import load_as
from live.measure.drift_table import drift_page, drift_table
from live.measure.steps.model import widest_prediction
from scripts.cli.measuring.agreement import AgreeOptions, agree
from scripts.cli.measuring.measured_run import run_profile
from scripts.cli.measuring.request import (
    STEP_SECONDS,
    STEP_SEQUENCES,
    STEP_TARGET,
    BackendName,
    ProfileRequest,
    ReferenceRequest,
    ServerRequest,
)
from scripts.cli.options import options


def register(app: typer.Typer) -> None:
    """Add the command to ``app``: options on the group itself, the others below it."""
    app.callback(invoke_without_command=True)(options(ProfileOptions)(profile))
    app.command("table")(table)
    app.command("agree")(options(AgreeOptions)(agree))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileOptions:
    """The options of ``selvage profile``."""

    context: typer.Context
    model: Annotated[
        str, typer.Option(help="Checkpoint folder or hub name; default: the shipped reference model.")
    ] = ""
    kernel: Annotated[
        list[str] | None, typer.Option(help="Kernel to measure, repeatable; default: all that are known.")
    ] = None
    backend: Annotated[
        BackendName | None, typer.Option(help="What runs the kernels; vllm, or openai with --endpoint.")
    ] = None
    endpoint: Annotated[str, typer.Option(help="URL of a running server, for --backend openai.")] = ""
    endpoint_model: Annotated[
        str, typer.Option(help="Model name the server knows; default: the server's first.")
    ] = ""
    name: Annotated[
        str, typer.Option(help="Kernel name of the running server; default: its model's name.")
    ] = ""
    dtype: Annotated[str, typer.Option(help="Number format of the running server.")] = ""
    quantization: Annotated[str, typer.Option(help="Quantisation of the running server; none for none.")] = ""
    kv_cache_dtype: Annotated[str, typer.Option(help="KV-cache format of the running server.")] = ""
    api_key_env: Annotated[str, typer.Option(help="Environment variable with the servers' API key.")] = ""
    api_key_file: Annotated[Path | None, typer.Option(help="File with the servers' API key.")] = None
    ca_file: Annotated[
        Path | None, typer.Option(help="PEM certificates of the authority that signed the servers'.")
    ] = None
    condition: Annotated[
        list[str] | None,
        typer.Option(help="NAME=URL of a badly configured server, measured as a condition; repeatable."),
    ] = None
    step_times: Annotated[
        bool, typer.Option("--step-times/--no-step-times", help="Time steps; simulations need them.")
    ] = True
    step_sequences: Annotated[
        int, typer.Option(min=2, max=64, help="Most sequences at a time that timing a server may send.")
    ] = STEP_SEQUENCES
    step_process: Annotated[
        int,
        typer.Option(
            min=0, help="Time steps by the CPU time of this process and its children; 0: by the wall."
        ),
    ] = 0
    step_seconds: Annotated[
        float, typer.Option(min=10.0, max=7200.0, help="Longest time that timing a server's steps may take.")
    ] = STEP_SECONDS
    step_target: Annotated[
        float,
        typer.Option(min=0.02, max=1.0, help="Time a server until every prediction is known to this share."),
    ] = STEP_TARGET
    step_half_width: Annotated[
        float,
        typer.Option(min=0.15, max=10.0, help="Refuse step times whose half-width is beyond this share."),
    ] = 0.5
    reference_endpoint: Annotated[
        str, typer.Option(help="URL of a server of high precision that is the reference.")
    ] = ""
    reference_model: Annotated[str, typer.Option(help="Model name that this server knows.")] = ""
    reference_key_env: Annotated[str, typer.Option(help="Environment variable with its API key.")] = ""
    reference_key_file: Annotated[Path | None, typer.Option(help="File with its API key.")] = None
    reference_store: Annotated[
        Path | None, typer.Option(help="Folder that keeps reference log-probabilities between runs.")
    ] = None
    device_map: Annotated[
        str, typer.Option(help="Spread the reference model over devices: auto, balanced, sequential.")
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
        typer.Option(help="Measure only this fault condition, repeatable, e.g. requantise-w4."),
    ] = None
    repeats: Annotated[int, typer.Option(min=1, max=16, help="Passes over the prompts.")] = 2
    out: Annotated[Path | None, typer.Option(help="Folder for the profiles.")] = None
    force: Annotated[bool, typer.Option("--force", help="Overwrite profiles that are there.")] = False
    seed: Annotated[int, typer.Option(min=0, help="Seed of the sampled-token columns.")] = 0
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON summary.")] = False


def profile(asked: ProfileOptions) -> None:
    """Measure candidate kernels against the float32 reference on golden prompts per slice."""
    if asked.context.invoked_subcommand is not None:
        return
    if asked.out is None:
        raise typer.BadParameter("--out DIR is required")
    here = asked.backend in (BackendName.VLLM, BackendName.TORCH)
    if asked.endpoint and here:
        raise typer.BadParameter(
            "--endpoint measures a running server, --backend what runs here: leave one out"
        )
    written = run_profile(_request(asked, asked.out))
    summary = [_summary(load_as(KernelProfile, path), path) for path in written]
    if asked.as_json:
        typer.echo(json_text({"profiles": summary}))
    else:
        named = bool(asked.condition or asked.dose)  # show the conditions if the user named any
        typer.echo(drift_table([load_as(KernelProfile, path) for path in written], conditions=named))


def _request(asked: ProfileOptions, out: Path) -> ProfileRequest:
    return ProfileRequest(
        model=asked.model,
        kernels=tuple(asked.kernel or ()),
        backend=asked.backend or (BackendName.OPENAI if asked.endpoint else BackendName.VLLM),
        server=ServerRequest(
            url=asked.endpoint,
            model=asked.endpoint_model,
            name=asked.name,
            dtype=asked.dtype,
            quantization=asked.quantization,
            kv_cache_dtype=asked.kv_cache_dtype,
            key_env=asked.api_key_env,
            key_file=asked.api_key_file,
            ca_file=asked.ca_file,
            conditions=tuple(asked.condition or ()),
            step_sequences=asked.step_sequences,
            step_process=asked.step_process,
            step_seconds=asked.step_seconds,
            step_target=asked.step_target,
        ),
        reference=ReferenceRequest(
            url=asked.reference_endpoint,
            model=asked.reference_model,
            key_env=asked.reference_key_env,
            key_file=asked.reference_key_file,
            ca_file=asked.ca_file,
            store=asked.reference_store,
            device_map=asked.device_map,
        ),
        prompts=asked.prompts,
        faults=asked.faults,
        doses=tuple(asked.dose or ()),
        repeats=asked.repeats,
        step_times=asked.step_times,
        step_half_width=asked.step_half_width,
        out=out,
        force=asked.force,
        seed=asked.seed,
    )


def table(
    folder: Annotated[Path, typer.Argument(help="Folder with profiles.")],
    page: Annotated[bool, typer.Option("--page", help="Print the whole page, faults and notes too.")] = False,
    conditions: Annotated[
        bool, typer.Option("--conditions", help="Rows of every measured condition, not of health alone.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of Markdown.")] = False,
) -> None:
    """Print the drift table (kernel, precision, slice) of the profiles in FOLDER as Markdown."""
    paths = sorted(folder.glob("*.yaml"))
    if not paths:
        raise refusal(str(folder), "a folder with profiles", "no *.yaml", "check the path")
    profiles = [load_as(KernelProfile, path) for path in paths]
    if as_json:
        summary = [_summary(one, path) for one, path in zip(profiles, paths, strict=True)]
        typer.echo(json_text({"profiles": summary}))
        return
    shown = drift_page(profiles, folder.as_posix()) if page else drift_table(profiles, conditions=conditions)
    typer.echo(shown, nl=not page)


def _summary(document: KernelProfile, path: Path) -> dict[str, object]:
    healthy, steps = document.spec.conditions[0], document.spec.step_time
    drift = {m.slice: m.mean for m in healthy.measures if m.metric == "kl_mean"}
    return {
        "conditions": len(document.spec.conditions),
        "file": path.name,
        "kernel": document.spec.kernel,
        "kl_mean_nats": drift,
        "step_time_half_width": None if steps is None else widest_prediction(steps),
        "step_time_relative_error": None if steps is None else steps.relative_error,
    }
