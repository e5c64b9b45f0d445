"""How much a replica carries: steady state of continuous batching under the step-time model.

With ``n`` sequences decoding, mean prompt ``P`` and mean output ``O`` tokens, one engine step lasts

    step(n) = c0 + c1 * n * P / O + c2 * n + c3 * n * (P + O / 2)

because each step ends ``n / O`` requests, which are replaced by as many prompts to prefill. A replica
then answers ``n / (O * step(n))`` requests per second, and a request takes ``c0 + c1 * P`` to its first
token and ``step(n)`` for each further one, beside what serving delays it (``contracts.compiled.build``). How
many of those keep the objectives is in ``contracts.compiled.carried``. All times in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.carried import Objectives, Replica, Request, carried_rps, request_of, steady_rps
from contracts.jit import compiled


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """The mean request."""

    prompt_tokens: float
    output_tokens: float

    @property
    def context_tokens(self) -> float:
        """Mean context while decoding."""
        return self.prompt_tokens + self.output_tokens / 2.0


#: No request is too long.
UNCUT = Demand(prompt_tokens=float("inf"), output_tokens=float("inf"))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EngineModel:
    """The certified values of the engines of K kernels, and the expected request.

    Compared and hashed by identity, so that derived values can be cached by it.
    """

    step_s: NDArray[np.float64]  # [K, 4], coefficients of the step-time model
    sequences: NDArray[np.float64]  # [K], most at once in one replica
    kv_tokens: NDArray[np.float64]  # [K], that the KV cache of one replica holds
    inter_token_s: float  # tightest objective between two tokens; inf: there is none
    demand: Demand  # as declared: a prior until servers say otherwise
    spread: float = 0.15  # standard deviation of the log of true over certified step time
    first_token_s: float = float("inf")  # tightest objectives of the first token and of the whole answer
    whole_s: float = float("inf")
    step_tokens: float = float("inf")  # most in one step of any kernel
    longest: Demand = UNCUT  # prompt and answer that are let in
    request_s: tuple[float, ...] = ()  # [K], by which serving delays each request; empty: by nothing

    @property
    def objectives(self) -> Objectives:
        """The objectives of a request, less the delay of the slowest serving path."""
        return self._less(max(self.request_s, default=0.0))

    def objectives_of(self, kernel: int) -> Objectives:
        """The objectives of a request, less the delay of the serving path of ``kernel``."""
        return self._less(self.request_s[kernel] if self.request_s else 0.0)

    def _less(self, delay_s: float) -> Objectives:
        first_s, whole_s = float(self.first_token_s) - delay_s, float(self.whole_s) - delay_s
        return Objectives(float(self.inter_token_s), first_s, whole_s)

    def request(self, demand: Demand) -> Request:
        """Requests whose mean is ``demand``."""
        longest = float(self.longest.prompt_tokens), float(self.longest.output_tokens)
        return Request(*request_of(float(demand.prompt_tokens), float(demand.output_tokens), *longest))


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


def capacity_rps(model: EngineModel, coefficients: NDArray[np.float64], demand: Demand, kernel: int) -> float:
    """Requests per second of one replica of ``kernel`` if its steps had ``coefficients`` [4]."""
    return float(carried_rps(*_asked(model, coefficients, demand, kernel)))


def capacities_rps(
    coefficients: NDArray[np.float64], model: EngineModel, demand: Demand
) -> NDArray[np.float64]:
    """``capacity_rps`` of the kernels of ``model`` if their steps had ``coefficients`` [K, 4], [K]."""
    return np.array([capacity_rps(model, step, demand, kernel) for kernel, step in enumerate(coefficients)])


def steady_limits_rps(
    coefficients: NDArray[np.float64], model: EngineModel, demand: Demand
) -> NDArray[np.float64]:
    """The most that one replica of each kernel carries in steady state, however long prompts wait, [K]."""
    unhurried = replace(model, whole_s=float("inf"))
    found = [steady_rps(*_asked(unhurried, step, demand, k)) for k, step in enumerate(coefficients)]
    return np.array(found, dtype=np.float64)


def _asked(
    model: EngineModel, coefficients: NDArray[np.float64], demand: Demand, kernel: int
) -> tuple[NDArray[np.float64], Request, Replica, Objectives]:
    """Arguments of the compiled limits."""
    held = batch_limit(demand, float(model.sequences[kernel]), float(model.kv_tokens[kernel]))
    step = np.array(coefficients, dtype=np.float64)  # a writable copy, so that numba always sees one type
    return step, model.request(demand), Replica(held, float(model.step_tokens)), model.objectives_of(kernel)


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
