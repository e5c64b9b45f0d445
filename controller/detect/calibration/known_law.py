"""CUSUM with known laws, exactly: its threshold for an ARL0 and its delay, without simulation.

Observations take finitely many values, so the statistic ``max(0, statistic + log ratio)`` is a Markov
chain. Its expected run length solves a linear system on a grid (Brook and Evans 1972), with what falls
between two grid points shared between them. Delays begin in the law of the statistic of a long healthy
stream that has not alarmed. Tested against ``controller.detect.calibration.simulate``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from controller.detect.streams.classical import binned_shares

Floats = NDArray[np.float64]

#: Points of the grid between 0 and the threshold.
CELLS = 240
#: Log-normal laws: reach in deviations, least share of a step, least value.
_REACH, _LEAST_SHARE, _LEAST_VALUE = 6.0, 1e-12, 1e-9
_CLOSE, _LEAST_LEVEL = 1e-4, 1e-2


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownLaw:
    """Observations of one stream by value. before, after: float64 [n], shares, none of them 0."""

    before: Floats  # [n], shares, none of them 0
    after: Floats  # [n], likewise

    @property
    def log_ratio(self) -> Floats:
        """Log-likelihood ratio of each value, after over before the change."""
        return np.asarray(np.log(self.after / self.before))

    @property
    def information(self) -> float:
        """Kullback-Leibler divergence of after from before, nats per observation."""
        return float((self.after * self.log_ratio).sum())


def binned_law(before: Floats, after: Floats) -> KnownLaw:
    """Law of measured observations, binned as ``streams.classical.binned_cusum`` does it."""
    _, was, is_now = binned_shares(before, after)
    return KnownLaw(before=was, after=is_now)


def lognormal_law(before: Floats, after: Floats, cells: int = 96) -> KnownLaw:
    """Law of positive observations: log-normal, fitted to each sample, on ``cells`` equal log steps.

    Where the samples do not overlap, the first observation decides; smoothed bins cannot do that.
    """
    fits = [_fitted(values) for values in (before, after)]
    low = min(mean - _REACH * deviation for mean, deviation in fits)
    high = max(mean + _REACH * deviation for mean, deviation in fits)
    edges = np.linspace(low, high, cells + 1)[1:-1]
    shares = []
    for mean, deviation in fits:
        below = ndtr((edges - mean) / deviation)
        share = np.maximum(np.diff(np.concatenate([[0.0], below, [1.0]])), _LEAST_SHARE)
        shares.append(share / share.sum())
    return KnownLaw(before=shares[0], after=shares[1])


def _fitted(values: Floats) -> tuple[float, float]:
    """Mean and deviation of the logarithm; the latter at least a tenth, because samples are small."""
    logs = np.log(np.maximum(values, _LEAST_VALUE))
    return float(logs.mean()), max(float(logs.std(ddof=1)), 0.1)


def mixed(laws: list[KnownLaw]) -> KnownLaw:
    """Observations that come from every law in turn, each known for what it is."""
    share = 1.0 / len(laws)
    return KnownLaw(
        before=share * np.concatenate([law.before for law in laws]),
        after=share * np.concatenate([law.after for law in laws]),
    )


def delay(law: KnownLaw, arl0: float) -> float:
    """Mean delay of CUSUM in observations at ``arl0``: E[T - n | T > n] for late n, at least 1."""
    level = threshold(law, arl0)
    healthy = _transitions(law.log_ratio, law.before, level)
    after = _transitions(law.log_ratio, law.after, level)
    return float(_settled(healthy) @ _lengths(after))


def threshold(law: KnownLaw, arl0: float) -> float:
    """Threshold whose mean run length under the healthy law is ``arl0`` observations."""
    if not 1.0 < arl0 < 1e15:
        raise ValueError(f"expected an ARL0 between 1 and 1e15 observations, got {arl0}")
    # At threshold h the mean run length is at least e^h (Lorden), so the root lies below; laws that hardly
    # overlap have it at once, whatever the threshold.
    low, high = _LEAST_LEVEL, math.log(arl0) + 1.0
    if run_length(law, low) >= arl0:
        return low
    while high - low > _CLOSE * high:
        middle = 0.5 * (low + high)
        if run_length(law, middle) < arl0:
            low = middle
        else:
            high = middle
    return high


def run_length(law: KnownLaw, level: float) -> float:
    """Mean run length in observations from 0 under the healthy law."""
    return float(_lengths(_transitions(law.log_ratio, law.before, level))[0])


def _transitions(log_ratio: Floats, shares: Floats, level: float) -> Floats:
    """Chances [CELLS, CELLS] to go from one grid point to another without an alarm."""
    start = np.arange(CELLS)
    place = np.maximum(start + (log_ratio * (CELLS / level))[:, None], 0.0)
    lower = np.floor(np.minimum(place, CELLS)).astype(np.int64)
    above = np.minimum(place, CELLS) - lower
    weight = np.broadcast_to(shares[:, None], place.shape)
    moves = np.zeros(CELLS * (CELLS + 2))
    row = np.broadcast_to(start * (CELLS + 2), place.shape)
    for cell, part in ((lower, 1.0 - above), (lower + 1, above)):
        moves += np.bincount((row + cell).ravel(), (weight * part).ravel(), minlength=moves.size)
    return np.asarray(moves.reshape(CELLS, CELLS + 2)[:, :CELLS])


def _lengths(moves: Floats) -> Floats:
    """Mean number of observations to the alarm from each grid point, [CELLS]; inf: it never comes."""
    try:
        lengths = np.linalg.solve(np.eye(CELLS) - moves, np.ones(CELLS))
    except np.linalg.LinAlgError:
        return np.full(CELLS, np.inf)
    return np.where(lengths < 1.0 - 1e-6, np.inf, lengths)


def _settled(moves: Floats) -> Floats:
    """Law of the statistic of a long stream without an alarm, [CELLS]."""
    share = np.zeros(CELLS)
    share[0] = 1.0
    for _ in range(2000):
        later = share @ moves
        later /= later.sum()
        if np.abs(later - share).max() < 1e-12:
            break
        share = later
    return np.asarray(later)
