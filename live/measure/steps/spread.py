"""Uncertainty of a fit to timed requests: how much the result would change if the measurement were repeated.

Every kind of work was timed in several consecutive blocks. Its typical time is the median over the blocks,
which is hardly affected by a burst of other load in fewer than half of them. Two effects make a repeated
measurement differ. First, times scatter within the measurement: neighbouring blocks are joined to stretches,
so that an effect lasting several blocks counts once, and the stretches are resampled with replacement.
Second, the whole server is slower in one stretch than in another: the spread of that level is a random
effect. A measurement minutes later draws it anew, so it is not divided by the number of stretches. Drift that
is slower than the whole measurement cannot be observed in it; 2 % are assumed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contracts.rng import stream

Floats = NDArray[np.float64]

#: Fewest blocks from which a spread is estimated.
LEAST_BLOCKS = 3
_MOST_STRETCHES = 8
#: Assumed drift of a server's level that is slower than a measurement.
_UNSEEN_RATIO = 0.02
_DRAWS = 200
#: Median absolute deviation -> standard deviation of a normal distribution.
_BY_MAD = 1.4826
#: Quantiles one standard deviation below and above the median.
_ONE_SIGMA = (0.1587, 0.8413)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """How far the coefficients of a server's step times are from certain, and how long it was looked at."""

    covariance: Floats  # [P, P], of the coefficients, the server's own level between stretches included
    stretches: int


def typical_ms(blocks: Floats) -> Floats:
    """Typical time of every kind [kinds] from its times in all blocks [blocks, kinds], ms."""
    return np.asarray(np.median(blocks, axis=0))


def spread_of(blocks: Floats, coefficients: Floats, fit: Callable[[Floats], Floats]) -> Spread | None:
    """Spread of ``coefficients`` [P]; None for fewer than ``LEAST_BLOCKS`` ``blocks`` [blocks, kinds].

    ``fit`` maps typical times [n, kinds] to coefficients of any sign [n, P].
    """
    if len(blocks) < LEAST_BLOCKS:
        return None
    parts = np.array_split(np.arange(len(blocks)), min(_MOST_STRETCHES, len(blocks)))
    level = _level_ratio(blocks, parts)
    within = _between_draws(blocks, parts, fit)
    return Spread(
        covariance=within + level**2 * np.outer(coefficients, coefficients),
        stretches=len(parts),
    )


def _level_ratio(blocks: Floats, parts: list[NDArray[np.int64]]) -> float:
    """Spread of the stretches' levels; robust against a single outlying stretch."""
    typical = typical_ms(blocks)
    levels = np.array([np.median(np.log(typical_ms(blocks[part]) / typical)) for part in parts])
    low, high = np.quantile(levels, _ONE_SIGMA)
    by_mad = _BY_MAD * np.median(np.abs(levels - np.median(levels)))
    return math.hypot(max(by_mad, (high - low) / 2.0), _UNSEEN_RATIO)


def _between_draws(blocks: Floats, parts: list[NDArray[np.int64]], fit: Callable[[Floats], Floats]) -> Floats:
    """Covariance of the coefficients over stretches resampled with replacement."""
    count = len(parts)
    draws = stream(0, "step-spread").integers(count, size=(_DRAWS, count))
    typical = [typical_ms(blocks[np.concatenate([parts[one] for one in draw])]) for draw in draws]
    found = fit(np.array(typical))
    return np.asarray(np.atleast_2d(np.cov(found.T)) * count / (count - 1))
