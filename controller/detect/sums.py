"""Sums of observations of windows and ticks: their excess beyond a limit, and its significance.

Every observation adds to four sums on the last axis of an array; the constants below name their places.

Failures come in bursts: all requests of a server fail at once when it stumbles, however many they are. So for
failures the third sum is the sum of squared counts per tick. It gives the effective number of ticks with
failures (``ticks_of_failures``). A failure rate is beyond its limit only if failures came in more ticks than
the occasional bursts of every healthy server explain (``burst``).

Confidence limits are one-sided. Rates use the exact (Clopper-Pearson) limit in its test form, a binomial tail
through the incomplete beta function; means use Student's t.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import special

from contracts.compiled.contract import CompiledContract
from contracts.compiled.health import excess_of, relative_excess
from contracts.jit import compiled
from contracts.telemetry import Source

#: Observations; sum of their (clipped) values in the metric's unit; sum of squares; those over the threshold.
COUNT, TOTAL, SQUARES, OVER = 0, 1, 2, 3
#: Mean time between bursts of failures of a healthy server, in s; the size of a burst is unknown.
BURST_S = 500.0

#: float64 [..., 4].
Sums = NDArray[np.float64]


def excess_of_sums(sums: Sums, contract: CompiledContract) -> NDArray[np.float64]:
    """``relative_excess`` of the point estimates of ``sums`` [..., C, 4] over their limits, [..., C]."""
    is_rate = contract.is_rate
    value = np.where(is_rate, sums[..., OVER], sums[..., TOTAL]) / np.maximum(sums[..., COUNT], 1.0)
    limit = np.where(is_rate, contract.rate_limit, contract.threshold)
    sense = np.where(is_rate, 1.0, contract.sense)
    return np.asarray(relative_excess(value, limit, sense), dtype=np.float64)


@compiled
def excess_of_cell(cell, is_rate, rate_limit, threshold, sense):
    """``excess_of_sums`` of one cell of sums [4], of a clause with these four numbers."""
    count = max(cell[COUNT], 1.0)
    if is_rate:
        return excess_of(cell[OVER] / count, rate_limit, 1.0)
    return excess_of(cell[TOTAL] / count, threshold, sense)


def beyond_limit(
    sums: Sums, ready: NDArray[np.bool_], contract: CompiledContract
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Cells whose lower confidence limit lies beyond the clause's limit, and the excess there (else 0)."""
    excess = excess_of_sums(sums, contract)
    beyond = ready & (excess > 0.0)
    beyond[beyond] = significant(sums, beyond, contract, contract.alarm_confidence, above=True)
    return beyond, np.where(beyond, excess, 0.0)


def significant(
    sums: Sums, cells: NDArray[np.bool_], contract: CompiledContract, confidence: float, *, above: bool
) -> NDArray[np.bool_]:
    """Significance of each of the ``cells`` bool [B, U, S, C], in their order, by a one-sided limit.

    ``above``: the lower limit lies beyond the clause's limit; else the upper limit lies inside.
    """
    clause = np.nonzero(cells)[-1]
    picked = sums[cells]
    failures = contract.source[clause] == Source.FAILED
    picked[failures, SQUARES] = picked[failures, OVER]  # each attempt has the value 0 or 1
    rate = contract.is_rate[clause]
    answer = np.zeros(len(clause), dtype=np.bool_)
    answer[rate] = _rate_significant(picked[rate], contract.rate_limit[clause[rate]], confidence, above)
    mean = ~rate
    answer[mean] = _mean_significant(picked[mean], clause[mean], contract, confidence, above)
    if above and bool((answer & failures).any()):
        answer &= ~(failures & burst(sums[cells], contract))
    return answer


def ticks_of_failures(sums: Sums) -> NDArray[np.float64]:
    """Effective number of ticks with failures of ``sums`` [..., 4]: if all had as many failures each, [...].

    Kish's effective number of clusters (1965); it equals the number of failures if each came alone.
    """
    over = sums[..., OVER]
    return np.asarray(over * over / np.maximum(np.maximum(sums[..., SQUARES], over), 1e-12))


def burst(sums: Sums, contract: CompiledContract) -> NDArray[np.bool_]:
    """bool [...]: the failures of ``sums`` [..., 4] came in no more ticks than bursts explain.

    A window of a healthy server has more with a probability below 1 - ``alarm_confidence``, whatever the size
    of its bursts.
    """
    return np.asarray(ticks_of_failures(sums) < _least_ticks(contract.window_s, contract.alarm_confidence))


@lru_cache(maxsize=64)
def _least_ticks(window_s: float, confidence: float) -> int:
    """Least number of bursts that a window reaches with a probability below 1 - ``confidence``."""
    least = 1
    while special.pdtrc(least - 1, window_s / BURST_S) >= 1.0 - confidence:
        least += 1
    return least


def _rate_significant(
    sums: Sums, limit: NDArray[np.float64], confidence: float, above: bool
) -> NDArray[np.bool_]:
    """Exact binomial test: P(X >= x) or P(X <= x) at rate ``limit`` is below 1 - confidence."""
    count, over = sums[..., COUNT], sums[..., OVER]
    alpha = 1.0 - confidence
    if above:
        tail = special.betainc(np.maximum(over, 1.0), np.maximum(count - over, 0.0) + 1.0, limit)
        return np.asarray((tail < alpha) & (over > 0.0), dtype=np.bool_)
    tail = (1.0 - limit) ** count  # none over: the most frequent case has a closed form
    some = over > 0.0
    tail[some] = special.betainc(np.maximum(count - over, 1e-9)[some], over[some] + 1.0, 1.0 - limit[some])
    return np.asarray(np.where(limit > 0.0, tail < alpha, over <= 0.0), dtype=np.bool_)


def _mean_significant(
    sums: Sums, clause: NDArray[np.int64], contract: CompiledContract, confidence: float, above: bool
) -> NDArray[np.bool_]:
    """Whether the one-sided t limit of the mean lies beyond (``above``) or inside the clause's limit."""
    count = sums[..., COUNT]
    mean = sums[..., TOTAL] / count
    variance = (
        np.maximum(sums[..., SQUARES] / count - mean * mean, 0.0) * count / np.maximum(count - 1.0, 1.0)
    )
    reach = _t_quantile(np.maximum(count - 1.0, 1.0), confidence) * np.sqrt(variance / count)
    distance = contract.sense[clause] * (mean - contract.threshold[clause])
    enough = count >= 2.0
    return np.asarray(
        enough & ((distance - reach > 0.0) if above else (distance + reach <= 0.0)), dtype=np.bool_
    )


def _t_quantile(freedom: NDArray[np.float64], confidence: float) -> NDArray[np.float64]:
    """Student's t quantile for whole degrees of freedom >= 1, from a table where it reaches."""
    table = _t_table(confidence)
    quantile = table[np.minimum(freedom, len(table) - 1).astype(np.int64)]
    beyond = freedom >= len(table)
    if bool(beyond.any()):
        quantile[beyond] = special.stdtrit(freedom[beyond], confidence)
    return quantile


@lru_cache(maxsize=16)
def _t_table(confidence: float) -> NDArray[np.float64]:
    """Quantiles by degrees of freedom; entry 0 repeats entry 1."""
    return np.asarray(special.stdtrit(np.maximum(np.arange(1024.0), 1.0), confidence))
