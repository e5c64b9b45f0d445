"""One run of ``selvage profile``: which kernels, on which back end, under which faults, with progress."""

from __future__ import annotations

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
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from contracts.errors import DocumentError, Problem

if TYPE_CHECKING:
    from live.measure.backend import Backend
    from live.measure.kernels import Kernel
    from live.measure.profile import MeasurePlan
    from live.measure.profile_writer import ProfileContext
    from live.measure.prompts import Prompt
    from live.measure.reference import ReferenceScores


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


def run_profile(request: ProfileRequest) -> list[Path]:
    """Measure every asked kernel and write its profile; returns the documents' paths."""
    from live.measure.checkpoint import find_checkpoint
    from live.measure.profile import KernelMeter
    from live.measure.profile_writer import write_profile
    from live.measure.prompts import SHIPPED_PROMPTS, load_prompts, tokenise
    from live.measure.reference import measure_reference

    folder = find_checkpoint(request.model)
    loaded = load_prompts(request.prompts or SHIPPED_PROMPTS)
    golden = tokenise(loaded, folder, keep_ids=bool(request.prompts) or not request.model)
    request.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="selvage-profile-") as scratch:
        backend = _backend(request, folder, Path(scratch))
        chosen = [(kernel, _plan(request, kernel)) for kernel in _chosen(request, backend)]
        _refuse_unknown_doses(request, [plan for _, plan in chosen])
        reference = measure_reference(folder, golden, Path(scratch) / "reference.f32")
        context = _context(request, folder, golden, reference)
        written: list[Path] = []
        with _progress(sum(_work(plan) for _, plan in chosen)) as advance:
            for kernel, plan in chosen:
                meter = KernelMeter(backend, golden, reference, partial(advance, kernel.name))
                measured = meter.measure(kernel, plan)
                exact = replace(context, command=_command(request, kernel.name))
                written.append(write_profile(request.out, measured, golden, exact))
    return written


def _context(
    request: ProfileRequest, folder: Path, golden: list[Prompt], reference: ReferenceScores
) -> ProfileContext:
    """What every profile of this run says of model, reference and prompts; writes both files."""
    from contracts.documents.envelope import FileRef
    from live.measure.checkpoint import checkpoint_sha256
    from live.measure.golden import save_golden
    from live.measure.profile_writer import ProfileContext
    from live.measure.prompts import save_prompts

    pinned = save_golden(request.out / "reference.npz", golden, reference)
    return ProfileContext(
        model_name=request.model or "selvage reference model",
        model_sha256=checkpoint_sha256(folder),
        reference_sha256=reference.sha256,
        golden=FileRef(uri="reference.npz", sha256=pinned),
        prompts_uri="prompts.jsonl",
        prompts_sha256=save_prompts(request.out / "prompts.jsonl", golden),
        command="",
        versions=(
            *reference.versions,
            ("python", platform.python_version()),
            ("selvage-fleet", version("selvage-fleet")),
        ),
        seed=request.seed,
        date=datetime.now(UTC).strftime("%Y-%m-%d"),
    )


def _backend(request: ProfileRequest, folder: Path, work: Path) -> Backend:
    if request.backend is BackendName.VLLM:
        from live.measure.vllm_backend import VllmBackend

        return VllmBackend(folder, work)
    if request.backend is BackendName.TORCH:
        from live.measure.torch_backend import TorchBackend

        return TorchBackend(folder)
    from live.measure.openai_backend import OpenaiBackend

    if not request.endpoint:
        raise DocumentError([problem("--endpoint", "the URL of a running server", "none", "add --endpoint")])
    return OpenaiBackend(request.endpoint, request.endpoint_model)


def _chosen(request: ProfileRequest, backend: Backend) -> list[Kernel]:
    from live.measure.kernels import kernel_named

    if not request.kernels:
        return list(backend.kernels)
    try:
        return [kernel_named(name, backend.kernels) for name in request.kernels]
    except KeyError as error:
        names = ", ".join(kernel.name for kernel in backend.kernels)
        raise DocumentError(
            [problem("--kernel", f"one of {names}", str(error.args[0]), "choose a kernel")]
        ) from None


def _plan(request: ProfileRequest, kernel: Kernel) -> MeasurePlan:
    from live.measure.kernels import FAULTED_KERNELS, slow_doses, weight_doses
    from live.measure.profile import MeasurePlan

    injectable = request.backend is not BackendName.OPENAI and request.faults is not False
    wanted = injectable and (bool(request.faults) or kernel.name in FAULTED_KERNELS)
    weights = weight_doses(kernel.float_bits) if wanted and kernel.float_bits and not kernel.compiled else ()
    doses = (*weights, *(slow_doses() if injectable else ()))
    return MeasurePlan(
        seed=request.seed,
        repeats=request.repeats,
        doses=tuple(one for one in doses if not request.doses or one.name in request.doses),
        restarts=tuple(
            one
            for one in (kernel.restart_faults if injectable else ())
            if not request.doses or one.name in request.doses
        ),
    )


def _refuse_unknown_doses(request: ProfileRequest, plans: list[MeasurePlan]) -> None:
    known = {one.name for plan in plans for one in plan.doses}
    known |= {one.name for plan in plans for one in plan.restarts}
    unknown = sorted(set(request.doses) - known)
    if unknown:
        wanted = "a fault condition of a kernel that is measured under faults"
        raise DocumentError([problem("--dose", wanted, unknown[0], "see docs/profiles.md, or add --faults")])


def _work(plan: MeasurePlan) -> int:
    return 2 + len(plan.doses) + len(plan.restarts) + bool(plan.restarts)


@contextmanager
def _progress(total: int) -> Iterator[_Advance]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        yield _Advance(bar, bar.add_task("reference", total=total))


class _Advance:
    def __init__(self, bar: Progress, task: TaskID) -> None:
        self._bar, self._task = bar, task

    def __call__(self, kernel: str, text: str) -> None:
        if not self._bar.console.is_terminal:
            self._bar.console.print(f"{kernel}: {text}")  # a log wants lines, not a moving bar
        self._bar.update(self._task, advance=1, description=f"{kernel}: {text}")


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


def problem(file: str, expected: str, actual: str, next_step: str) -> Problem:
    """A finding about an option or a file as a whole."""
    return Problem(file=file, line=0, path="", expected=expected, actual=actual, next_step=next_step)
