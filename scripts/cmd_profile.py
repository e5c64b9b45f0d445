"""``selvage profile``: measure kernels against the reference kernel; ``selvage profile table``: the drift.

Wiring only: the measuring is in ``live``.
"""

from __future__ import annotations

import json
import platform
import shlex
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from contracts.documents.profile import KernelProfile
from contracts.errors import DocumentError, Problem
from contracts.loader import load_as
from scripts.profile_table import drift_page, drift_table

if TYPE_CHECKING:
    from live.backend import Backend
    from live.kernels import Kernel
    from live.measure_profile import MeasurePlan


class BackendName(StrEnum):
    """What runs the kernels."""

    VLLM = "vllm"
    TORCH = "torch"
    OPENAI = "openai"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileRequest:
    """The options of one ``selvage profile`` run."""

    model: str
    kernels: tuple[str, ...]
    backend: BackendName
    endpoint: str
    endpoint_model: str
    prompts: Path | None
    faults: bool | None
    doses: tuple[str, ...]
    repeats: int
    out: Path
    seed: int


def register(app: typer.Typer) -> None:
    """Add the command to ``app``: options on the group itself, ``table`` below it."""
    app.callback(invoke_without_command=True)(profile)
    app.command("table")(table)


def profile(
    context: typer.Context,
    model: Annotated[
        str, typer.Option(help="Checkpoint folder or hub name; without it the shipped reference model.")
    ] = "",
    kernel: Annotated[
        list[str] | None, typer.Option(help="Kernel to measure, repeatable; without it all that are known.")
    ] = None,
    backend: Annotated[BackendName, typer.Option(help="What runs the kernels.")] = BackendName.VLLM,
    endpoint: Annotated[str, typer.Option(help="URL of a running server, for --backend openai.")] = "",
    endpoint_model: Annotated[
        str, typer.Option(help="Model name the server knows; without it the server's first.")
    ] = "",
    prompts: Annotated[
        Path | None, typer.Option(help="JSON lines with slice and text or token_ids per prompt.")
    ] = None,
    faults: Annotated[
        bool | None,
        typer.Option("--faults/--no-faults", help="Measure fault doses; without either, on fp16 and bf16."),
    ] = None,
    dose: Annotated[
        list[str] | None,
        typer.Option(help="Of the fault conditions only this one, repeatable, e.g. requantise-w4."),
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, max=16, help="Passes over the prompts.")] = 2,
    out: Annotated[Path | None, typer.Option(help="Folder for the profiles.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the sampled-token columns.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON summary.")] = False,
) -> None:
    """Measure candidate kernels against the float32 reference on golden prompts per slice."""
    if context.invoked_subcommand is not None:
        return
    if out is None:
        raise typer.BadParameter("--out DIR is required")
    request = ProfileRequest(
        model=model,
        kernels=tuple(kernel or ()),
        backend=BackendName.OPENAI if endpoint else backend,
        endpoint=endpoint,
        endpoint_model=endpoint_model,
        prompts=prompts,
        faults=faults,
        doses=tuple(dose or ()),
        repeats=repeats,
        out=out,
        seed=seed,
    )
    written = run_profile(request)
    summary = [_summary(load_as(KernelProfile, path), path) for path in written]
    if as_json:
        typer.echo(json.dumps({"profiles": summary}, sort_keys=True))
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
        raise DocumentError([_problem(str(folder), "a folder with profiles", "no *.yaml", "check the path")])
    profiles = [load_as(KernelProfile, path) for path in paths]
    if as_json:
        summary = [_summary(one, path) for one, path in zip(profiles, paths, strict=True)]
        typer.echo(json.dumps({"profiles": summary}, sort_keys=True))
        return
    typer.echo(drift_page(profiles) if page else drift_table(profiles), nl=not page)


def run_profile(request: ProfileRequest) -> list[Path]:
    """Measure every asked kernel and write its profile; returns the documents' paths."""
    from contracts.documents.envelope import FileRef
    from live.checkpoint import checkpoint_sha256, find_checkpoint
    from live.golden import save_golden
    from live.measure_profile import KernelMeter
    from live.profile_writer import ProfileContext, write_profile
    from live.prompts import SHIPPED_PROMPTS, load_prompts, save_prompts, tokenise
    from live.reference import measure_reference

    folder = find_checkpoint(request.model)
    loaded = load_prompts(request.prompts or SHIPPED_PROMPTS)
    golden = tokenise(loaded, folder, keep_ids=bool(request.prompts) or not request.model)
    request.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="selvage-profile-") as scratch:
        backend = _backend(request, folder, Path(scratch))
        chosen = [(kernel, _plan(request, kernel)) for kernel in _chosen(request, backend)]
        _refuse_unknown_doses(request, [plan for _, plan in chosen])
        reference = measure_reference(folder, golden, Path(scratch) / "reference.f32")
        context = ProfileContext(
            model_name=request.model or "selvage reference model",
            model_sha256=checkpoint_sha256(folder),
            reference_sha256=reference.sha256,
            golden=FileRef(
                uri="reference.npz", sha256=save_golden(request.out / "reference.npz", golden, reference)
            ),
            prompts_uri="prompts.jsonl",
            prompts_sha256=save_prompts(request.out / "prompts.jsonl", golden),
            command="",
            versions=(
                *reference.versions,
                ("python", platform.python_version()),
                ("selvage", version("selvage")),
            ),
            seed=request.seed,
            date=datetime.now(UTC).strftime("%Y-%m-%d"),
        )
        written: list[Path] = []
        with _progress(sum(_work(plan) for _, plan in chosen)) as advance:
            for kernel, plan in chosen:
                meter = KernelMeter(backend, golden, reference, partial(advance, kernel.name))
                measured = meter.measure(kernel, plan)
                exact = replace(context, command=_command(request, kernel.name))
                written.append(write_profile(request.out, measured, golden, exact))
    return written


def _backend(request: ProfileRequest, folder: Path, work: Path) -> Backend:
    if request.backend is BackendName.VLLM:
        from live.backend_vllm import VllmBackend

        return VllmBackend(folder, work)
    if request.backend is BackendName.TORCH:
        from live.backend_torch import TorchBackend

        return TorchBackend(folder)
    from live.backend_openai import OpenaiBackend

    if not request.endpoint:
        raise DocumentError([_problem("--endpoint", "the URL of a running server", "none", "add --endpoint")])
    return OpenaiBackend(request.endpoint, request.endpoint_model)


def _chosen(request: ProfileRequest, backend: Backend) -> list[Kernel]:
    from live.kernels import kernel_named

    if not request.kernels:
        return list(backend.kernels)
    try:
        return [kernel_named(name, backend.kernels) for name in request.kernels]
    except KeyError as error:
        names = ", ".join(kernel.name for kernel in backend.kernels)
        raise DocumentError(
            [_problem("--kernel", f"one of {names}", str(error.args[0]), "choose a kernel")]
        ) from None


def _plan(request: ProfileRequest, kernel: Kernel) -> MeasurePlan:
    from live.kernels import FAULTED_KERNELS, slow_doses, weight_doses
    from live.measure_profile import MeasurePlan

    injectable = request.backend is not BackendName.OPENAI and request.faults is not False
    wanted = injectable and (bool(request.faults) or kernel.name in FAULTED_KERNELS)
    weights = weight_doses(kernel.float_bits) if wanted and kernel.float_bits and not kernel.compiled else ()
    doses = (*weights, *(slow_doses() if injectable else ()))
    return MeasurePlan(
        seed=request.seed,
        repeats=request.repeats,
        doses=tuple(one for one in doses if not request.doses or one.name in request.doses),
        restarts=kernel.restart_faults if injectable else (),
    )


def _refuse_unknown_doses(request: ProfileRequest, plans: list[MeasurePlan]) -> None:
    known = {dose.name for plan in plans for dose in plan.doses}
    unknown = sorted(set(request.doses) - known)
    if unknown:
        wanted = "a fault condition of a kernel that is measured under faults"
        raise DocumentError([_problem("--dose", wanted, unknown[0], "see docs/profiles.md, or add --faults")])


def _work(plan: MeasurePlan) -> int:
    return 2 + len(plan.doses) + len(plan.restarts) + bool(plan.restarts)


@contextmanager
def _progress(total: int) -> Iterator[_Advance]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        yield _Advance(bar, bar.add_task("reference", total=total))


class _Advance:
    def __init__(self, bar: Progress, task: object) -> None:
        self._bar, self._task = bar, task

    def __call__(self, kernel: str, text: str) -> None:
        if not self._bar.console.is_terminal:
            self._bar.console.print(f"{kernel}: {text}")  # a log wants lines, not a moving bar
        self._bar.update(self._task, advance=1, description=f"{kernel}: {text}")  # type: ignore[arg-type]


def _command(request: ProfileRequest, kernel: str) -> str:
    """The command that measures ``kernel`` alone in the same way."""
    words = ["selvage", "profile", "--kernel", kernel, "--backend", request.backend.value]
    words += ["--model", request.model] if request.model else []
    words += ["--prompts", str(request.prompts)] if request.prompts else []
    words += ["--endpoint", request.endpoint] if request.endpoint else []
    if request.faults is not None:
        words.append("--faults" if request.faults else "--no-faults")
    words += [word for name in request.doses for word in ("--dose", name)]
    words += ["--repeats", str(request.repeats), "--seed", str(request.seed), "--out", str(request.out)]
    return shlex.join(words)


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


def _problem(file: str, expected: str, actual: str, next_step: str) -> Problem:
    return Problem(file=file, line=0, path="", expected=expected, actual=actual, next_step=next_step)
