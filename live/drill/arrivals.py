"""The load of a drill: requests with arrival times from a Poisson process or a trace, plus surges. Pure."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contracts.loading.uris import resolve_uri
from contracts.rng import stream
from contracts.workload.arrivals import GapProcess, TraceProcess
from contracts.workload.azure_trace import load_trace
from faults.drill.plan import DrillPlan, Strike
from live.drill.fleet import Front
from live.load import LoadPlan


def planned_load(plan: DrillPlan, front: Front, seed: int) -> tuple[LoadPlan, NDArray[np.float64]]:
    """The load on ``front``, and the arrival times that a surge adds, s from the start of the drill."""
    instants, added = arrivals(plan, seed)
    wanted = LoadPlan(
        url=front.url,
        rate_rps=plan.load.rate_rps,
        seconds=plan.latest_at_s,
        slices=tuple(part.slice for part in plan.slices),
        shares=tuple(part.share for part in plan.slices),
        model=front.model,
        api_key=front.api_key,
        prompt_tokens=plan.load.prompt_tokens,
        answer_tokens=plan.load.answer_tokens,
        streamed_ratio=plan.load.streamed_ratio,
        timeout_s=plan.load.timeout_s,
        seed=seed,
        arrivals_at_s=tuple(instants.tolist()),
    )
    return wanted, added


def arrivals(plan: DrillPlan, seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Sorted arrival times of all requests, and of those that a surge adds, s from the start of the drill."""
    rate, total_s = plan.load.rate_rps, plan.latest_at_s
    if plan.load.trace_uri is None:
        usual = _poisson(seed, "usual", rate, (0.0, total_s))
    else:
        trace = TraceProcess(load_trace(resolve_uri(plan.load.trace_uri, plan.file)))
        usual = trace.take(_enough(rate * total_s))[0] / rate
    surges = [strike for strike in plan.strikes if strike.fault.kind == "load_surge"]
    extra = [_surge(plan, strike, seed) for strike in surges]
    added = np.sort(np.concatenate([np.zeros(0), *extra]))
    return np.sort(np.concatenate([usual[usual < total_s], added])), added


def surge_factor(strike: Strike) -> float:
    """Factor by which the load grows."""
    return 2.0 if strike.fault.dose is None else strike.fault.dose


def _surge(plan: DrillPlan, strike: Strike, seed: int) -> NDArray[np.float64]:
    rate = plan.load.rate_rps * max(0.0, surge_factor(strike) - 1.0)
    return _poisson(seed, strike.fault.name, rate, (strike.onset_s, strike.ends_at_s))


def _poisson(seed: int, name: str, rate_rps: float, span_s: tuple[float, float]) -> NDArray[np.float64]:
    start_at_s, end_at_s = span_s
    if rate_rps <= 0.0:
        return np.zeros(0)
    gaps = GapProcess(stream(seed, "drill_load", name))
    times = start_at_s + gaps.take(_enough(rate_rps * (end_at_s - start_at_s))) / rate_rps
    return times[times < end_at_s]


def _enough(expected: float) -> int:
    """A number of arrivals that is practically never exceeded if ``expected`` is their mean."""
    return int(expected + 10.0 * np.sqrt(expected)) + 50
