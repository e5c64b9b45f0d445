"""How much a replica carries: steady state of continuous batching under the step-time model.

With ``n`` sequences decoding, mean prompt ``P`` and mean output ``O`` tokens, one engine step lasts

    step(n) = c0 + c1 * n * P / O + c2 * n + c3 * n * (P + O / 2)

because each step ends ``n / O`` requests, which are replaced by as many prompts to prefill. A replica
then answers ``n / (O * step(n))`` requests per second, and a request takes ``c0 + c1 * P`` to its first
token and ``step(n)`` for each further one. All times in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contracts.jit import compiled

#: Share of the steady-state limit that counts as capacity: above it queues grow with every burst.
HEADROOM_RATIO = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """The mean request."""

    prompt_tokens: float
    output_tokens: float

    @property
    def context_tokens(self) -> float:
        """Mean context while decoding."""
        return self.prompt_tokens + self.output_tokens / 2.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EngineModel:
    """What was certified of the engines of K kernels, and the request that is expected.

    Compared and hashed by identity, so that what follows from it can be kept beside it.
    """

    step_s: NDArray[np.float64]  # [K, 4], coefficients of the step-time model
    sequences: NDArray[np.float64]  # [K], most at once in one replica
    kv_tokens: NDArray[np.float64]  # [K], that the KV cache of one replica holds
    inter_token_s: float  # tightest objective between two tokens; inf: there is none
    demand: Demand  # as declared: a prior until servers say otherwise
    spread: float = 0.15  # standard deviation of the log of true over certified step time


def step_s(coefficients: NDArray[np.float64], demand: Demand, batch: float) -> float:
    """Seconds of one engine step with ``batch`` sequences in steady state."""
    base, prefill, decode, context = (float(value) for value in coefficients)
    prompts = prefill * demand.prompt_tokens / demand.output_tokens
    return base + batch * (prompts + decode + context * demand.context_tokens)


def _sequence_limit(prompt_tokens, output_tokens, max_batch, kv_tokens):
    """``batch_limit`` of the mean request with these tokens."""
    return max(1.0, min(float(max_batch), kv_tokens / (prompt_tokens + output_tokens)))


#: The same for compiled code.
sequence_limit = compiled(_sequence_limit)


def batch_limit(demand: Demand, max_batch: float, kv_tokens: float) -> float:
    """Most sequences at once: the scheduler's limit or what the KV cache holds, at least one."""
    return float(_sequence_limit(demand.prompt_tokens, demand.output_tokens, max_batch, kv_tokens))


def probe_share(
    coefficients: NDArray[np.float64], probes_per_s: float, probe_tokens: float
) -> NDArray[np.float64]:
    """Share of a replica's time that its probes take, float64 [K]: one prefill step per probe, alone.

    Probes are batched with traffic in a real engine, so this is the most they can cost.
    """
    return np.asarray(probes_per_s * (coefficients[:, 0] + probe_tokens * coefficients[:, 1]))


def _carried_rps(step, prompt_tokens, output_tokens, limit, inter_token_s):
    """``capacity_rps`` of a replica with the coefficients ``step`` [4]."""
    base, prefill, decode, context = step[0], step[1], step[2], step[3]
    work = prefill * prompt_tokens / output_tokens + decode + context * (prompt_tokens + output_tokens / 2.0)
    slope = (base + work) - base
    fits = limit if slope <= 0.0 else (inter_token_s - base) / slope
    batch = min(limit, max(1.0, fits))
    return HEADROOM_RATIO * batch / (output_tokens * (base + batch * work))


#: The same for compiled code.
carried_rps = compiled(_carried_rps)


def capacity_rps(
    coefficients: NDArray[np.float64], demand: Demand, limit: float, inter_token_s: float
) -> float:
    """Requests per second of one replica, with headroom: its largest batch that keeps ``inter_token_s``."""
    step = np.asarray(coefficients, dtype=np.float64)
    tokens = float(demand.prompt_tokens), float(demand.output_tokens)
    return float(_carried_rps(step, *tokens, float(limit), float(inter_token_s)))


def capacities_rps(
    coefficients: NDArray[np.float64], model: EngineModel, demand: Demand
) -> NDArray[np.float64]:
    """``capacity_rps`` of the kernels of ``model`` if their steps had ``coefficients`` [K, 4], [K]."""
    kernels = zip(coefficients, model.sequences, model.kv_tokens, strict=True)
    return np.array(
        [
            capacity_rps(step, demand, batch_limit(demand, float(most), float(held)), model.inter_token_s)
            for step, most, held in kernels
        ]
    )


def steady_batch(coefficients: NDArray[np.float64], demand: Demand, limit: float, rate_rps: float) -> float:
    """Sequences decoding at ``rate_rps`` per replica, at least 1; infinite beyond the replica's limit."""
    empty = step_s(coefficients, demand, 0.0)
    slope = step_s(coefficients, demand, 1.0) - empty
    load = rate_rps * demand.output_tokens
    if load * slope >= 1.0:
        return float("inf")
    batch = load * empty / (1.0 - load * slope)
    return float("inf") if batch > limit else max(1.0, batch)


def mean_latencies_ms(coefficients: NDArray[np.float64], demand: Demand, batch: float) -> NDArray[np.float64]:
    """End-to-end, first-token and inter-token time of the mean request, ms, float64 [3]."""
    first = float(coefficients[0] + coefficients[1] * demand.prompt_tokens)
    each = step_s(coefficients, demand, batch) if np.isfinite(batch) else float("inf")
    whole = first + each * max(demand.output_tokens - 1.0, 0.0)
    return 1000.0 * np.array([whole, first, each])
