"""One run of ``selvage profile``: which kernels, on which back end, under which faults, with progress."""

from __future__ import annotations

import platform
import re
import sys
import tempfile
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from contracts.errors import refusal
from contracts.loading.files import write_pinned
from scripts.cli.measuring.checks import (
    refuse_other,
    refuse_overwriting,
    refuse_unheard,
    refuse_unknown_doses,
    refuse_unusable_servers,
)
from scripts.cli.measuring.request import BackendName, ProfileRequest
from scripts.guard import on_interrupt
from scripts.output import ready_folder
from scripts.progress import ProgressLine, show_progress

if TYPE_CHECKING:
    from live.measure.backend import ServingBackend, StepPlan
    from live.measure.kernels import Kernel
    from live.measure.measurement import MeasurePlan
    from live.measure.profile_writer import ProfileContext
    from live.measure.prompts import Prompt
    from live.measure.reference import AnyReference

#: Notes about missing parts of a profile.
_SAID = re.compile("^(Step times|Predicted|The serving)|left out")
#: Least and largest number of rounds in which a server is timed, and the share of the longest time over
#: which the least number is spread.
_LEAST_ROUNDS, _MOST_ROUNDS, _SPREAD = 8, 64, 0.4


def run_profile(request: ProfileRequest) -> list[Path]:
    """Measure every requested kernel and write its profile; returns the documents' paths.

    Everything that can be refused is refused first: prompts, names, places and servers.
    """
    from live.measure.checkpoint import find_checkpoint
    from live.measure.prompt_sets import load_distinct, missing_splits
    from live.measure.prompts import SHIPPED_PROMPTS, tokenise

    refuse_unheard(request)
    loaded, repeated = load_distinct(request.prompts or SHIPPED_PROMPTS)
    folder = find_checkpoint(request.model)
    golden = tokenise(loaded, folder, keep_ids=bool(request.prompts) or not request.model)
    with tempfile.TemporaryDirectory(prefix="selvage-profile-") as scratch:
        backend = _backend(request, folder, Path(scratch))
        chosen = [(kernel, _plan(request, kernel)) for kernel in _chosen(request, backend)]
        refuse_unknown_doses(request, [plan for _, plan in chosen])
        refuse_overwriting(request, [kernel for kernel, _ in chosen], golden)
        for place in (request.out, request.reference.store):
            ready_folder(place or request.out)
        refuse_unusable_servers(request, backend, [plan for _, plan in chosen], golden)
        _say([*repeated, *missing_splits(golden), *_cannot(request), *_load(chosen)])
        total = len(golden) * (1 + sum(_passes(plan) for _, plan in chosen))
        with on_interrupt(lambda: _kept(request)), show_progress("reference", total) as progress:
            reference = _reference(request, folder, golden, Path(scratch), progress)
            return _measure(request, backend, chosen, golden, (folder, reference), progress)


def _measure(
    request: ProfileRequest,
    backend: ServingBackend,
    chosen: list[tuple[Kernel, MeasurePlan]],
    golden: list[Prompt],
    known: tuple[Path, AnyReference],
    progress: ProgressLine,
) -> list[Path]:
    """Measure and write one kernel after the other."""
    from live.measure.profile import KernelMeter
    from live.measure.profile_writer import write_profile

    folder, reference = known
    context = _context(request, folder, golden, reference)
    written: list[Path] = []
    for kernel, plan in chosen:

        def done(text: str, name: str = kernel.name, steps: StepPlan | None = plan.steps) -> None:
            if text == "healthy" and steps is not None:
                most = f", at most {steps.most_seconds:.0f} s" if steps.streams else ""
                progress.aside(f"{name}: timing steps{most}")
            else:
                progress.update(f"{name}: {text} done")

        meter = KernelMeter(backend, golden, reference, done, lambda: progress.update(advance=1.0))
        progress.update(f"{kernel.name}: healthy")
        measured = meter.measure(kernel, plan)
        exact = replace(context, command=request.command(kernel.name))
        written.append(write_profile(request.out, measured, golden, exact))
        _say([note for note in measured.notes if _SAID.search(note)])
    return written


def _kept(request: ProfileRequest) -> str:
    """Result of an interrupted run: kernels are written one by one, each completely or not at all."""
    there = sum(1 for path in request.out.glob("*.yaml"))
    again = "" if request.reference.store else "; --reference-store DIR keeps the reference between runs"
    if not there:
        return f"no profile was finished; the same command begins anew{again}"
    return f"{there} profiles are in {request.out}; name those that are missing by --kernel{again}"


def _say(lines: list[str]) -> None:
    """Print notes that accompany the result, on stderr."""
    for line in lines:
        print(line, file=sys.stderr, flush=True)


def _cannot(request: ProfileRequest) -> list[str]:
    """Parts that a profile of a running server will lack."""
    from live.measure.profile_writer import not_by_top_k

    if request.backend is not BackendName.OPENAI and not request.reference.url:
        return []
    lines = [
        "A server returns its most probable tokens alone: divergences are lower bounds (estimator top_k), and"
        f" these metrics cannot be had: {', '.join(not_by_top_k())}."
    ]
    if request.backend is BackendName.OPENAI:
        lines.append("Memory is unknown, and no fault can be injected: give other servers by --condition.")
    if not request.step_times:
        lines.append("Without step times the kernel can be judged, but no pool with it simulated.")
    return lines


def _load(chosen: list[tuple[Kernel, MeasurePlan]]) -> list[str]:
    """The largest load that timing the steps sends to a running server."""
    from live.measure.steps.serving import stream_load
    from live.measure.steps.timed_requests import load_of

    plans = [plan.steps for _, plan in chosen if plan.steps is not None and plan.steps.streams]
    return [
        f"Step times: at most {load.requests} requests, one after the other, of at most {load.sequences}"
        f" sequences and {load.tokens} tokens in all, for at most {load.seconds:.0f} s (--step-sequences,"
        f" --step-seconds, --no-step-times); then {streams}"
        f" streams of {tokens} tokens in all, at most {max(plan.streams, default=0)} at a time."
        for plan in plans
        for load, (streams, tokens) in [(load_of(plan), stream_load(plan.streams))]
    ]


def _reference(
    request: ProfileRequest, folder: Path, golden: list[Prompt], scratch: Path, progress: ProgressLine
) -> AnyReference:
    """The reference's log-probabilities: from a server or the weights, or from the store if present."""
    from live.measure.backends.openai_backend import OpenaiBackend
    from live.measure.reference_store import stored_reference, stored_top_reference

    store, server = request.reference.store or scratch, request.reference.endpoint

    def advance() -> None:
        progress.update(advance=1.0)

    if server is not None:
        return stored_top_reference(store, OpenaiBackend(server), golden, on_prompt=advance)
    map_ = request.reference.device_map
    return stored_reference(store, folder, golden, device_map=map_, on_prompt=advance)


def _context(
    request: ProfileRequest, folder: Path, golden: list[Prompt], reference: AnyReference
) -> ProfileContext:
    """Model, reference and prompts, common to every profile of this run; writes both files."""
    from contracts.documents.envelope import FileRef
    from live.measure.checkpoint import checkpoint_sha256
    from live.measure.profile_writer import ProfileContext
    from live.measure.prompts import save_prompts
    from live.measure.reference_store import golden_bytes

    content = golden_bytes(golden, reference)
    refuse_other(request, request.out / "reference.npz", content)
    pinned = write_pinned(request.out / "reference.npz", content)
    return ProfileContext(
        model_name=request.model or "selvage reference model",
        model_sha256=checkpoint_sha256(folder),
        reference_sha256=reference.sha256,
        reference_name="reference-server" if request.reference.url else "reference-fp32",
        reference_engine=reference.engine,
        reference_dtype=reference.dtype,
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


def _backend(request: ProfileRequest, folder: Path, work: Path) -> ServingBackend:
    if request.backend is BackendName.VLLM:
        from live.measure.backends.vllm_backend import VllmBackend

        return VllmBackend(folder, work)
    if request.backend is BackendName.TORCH:
        from live.measure.backends.torch_backend import TorchBackend

        return TorchBackend(folder)
    from live.fleet.processes import process_clock
    from live.measure.backends.openai_backend import OpenaiBackend

    server = request.server
    cpu_clock = process_clock(server.step_process) if server.step_process else None
    return OpenaiBackend(server.endpoint, server.declared, cpu_clock=cpu_clock)


def _chosen(request: ProfileRequest, backend: ServingBackend) -> list[Kernel]:
    from live.measure.kernels import kernel_named
    from live.measure.torch_kernels import GPU_KERNELS

    if not request.kernels:
        return list(backend.kernels)
    try:
        return [kernel_named(name, backend.kernels) for name in request.kernels]
    except KeyError as error:
        names = ", ".join(kernel.name for kernel in backend.kernels)
        on_gpu = {kernel.name for kernel in GPU_KERNELS}.intersection(request.kernels)
        step = "run it where torch sees an NVIDIA GPU" if on_gpu else "choose a kernel"
        raise refusal("--kernel", f"one of {names}", str(error.args[0]), step) from None


def _plan(request: ProfileRequest, kernel: Kernel) -> MeasurePlan:
    from live.measure.kernels import FAULTED_KERNELS, slow_doses, weight_doses
    from live.measure.measurement import MeasurePlan

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
        servers=request.server.servers() if request.backend is BackendName.OPENAI else (),
        steps=_steps(request) if request.step_times else None,
    )


def _steps(request: ProfileRequest) -> StepPlan:
    """The batches to time: on a running server no more concurrent sequences than allowed."""
    from live.measure.backend import StepPlan

    if request.backend is not BackendName.OPENAI:
        return StepPlan(most_half_width=request.step_half_width)
    most = request.server.step_sequences
    return StepPlan(
        batches=tuple(sorted({1, max(2, most // 4), most})),
        decode_steps=24,
        rounds=1,
        blocks=_LEAST_ROUNDS,
        most_blocks=_MOST_ROUNDS,
        least_seconds=_SPREAD * request.server.step_seconds,
        most_seconds=request.server.step_seconds,
        clock="cpu" if request.server.step_process else "wall",
        wanted_half_width=request.server.step_target,
        most_half_width=request.step_half_width,
        streams=tuple(sorted({1, 2, min(4, most)})),
    )


def _passes(plan: MeasurePlan) -> int:
    """Passes over the prompts."""
    return plan.repeats * (1 + len(plan.doses) + len(plan.restarts) + len(plan.servers)) + bool(plan.restarts)
