"""Compiled loops of what moves are planned against; every fleet by itself."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.jit import borrowed, compiled

#: Rates below this are none, in requests per second.
_LEAST_RPS = 1e-6
#: Shares by which a mean and a single estimate must differ from what is held. A fleet that is planned a tenth
#: too full still answers in time, and one that is planned a twentieth too full does not notice.
_DRIFT_BAND, _SURGE_BAND = 0.05, 0.1
#: The first of these where the mean tells worse news than is held: too full is late, too empty is not.
_WORSE_BAND = 0.02
#: A mean over so many times as long as what is held stands on is twice as sure, and takes its place.
_SURER = 4.0
#: Time that the first estimate after a surge counts as: it is on its way still.
_FRESH_S = 3.0


class Held(NamedTuple):
    """What is planned against, of B fleets, and what it stands on; written to."""

    offered_rps: NDArray[np.float64]  #: [B, S]
    replica_rps: NDArray[np.float64]  #: [B, K], best estimate of what one replica carries
    least_rps: NDArray[np.float64]  #: [B, K], lower limit of the same
    held_s: NDArray[np.float64]  #: [B, S], time that the held rate stands on
    spread: NDArray[np.float64]  #: [B, S], variance of counts over their mean; at least 1
    mean_rps: NDArray[np.float64]  #: [B, S + 2 K], of each of the three above over the newest time
    mean_s: NDArray[np.float64]  #: [B, S + 2 K], time that this mean stands on


class Seen(NamedTuple):
    """What is known in this tick."""

    offered: NDArray[np.int64]  #: [B, S], requests since the tick before
    before_rps: NDArray[np.float64]  #: [B, S], smoothed, without them
    fast_rps: NDArray[np.float64]  #: [B, S], smoothed, with them
    replica_rps: NDArray[np.float64]  #: [B, K]
    least_rps: NDArray[np.float64]  #: [B, K]
    passed_s: NDArray[np.float64]  #: [B], since the tick before
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
def hold(held, seen, pace):
    """Bring ``held`` up to date, fleet by fleet."""
    held, seen = borrowed((Held(*held), Seen(*seen)))
    pace = borrowed(PlanningPace(*pace))
    slices, kernels = held.offered_rps.shape[1], held.replica_rps.shape[1]
    for b in range(held.offered_rps.shape[0]):
        for s in range(slices):
            _count(held, seen, pace, b, s)
            _hold_rate(held, seen, pace, b, s)
        for k in range(kernels):
            at = slices + k, slices + kernels + k
            _hold_capacity(held, seen, pace, (held.replica_rps, seen.replica_rps), b, k, at[0], True)
            _hold_capacity(held, seen, pace, (held.least_rps, seen.least_rps), b, k, at[1], False)
            held.least_rps[b, k] = min(held.least_rps[b, k], held.replica_rps[b, k])


@compiled(inline="always")
def _add(held, passed_s, most_s, value, b, i):
    """Take ``value`` of the newest ``passed_s`` into mean ``i``."""
    age_s = min(held.mean_s[b, i] + passed_s, most_s)
    held.mean_rps[b, i] += (value - held.mean_rps[b, i]) * min(passed_s / age_s, 1.0)
    held.mean_s[b, i] = age_s


@compiled(inline="always")
def _count(held, seen, pace, b, s):
    """Take the newest requests into the mean and into the spread of counts."""
    passed_s, before_rps = seen.passed_s[b], seen.before_rps[b, s]
    rate_rps = seen.offered[b, s] / passed_s
    _add(held, passed_s, pace.steady_s, rate_rps, b, s)
    if before_rps > _LEAST_RPS:
        found = (rate_rps - before_rps) ** 2 * passed_s / before_rps
        share = min(passed_s / pace.spread_s, 1.0)
        held.spread[b, s] = max(1.0, held.spread[b, s] + (found - held.spread[b, s]) * share)


@compiled(inline="always")
def _hold_rate(held, seen, pace, b, s):
    """Keep the held rate, or take over the fast estimate or the mean."""
    fast_rps, held_rps = seen.fast_rps[b, s], held.offered_rps[b, s]
    variance = held.spread[b, s] * max(held_rps, fast_rps)
    memory_s = min(2.0 * pace.smoothing_s, seen.known_s[b] + seen.passed_s[b])
    if abs(fast_rps - held_rps) > pace.surge_sigmas * np.sqrt(variance / memory_s):
        held.offered_rps[b, s] = held.mean_rps[b, s] = fast_rps
        held.mean_s[b, s] = held.held_s[b, s] = min(memory_s, _FRESH_S)
        return
    more_rps, chance_rps = held.mean_rps[b, s] - held_rps, np.sqrt(variance / held.mean_s[b, s])
    rises = more_rps > max(pace.worse_sigmas * chance_rps, _WORSE_BAND * held_rps)
    falls = -more_rps > max(pace.drift_sigmas * chance_rps, _DRIFT_BAND * held_rps)
    if rises or falls or held.mean_s[b, s] >= _SURER * held.held_s[b, s]:
        held.offered_rps[b, s], held.held_s[b, s] = held.mean_rps[b, s], held.mean_s[b, s]


@compiled(inline="always")
def _hold_capacity(held, seen, pace, both, b, k, i, falls):
    """Keep a capacity, or take over its newest estimate or the mean ``i``. both: held and newest, [B, K].

    ``falls``: whether a single low estimate counts. A lower limit stands on what was carried, which a moment
    with less to carry does not disprove.
    """
    kept, fast_rps, worse = both[0], both[1][b, k], _WORSE_BAND if falls else _DRIFT_BAND
    held_rps = kept[b, k]
    _add(held, seen.passed_s[b], pace.steady_s, fast_rps, b, i)
    if _apart(fast_rps, held_rps, 1.0 + _SURGE_BAND) and (falls or fast_rps > held_rps):
        kept[b, k] = held.mean_rps[b, i] = fast_rps
        held.mean_s[b, i] = seen.passed_s[b]
    elif (
        held.mean_rps[b, i] > held_rps * (1.0 + _DRIFT_BAND) or held.mean_rps[b, i] * (1.0 + worse) < held_rps
    ):
        kept[b, k] = held.mean_rps[b, i]


@compiled(inline="always")
def _apart(one, other, factor):
    """Whether one is more than ``factor`` times the other."""
    return one > other * factor or one * factor < other
