"""Capacity of one replica, by the same definition in both worlds: the highest rate at which enough requests
keep every objective, over runs of the same length.

Live it is bisected on short runs with fresh prompts; simulated, on the request engine over several seeds;
``model_rps`` is the controller's closed form (``contracts.compiled.carried``).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.build import request_delay_s, served_step_s
from contracts.compiled.steady_state import Demand, EngineModel, capacity_rps
from contracts.documents.serving_path import ServingPath
from contracts.units import s_from_ms
from scripts.bisection import bisect_highest
from scripts.parity.recording import FIRST, GAP, WHOLE, MeasuredCapacity, ParityRecording, RequestObjectives
from scripts.parity.replaying import RequestLoad, drawn, replay

SEEDS = 8
LIVE_TOLERANCE, SIMULATED_TOLERANCE = 0.06, 0.01

#: Sends the load at a rate; returns times of its requests, ms [n, 3].
Sent = Callable[[float], NDArray[np.float64]]


def kept_ratio(times_ms: NDArray[np.float64], objectives: RequestObjectives) -> float:
    """Share of requests with every time within its objective; a request without times counts as outside."""
    limits = np.empty(3)
    limits[FIRST], limits[GAP], limits[WHOLE] = objectives.first_ms, objectives.gap_ms, objectives.whole_ms
    return float((times_ms <= limits).all(axis=1).mean())


def live_capacity(
    send: Sent, objectives: RequestObjectives, seconds: float, guess_rps: float
) -> MeasuredCapacity:
    """Bisection on live runs from ``guess_rps`` on, to ``LIVE_TOLERANCE``."""
    tried: list[float] = []
    kept: list[float] = []

    def good(rate_rps: float) -> bool:
        tried.append(rate_rps)
        kept.append(kept_ratio(send(rate_rps), objectives))
        return kept[-1] >= objectives.kept_ratio

    found = bisect_highest(good, guess_rps, LIVE_TOLERANCE)
    return MeasuredCapacity(
        objectives=objectives, seconds=seconds, tried_rps=tuple(tried), kept=tuple(kept), carried_rps=found
    )


def simulated_capacity(
    recording: ParityRecording, serving: ServingPath | None, objectives: RequestObjectives, seconds: float
) -> float:
    """The same of the simulated replica, over ``SEEDS`` runs of each rate."""

    def good(rate_rps: float) -> bool:
        runs = [_simulated(recording, serving, rate_rps, (seed, seconds)) for seed in range(1, SEEDS + 1)]
        return kept_ratio(np.concatenate(runs), objectives) >= objectives.kept_ratio

    guess = model_capacity(recording, serving, objectives)
    return bisect_highest(good, max(guess, 0.5), SIMULATED_TOLERANCE)


def model_capacity(
    recording: ParityRecording, serving: ServingPath | None, objectives: RequestObjectives
) -> float:
    """The controller's estimate of the replica's capacity for the mean request."""
    limits = recording.limits
    demand = Demand(
        prompt_tokens=float(recording.prompt_tokens), output_tokens=float(recording.answer_tokens)
    )
    model = EngineModel(
        step_s=served_step_s(recording.step_time, serving)[None],
        request_s=(request_delay_s(serving),),
        sequences=np.array([float(limits.max_sequences)]),
        kv_tokens=np.array([float(limits.kv_blocks * limits.block_tokens)]),
        inter_token_s=s_from_ms(objectives.gap_ms),
        first_token_s=s_from_ms(objectives.first_ms),
        whole_s=s_from_ms(objectives.whole_ms),
        step_tokens=float(limits.max_batch_tokens),
        demand=demand,
        longest=demand,
    )
    return capacity_rps(model, model.step_s[0], demand, 0)


def _simulated(
    recording: ParityRecording, serving: ServingPath | None, rate_rps: float, run: tuple[int, float]
) -> NDArray[np.float64]:
    seed, seconds = run
    lengths = recording.prompt_tokens, recording.answer_tokens, recording.spread
    load: RequestLoad = drawn(rate_rps, seconds, seed, lengths)
    return replay(load, recording.step_time, serving, recording.limits)
