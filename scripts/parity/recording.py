"""Observations of live servers under an open loop, as a file: the step model, the runs, every request.

A run is its arrivals, their tokens, and three times of each answer: to the first token, between two tokens on
average, and whole. A request without a complete answer has none.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError

from contracts.documents.envelope import NonNegative, Positive, PositiveCount, Strict
from contracts.documents.pool import EngineLimits
from contracts.documents.profile import Version, Words
from contracts.documents.serving_path import ServingPath
from contracts.documents.step_time import StepTime
from contracts.errors import DocumentError, refusal
from contracts.loading.untrusted import refuse_too_many_values
from contracts.regular_files import TEXT_BYTES, read_regular

#: Columns of a run's times.
FIRST, GAP, WHOLE = range(3)
TIMES = ("first token", "between tokens", "whole answer")
_MOST = 200_000

Times = tuple[NonNegative | None, NonNegative | None, NonNegative | None]


class RecordedRun(Strict):
    """One open loop at one rate; ``requests`` are in the order of their arrivals."""

    rate_rps: Positive
    seconds: Positive
    seed: Annotated[int, Field(ge=0)]
    busy_ratio: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
    """Share of the machine's CPU time used meanwhile; absent if it cannot be read."""
    at_s: Annotated[tuple[NonNegative, ...], Field(min_length=1, max_length=_MOST)]
    prompt_tokens: Annotated[tuple[PositiveCount, ...], Field(max_length=_MOST)]
    answer_tokens: Annotated[tuple[PositiveCount, ...], Field(max_length=_MOST)]
    times_ms: Annotated[tuple[Times, ...], Field(max_length=_MOST)]

    @property
    def times(self) -> NDArray[np.float64]:
        """[n, 3], NaN if there is none."""
        return np.array(self.times_ms, dtype=np.float64)

    @property
    def unanswered(self) -> int:
        """Number of requests without a complete answer."""
        return int(np.isnan(self.times[:, WHOLE]).sum())


class RequestObjectives(Strict):
    """Limits within which requests must stay for a rate to count as carried."""

    first_ms: Positive = 1000.0
    gap_ms: Positive = 60.0
    whole_ms: Positive = 10_000.0
    kept_ratio: Annotated[float, Field(gt=0.0, le=1.0)] = 0.95


class MeasuredCapacity(Strict):
    """The highest rate that a live replica carried, and the tried rates."""

    objectives: RequestObjectives
    seconds: Positive
    tried_rps: Annotated[tuple[Positive, ...], Field(max_length=64)]
    kept: Annotated[tuple[NonNegative, ...], Field(max_length=64)]
    carried_rps: NonNegative


class ParityRecording(Strict):
    """A whole observation: one replica, its step model, runs at several rates, each rate at least once."""

    format: Literal[1] = 1
    kernel: Words
    step_time: StepTime
    serving: ServingPath | None = None
    limits: EngineLimits = EngineLimits()
    calibrate_rps: Positive
    prompt_tokens: PositiveCount
    answer_tokens: PositiveCount
    spread: Annotated[float, Field(ge=0.0, le=2.0)] = 0.0
    """Standard deviation of the logarithms of tokens; prompt and answer above are means."""
    runs: Annotated[tuple[RecordedRun, ...], Field(min_length=1, max_length=64)]
    capacity: MeasuredCapacity | None = None
    hardware: Words = ""
    versions: Annotated[tuple[Version, ...], Field(max_length=64)] = ()

    def at(self, rate_rps: float) -> tuple[RecordedRun, ...]:
        """Runs at one rate, in order."""
        return tuple(run for run in self.runs if run.rate_rps == rate_rps)

    @property
    def rates_rps(self) -> tuple[float, ...]:
        """Rates that were run, rising."""
        return tuple(sorted({run.rate_rps for run in self.runs}))


def load_recording(path: Path, calibrate_rps: float | None = None) -> ParityRecording:
    """The recording at ``path``, calibrated at ``calibrate_rps`` instead of its own if that is given.

    DocumentError if it is invalid, its columns differ in length, or it has no run at that rate.
    """
    text = read_regular(path, TEXT_BYTES)
    try:
        refuse_too_many_values(text)
        recording = ParityRecording.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise _refusal(path, place, first["msg"], repr(first["input"])[:80]) from None
    except ValueError as error:
        raise _refusal(path, "", "a recording of `selvage parity`", str(error)) from None
    if calibrate_rps is not None:
        recording = recording.model_copy(update={"calibrate_rps": calibrate_rps})
    for number, run in enumerate(recording.runs):
        sizes = {len(run.at_s), len(run.prompt_tokens), len(run.answer_tokens), len(run.times_ms)}
        if len(sizes) > 1 or (np.diff(run.at_s) < 0.0).any():
            message = f"{sorted(sizes)} entries" if len(sizes) > 1 else "arrivals that go back"
            raise _refusal(path, f"runs.{number}", "columns of one length in order of arrival", message)
    if not recording.at(recording.calibrate_rps):
        message = ", ".join(f"{rate:g}" for rate in recording.rates_rps)
        raise _refusal(path, "calibrate_rps", "the rate of one of the runs", message)
    return recording


def _refusal(path: Path, place: str, expected: str, actual: str) -> DocumentError:
    step = "give the recording.json that `selvage parity --out` wrote"
    return refusal(path, expected, actual, step, path=place)
