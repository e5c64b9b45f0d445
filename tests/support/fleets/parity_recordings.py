"""Recordings made by the simulator, with known serving-path terms and noise of a known size."""

from __future__ import annotations

import numpy as np

from contracts.documents.pool import EngineLimits
from contracts.documents.serving_path import ServingPath
from contracts.documents.step_time import StepTime
from contracts.rng import stream
from scripts.parity.recording import ParityRecording, RecordedRun
from scripts.parity.replaying import drawn, replay

STEP = StepTime(
    base_ms=4.5,
    per_prefill_token_ms=0.05,
    per_decode_sequence_ms=0.25,
    per_context_token_ms=0.0005,
    relative_error=0.0,
    measured_points=8,
)
SERVED = ServingPath(request_overhead_ms=18.0, step_overhead_ms=1.7, token_overhead_ms=0.4)
LENGTHS = (300, 64, 0.4)
LIMITS = EngineLimits()


def recorded(
    rate_rps: float, seed: int, *, seconds: float = 60.0, noise: float = 0.02, serving: ServingPath = SERVED
) -> RecordedRun:
    """A run of servers with ``serving``, each time with ``noise`` on the log scale."""
    load = drawn(rate_rps, seconds, seed, LENGTHS)
    times = replay(load, STEP, serving, LIMITS)
    times *= np.exp(noise * stream(seed, "parity-noise").normal(size=times.shape))
    return RecordedRun(
        rate_rps=rate_rps,
        seconds=seconds,
        seed=seed,
        busy_ratio=0.5,
        at_s=tuple(load.at_s.tolist()),
        prompt_tokens=tuple(load.prompt_tokens.tolist()),
        answer_tokens=tuple(load.answer_tokens.tolist()),
        times_ms=tuple((float(a), float(b), float(c)) for a, b, c in times),
    )


def recording(rates_rps: tuple[float, ...] = (3.0, 6.0, 9.0), *, seconds: float = 60.0) -> ParityRecording:
    """Two runs at each rate with the same arrivals, calibrated at the middle one."""
    runs = [recorded(rate, 7 + at, seconds=seconds) for at, rate in enumerate(rates_rps)]
    return ParityRecording(
        kernel="toy",
        step_time=STEP,
        limits=LIMITS,
        calibrate_rps=rates_rps[len(rates_rps) // 2],
        prompt_tokens=LENGTHS[0],
        answer_tokens=LENGTHS[1],
        spread=LENGTHS[2],
        runs=tuple(run for run in runs for _ in range(2)),
    )
