"""One live replica observed: its step times and serving path measured, then open loops at several rates.

Prompts are never repeated between runs, because a server remembers prefixes; arrivals and tokens of the runs
at one rate are the same, so that two live runs differ by the machine alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from contracts.documents.serving_path import ServingPath
from contracts.documents.step_time import StepTime
from contracts.errors import MeasurementError
from live.load import LoadPlan, LoadRecord, run_load
from live.measure.backend import Session, StepPlan
from live.measure.steps.times import measure_served, measure_steps
from scripts.parity.recording import RecordedRun
from scripts.parity.replaying import TIMEOUT_S, RequestLoad, drawn

STEPS = StepPlan(batches=(1, 4, 16), decode_steps=24, clock="cpu", least=True, streams=(1, 2, 4))
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What is sent to ``url``. lengths: mean prompt, mean answer, sigma of their logs."""

    url: str
    model: str
    rates_rps: tuple[float, ...]
    seconds: float
    runs: int
    seed: int
    lengths: tuple[int, int, float]


def measured(session: Session, say: Say) -> tuple[StepTime, ServingPath | None]:
    """Step times and serving path of a running server; MeasurementError if step times cannot be measured."""
    say("timing engine steps")
    step, notes = measure_steps(session, STEPS)
    if step is None:
        raise MeasurementError(" ".join(notes))
    say("timing streams")
    serving, unsaid = measure_served(session, STEPS, step)
    for note in (*notes, *unsaid):
        say(note)
    return step, serving


def observed(asked: Observed, say: Say) -> list[RecordedRun]:
    """Every rate ``runs`` times, alternating, after a few seconds to warm up."""
    warm = drawn(max(asked.rates_rps), min(5.0, asked.seconds), asked.seed, asked.lengths)
    send_load(asked, warm, 0)
    found: list[RecordedRun] = []
    for number in range(asked.runs):
        for rate in asked.rates_rps:
            load = drawn(rate, asked.seconds, asked.seed, asked.lengths)
            say(f"{len(load.at_s)} requests at {rate:g}/s, run {number + 1} of {asked.runs}")
            before = cpu_ticks()
            times = send_load(asked, load, 1 + len(found))
            found.append(_run(asked, rate, load, times, busy_between(before, cpu_ticks())))
    return found


def send_load(asked: Observed, load: RequestLoad, number: int) -> NDArray[np.float64]:
    """Times [n, 3] in ms of ``load`` as it was sent; run ``number`` has prompts of its own."""
    pairs = zip(load.prompt_tokens.tolist(), load.answer_tokens.tolist(), strict=True)
    plan = LoadPlan(
        url=asked.url,
        model=asked.model,
        rate_rps=1.0,
        seconds=asked.seconds,
        slices=("parity",),
        streamed_ratio=1.0,
        timeout_s=TIMEOUT_S,
        seed=asked.seed * 100_003 + number,
        arrivals_at_s=tuple(load.at_s.tolist()),
        lengths=tuple((int(prompt), int(answer)) for prompt, answer in pairs),
    )
    return times_of(run_load(plan), load.answer_tokens)


def times_of(records: Sequence[LoadRecord], answer_tokens: NDArray[np.int64]) -> NDArray[np.float64]:
    """First token, mean time between tokens and whole answer, ms [n, 3]; NaN for incomplete answers."""
    rows = [
        (one.first_ms, (one.duration_ms - one.first_ms) / max(int(tokens) - 1, 1), one.duration_ms)
        if one.complete
        else (math.nan,) * 3
        for one, tokens in zip(records, answer_tokens, strict=True)
    ]
    return np.array(rows)


def cpu_ticks(place: Path = Path("/proc/stat")) -> tuple[float, float]:
    """CPU time of the machine since it started: idle, and all; NaN if the system does not report it."""
    try:
        fields = [float(part) for part in place.read_text().splitlines()[0].split()[1:9]]
    except (OSError, IndexError, ValueError):
        return math.nan, math.nan
    return fields[3] + fields[4], sum(fields)


def busy_between(before: tuple[float, float], after: tuple[float, float]) -> float | None:
    """Share of the machine's CPU time that was used in between; None if unknown."""
    idle, whole = (late - early for early, late in zip(before, after, strict=True))
    return min(1.0, max(0.0, 1.0 - idle / whole)) if whole > 0.0 else None


def _run(
    asked: Observed, rate_rps: float, load: RequestLoad, times_ms: NDArray[np.float64], busy: float | None
) -> RecordedRun:
    return RecordedRun(
        rate_rps=rate_rps,
        seconds=asked.seconds,
        seed=asked.seed,
        busy_ratio=busy,
        at_s=tuple(load.at_s.tolist()),
        prompt_tokens=tuple(load.prompt_tokens.tolist()),
        answer_tokens=tuple(load.answer_tokens.tolist()),
        times_ms=tuple((_known(first), _known(gap), _known(whole)) for first, gap, whole in times_ms),
    )


def _known(time_ms: float) -> float | None:
    return float(time_ms) if math.isfinite(time_ms) else None
