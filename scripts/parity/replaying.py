"""The load of both worlds, recorded or drawn from a seed, and the simulator's side of it.

A recorded run in the simulator: the very same arrivals and tokens on one replica of the request engine.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.build import request_delay_s, served_step_s
from contracts.documents.pool import EngineLimits
from contracts.documents.serving_path import ServingPath
from contracts.documents.step_time import StepTime
from contracts.rng import stream
from contracts.units import MS_PER_S
from scripts.parity.recording import RecordedRun
from simulator.engine.api import FleetEngine
from simulator.engine.requests import RequestArrivals, RequestStatus
from simulator.engine.spec import EngineSpec

#: Time limit of a request, in s.
TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLoad:
    """Requests in order of arrival: instants [n] in s, prompt and answer tokens [n]."""

    at_s: NDArray[np.float64]  # [n], not decreasing
    prompt_tokens: NDArray[np.int64]  # [n]
    answer_tokens: NDArray[np.int64]  # [n]


def load_of(run: RecordedRun) -> RequestLoad:
    """The load of ``run``."""
    return RequestLoad(
        at_s=np.array(run.at_s),
        prompt_tokens=np.array(run.prompt_tokens, dtype=np.int64),
        answer_tokens=np.array(run.answer_tokens, dtype=np.int64),
    )


def replay(
    load: RequestLoad, step: StepTime, serving: ServingPath | None, limits: EngineLimits
) -> NDArray[np.float64]:
    """First token, mean time between tokens and whole answer of each request of ``load``, ms, [n, 3].

    NaN for requests that the simulated replica did not answer.
    """
    engine = FleetEngine(_spec(step, serving, limits), 1, keep_requests=True)
    count = len(load.at_s)
    nothing = np.zeros(count, dtype=np.int64)
    engine.feed(
        0,
        RequestArrivals(
            arrived_at_s=load.at_s,
            slice=nothing,
            prompt_tokens=load.prompt_tokens,
            output_tokens=load.answer_tokens,
            session=nothing - 1,
            prompt=nothing,
            uniforms=np.zeros((count, 4)),
        ),
    )
    engine.advance(float(load.at_s[-1]) + TIMEOUT_S + 1.0)
    found = engine.requests(0)
    first_s = found["first_token_at_s"] - found["arrived_at_s"]
    whole_s = found["finished_at_s"] - found["arrived_at_s"]
    gap_s = (whole_s - first_s) / np.maximum(load.answer_tokens - 1, 1)
    times = MS_PER_S * np.stack([first_s, gap_s, whole_s], axis=1)
    times[found["status"] != RequestStatus.ANSWERED] = np.nan
    return np.asarray(times)


def _spec(step: StepTime, serving: ServingPath | None, limits: EngineLimits) -> EngineSpec:
    """One replica, one slice, no objective."""
    return EngineSpec(
        replica_kernel=np.zeros(1, dtype=np.int64),
        step_model=served_step_s(step, serving)[None],
        request_delay_s=(request_delay_s(serving),),
        kv_blocks=np.array([limits.kv_blocks]),
        timeout_s=np.array([TIMEOUT_S]),
        slo_ms=np.full((1, 3), np.inf),
        quality=np.zeros((1, 1, 1)),
        hard_slices=np.zeros(1, dtype=np.bool_),
        max_batch=limits.max_sequences,
        token_budget=limits.max_batch_tokens,
        block_tokens=limits.block_tokens,
        queue_limit=100_000,
        max_attempts=1,
    )


#: Prompt and answer of a request are at most this many times their mean, so that they fit small contexts.
_MOST_TIMES = 3.0


def drawn(rate_rps: float, seconds: float, seed: int, lengths: tuple[int, int, float]) -> RequestLoad:
    """Arrivals over ``seconds``, at least one; ``lengths``: mean prompt, mean answer, sigma of their logs.

    Lengths are log-normal with these means, cut at three times them; a sigma of 0 makes all equal.
    """
    rng = stream(seed, "parity", "arrivals")
    count = int(rate_rps * seconds + 10.0 * np.sqrt(rate_rps * seconds)) + 20
    at_s = np.cumsum(rng.exponential(1.0 / rate_rps, count))
    at_s = at_s[: max(1, int(np.searchsorted(at_s, seconds)))]
    prompt, answer, sigma = lengths
    sizes = stream(seed, "parity", "lengths")
    return RequestLoad(
        at_s=at_s,
        prompt_tokens=_lengths(sizes, prompt, sigma, len(at_s)),
        answer_tokens=_lengths(sizes, answer, sigma, len(at_s)),
    )


def _lengths(rng: np.random.Generator, mean: int, sigma: float, count: int) -> np.ndarray:
    law = mean * np.exp(sigma * rng.normal(size=count) - 0.5 * sigma * sigma)
    return np.clip(np.round(law), 2, max(2.0, _MOST_TIMES * mean)).astype(np.int64)
