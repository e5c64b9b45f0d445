"""Compiled loop of the evidence that one kernel fails more than another; every fleet by itself."""

from __future__ import annotations

from math import log
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.jit import borrowed, compiled
from contracts.telemetry import ProbeOutcome

# Plain integers, because compiled code does not know the enumeration.
_ANSWERED, _FAILED, _REFUSED = (
    int(outcome) for outcome in (ProbeOutcome.ANSWERED, ProbeOutcome.FAILED, ProbeOutcome.REFUSED)
)
#: Odds of a failure over those of the other side that evidence is of: less is not worth a move.
ODDS = 4.0
#: Evidence from which a kernel is at fault: by chance alone once in so many ticks with failures, twelve days.
AT_FAULT = 1e6
#: Evidence below which it is not any more.
SAME = 1e3
#: Evidence is kept up to here, so that it falls as soon as failures are the same.
MOST = 20.0 * AT_FAULT
#: Failures come in bursts as well: what a hung server held fails at once, a queue is late as a whole. So the
#: evidence of one tick is taken up to here: three ticks put nobody at fault, whatever they bring.
MOST_OF_A_TICK = 99.0
#: One tick in so many is such a burst, where nothing fails but in bursts; the clean ones pay for it.
BURST_TICKS = 500.0
#: Ways are counted relative to the first, and rescaled beyond this.
_LARGE = 1e100


class Sides(NamedTuple):
    """What a tick brought of each kernel."""

    ended: NDArray[np.float64]  # [B, K], attempts
    failed: NDArray[np.float64]  # [B, K], of these
    able: NDArray[np.bool_]  # [B, K], it could take traffic of others


class Tried(NamedTuple):
    """Requests and probes of a tick, by replica."""

    answered: NDArray[np.int64]  # [B, R], attempts
    failed: NDArray[np.int64]  # [B, R]
    replica: NDArray[np.int64]  # [B, P], of each probe
    outcome: NDArray[np.int8]  # [B, P], a ``ProbeOutcome``


@compiled
def count_attempts(ended, failed, tried, serving, shares, owner):
    """Into ``ended`` and ``failed`` [B, K], 0 so far: attempts of the ``serving`` [B, R], whole numbers.

    shares: float64 [B, K], of the failed requests those that count. A probe that failed or was refused
    failed as a request would; one that ran out of time may only be late.
    """
    tried = borrowed(Tried(*tried))
    for b in range(serving.shape[0]):
        for r in range(len(owner)):
            if serving[b, r]:
                ended[b, owner[r]] += tried.answered[b, r]
                failed[b, owner[r]] += tried.failed[b, r]
        for k in range(ended.shape[1]):
            failed[b, k] = np.rint(failed[b, k] * shares[b, k])
            ended[b, k] += failed[b, k]
        for p in range(tried.replica.shape[1]):
            r, outcome = tried.replica[b, p], tried.outcome[b, p]
            if serving[b, r]:
                badly = outcome in (_FAILED, _REFUSED)
                ended[b, owner[r]] += badly or outcome == _ANSWERED
                failed[b, owner[r]] += badly


@compiled
def follow_evidence(more, sides):
    """Add a tick to ``more`` [B, K, K + 1]: against each other kernel, and last against all able ones."""
    sides = borrowed(Sides(*sides))
    ended, failed, able = sides.ended, sides.failed, sides.able
    fleets, kernels = ended.shape
    for b in range(fleets):
        if not failed[b].any() and not more[b].any():
            continue
        for k in range(kernels):
            all_ended, all_failed = 0.0, 0.0
            for j in range(kernels):
                if j != k and able[b, j]:
                    all_ended += ended[b, j]
                    all_failed += failed[b, j]
                    _add(more, b, k, j, ended[b, k], failed[b, k], ended[b, j], failed[b, j])
            _add(more, b, k, kernels, ended[b, k], failed[b, k], all_ended, all_failed)


@compiled
def _add(more, b, k, j, ended, failed, other_ended, other_failed):
    """The sum over starts of products of clipped e-values (Huber 1965). Without failures a tick takes back
    what bursts add on average: so much that evidence does not grow by them.
    """
    if ended == 0.0 or other_ended == 0.0 or failed + other_failed + more[b, k, j] == 0.0:
        return
    most = min(odds_ratio(ended, ended, other_ended, 0.0), MOST_OF_A_TICK)
    if failed + other_failed == 0.0:
        more[b, k, j] *= (BURST_TICKS - most) / (BURST_TICKS - 1.0)
        return
    e_value = min(odds_ratio(ended, failed, other_ended, other_failed), most)
    more[b, k, j] = min((more[b, k, j] + 1.0) * e_value, MOST)


@compiled
def odds_ratio(ended, failed, other_ended, other_failed):
    """Likelihood ratio of ``ODDS`` times the odds on the first side over one common rate, given how many
    failed in all: ``ODDS ** failed`` over its mean under the hypergeometric law. Whole numbers.
    """
    drawn = failed + other_failed
    least, most = max(0.0, drawn - other_ended), min(drawn, ended)
    ways, ways_all, tilted_all, shift = 1.0, 1.0, 1.0, 0.0
    tilted, u = 1.0, least
    while u < most:
        ratio = (ended - u) * (drawn - u) / ((u + 1.0) * (other_ended - drawn + u + 1.0))
        ways, tilted, u = ways * ratio, tilted * ratio * ODDS, u + 1.0
        ways_all += ways
        tilted_all += tilted
        if tilted_all > _LARGE:
            tilted, tilted_all, shift = tilted / _LARGE, tilted_all / _LARGE, shift + log(_LARGE)
        if ways_all > _LARGE:
            ways, ways_all, shift = ways / _LARGE, ways_all / _LARGE, shift - log(_LARGE)
    exponent = (failed - least) * log(ODDS) + log(ways_all) - log(tilted_all) - shift
    return np.exp(min(exponent, log(MOST)))
