"""Compiled loops of held loads and capacities for planning. Fleets are independent."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.jit import borrowed, compiled

#: Rates below this count as zero, in requests per second.
_LEAST_RPS = 1e-6
#: Relative differences from the held value that a mean and a single estimate must exceed. A fleet planned a
#: tenth too full still answers in time, and a twentieth makes no difference.
_DRIFT_BAND, _SURGE_BAND = 0.05, 0.1
#: Band of the mean in the worse direction: a fleet planned too full is late, one planned too empty is not.
_WORSE_BAND = 0.02
#: A mean over this many times the duration behind the held value has half its error and replaces it.
_SURER = 4.0
#: Longest averaging time of a rate, in s: few requests take long to count, and a load lasts no longer.
_LONGEST_S = 1800.0
#: Duration that the first estimate after a surge stands for, because the rate is still changing.
_FRESH_S = 3.0


class Held(NamedTuple):
    """Held loads and capacities of B fleets, with their statistics; written to."""

    offered_rps: NDArray[np.float64]  #: [B, S]
    replica_rps: NDArray[np.float64]  #: [B, K], best estimate of the capacity of one replica
    least_rps: NDArray[np.float64]  #: [B, K], lower limit of that capacity
    held_s: NDArray[np.float64]  #: [B, S], observed time behind the held rate
    spread: NDArray[np.float64]  #: [B, S], variance of counts over their mean; at least 1
    mean_rps: NDArray[np.float64]  #: [B, S + 2 K], running means of the three arrays above
    mean_s: NDArray[np.float64]  #: [B, S + 2 K], observed time behind these means
    long_rps: NDArray[np.float64]  #: [B, S], mean rate over as long as it takes to know it
    long_s: NDArray[np.float64]  #: [B, S], observed time behind it


class LoadObservation(NamedTuple):
    """Observations and estimates of one tick."""

    offered: NDArray[np.int64]  #: [B, S], requests since the last tick
    before_rps: NDArray[np.float64]  #: [B, S], smoothed, without these requests
    fast_rps: NDArray[np.float64]  #: [B, S], smoothed, with them
    replica_rps: NDArray[np.float64]  #: [B, K]
    least_rps: NDArray[np.float64]  #: [B, K]
    passed_s: NDArray[np.float64]  #: [B], since the last tick
    known_s: NDArray[np.float64]  #: [B], since the first tick


class PlanningPace(NamedTuple):
    """Settings as plain numbers; see ``PlanningOptions`` and ``ControllerOptions.smoothing_s``."""

    smoothing_s: float
    steady_s: float
    spread_s: float
    surge_sigmas: float
    drift_sigmas: float
    worse_sigmas: float


@compiled
def hold(held, observed, pace):
    """Update ``held``, in place."""
    held, observed = borrowed((Held(*held), LoadObservation(*observed)))
    pace = borrowed(PlanningPace(*pace))
    slices, kernels = held.offered_rps.shape[1], held.replica_rps.shape[1]
    for b in range(held.offered_rps.shape[0]):
        for s in range(slices):
            _count(held, observed, pace, b, s)
            _hold_rate(held, observed, pace, b, s)
        for k in range(kernels):
            at = slices + k, slices + kernels + k
            _hold_capacity(held, observed, pace, (held.replica_rps, observed.replica_rps), b, k, at[0], True)
            _hold_capacity(held, observed, pace, (held.least_rps, observed.least_rps), b, k, at[1], False)
            held.least_rps[b, k] = min(held.least_rps[b, k], held.replica_rps[b, k])


@compiled(inline="always")
def _add(held, passed_s, most_s, value, b, i):
    """Add ``value``, observed over the last ``passed_s``, to mean ``i``."""
    _average(held.mean_rps, held.mean_s, passed_s, most_s, value, b, i)


@compiled(inline="always")
def _average(mean, duration_s, passed_s, most_s, value, b, i):
    """Add ``value`` to a ``mean`` over ``duration_s`` so far, at most ``most_s``."""
    age_s = min(duration_s[b, i] + passed_s, most_s)
    mean[b, i] += (value - mean[b, i]) * min(passed_s / age_s, 1.0)
    duration_s[b, i] = age_s


@compiled(inline="always")
def _count(held, observed, pace, b, s):
    """Add the newest requests to both means and to the spread of counts."""
    passed_s, before_rps = observed.passed_s[b], observed.before_rps[b, s]
    rate_rps = observed.offered[b, s] / passed_s
    _add(held, passed_s, pace.steady_s, rate_rps, b, s)
    _average(held.long_rps, held.long_s, passed_s, _knowing_s(held, pace, b, s), rate_rps, b, s)
    if before_rps > _LEAST_RPS:
        variance_ratio = (rate_rps - before_rps) ** 2 * passed_s / before_rps
        share = min(passed_s / pace.spread_s, 1.0)
        held.spread[b, s] = max(1.0, held.spread[b, s] + (variance_ratio - held.spread[b, s]) * share)


@compiled(inline="always")
def _knowing_s(held, pace, b, s):
    """Time in which a rate is known to ``_DRIFT_BAND``, in s: longer the fewer requests come."""
    rate_rps = max(held.mean_rps[b, s], _LEAST_RPS)
    return min(max(held.spread[b, s] / (rate_rps * _DRIFT_BAND**2), pace.steady_s), _LONGEST_S)


@compiled(inline="always")
def _hold_rate(held, observed, pace, b, s):
    """Keep the held rate, or replace it by the fast estimate or by one of the means."""
    fast_rps, held_rps = observed.fast_rps[b, s], held.offered_rps[b, s]
    variance = held.spread[b, s] * max(held_rps, fast_rps)
    memory_s = min(2.0 * pace.smoothing_s, observed.known_s[b] + observed.passed_s[b])
    if abs(fast_rps - held_rps) > pace.surge_sigmas * np.sqrt(variance / memory_s):
        held.offered_rps[b, s] = held.mean_rps[b, s] = fast_rps
        held.mean_s[b, s] = held.held_s[b, s] = min(memory_s, _FRESH_S)
        held.long_rps[b, s], held.long_s[b, s] = fast_rps, held.held_s[b, s]
        return
    more_rps, chance_rps = held.mean_rps[b, s] - held_rps, np.sqrt(variance / held.mean_s[b, s])
    rises = more_rps > max(pace.worse_sigmas * chance_rps, _WORSE_BAND * held_rps)
    falls = -more_rps > max(pace.drift_sigmas * chance_rps, _DRIFT_BAND * held_rps)
    if rises or falls:
        held.long_rps[b, s], held.long_s[b, s] = held.mean_rps[b, s], held.mean_s[b, s]
    if rises or falls or held.long_s[b, s] >= _SURER * held.held_s[b, s]:
        held.offered_rps[b, s], held.held_s[b, s] = held.long_rps[b, s], held.long_s[b, s]


@compiled(inline="always")
def _hold_capacity(held, observed, pace, both, b, k, i, falls):
    """Keep a capacity, or replace it by its newest estimate or by mean ``i``. both: held and newest, [B, K].

    ``falls``: whether a single low estimate counts. The lower limit rests on load that was carried; a moment
    with less load does not disprove it.
    """
    capacity_rps, fast_rps, worse = both[0], both[1][b, k], _WORSE_BAND if falls else _DRIFT_BAND
    held_rps = capacity_rps[b, k]
    _add(held, observed.passed_s[b], pace.steady_s, fast_rps, b, i)
    if _apart(fast_rps, held_rps, 1.0 + _SURGE_BAND) and (falls or fast_rps > held_rps):
        capacity_rps[b, k] = held.mean_rps[b, i] = fast_rps
        held.mean_s[b, i] = observed.passed_s[b]
    elif (
        held.mean_rps[b, i] > held_rps * (1.0 + _DRIFT_BAND) or held.mean_rps[b, i] * (1.0 + worse) < held_rps
    ):
        capacity_rps[b, k] = held.mean_rps[b, i]


@compiled(inline="always")
def _apart(first, second, factor):
    """Whether one value is more than ``factor`` times the other."""
    return first > second * factor or first * factor < second
