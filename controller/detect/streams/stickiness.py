"""Whether ranks may be used: does a reference sample, in its order of time, look exchangeable?

Ranks ask for exchangeable observations. What public endpoints answer often is not: a few exact values, one
per host behind the name, that stay for hours, drift with the load, or change every midnight because a
template holds the date. Ranked, the first observations of another host are all extreme, and the run length to
a false alarm is no longer what was declared. Then the distance form (``distance``) is to be used.

Two things are asked of the order in time: do successive ranks depend on each other (the rank form of von
Neumann's ratio, Bartels 1982), and do ranks of blocks differ in the mean (Kruskal and Wallis 1952)? The
smallest of their p-values is compared with that of random orders of the same sample, which is exact for every
law, ties and all. Of a sample of one value nothing can be said. The answer counts for half as many
observations as the sample has: on longer times it has seen too little.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import chdtrc, ndtr
from scipy.stats import rankdata

from contracts.rng import stream
from controller.detect.streams.protocol import Floats

#: Numbers of blocks in time whose mean ranks are compared.
BLOCKS: tuple[int, ...] = (2, 4, 10)
#: Share of exchangeable reference samples that are refused.
LEVEL = 0.05
#: Random orders that the one observed is compared with.
ORDERS = 199
#: Observations that a reference sample needs.
LEAST = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Stickiness:
    """Result of the tests on the order of a reference sample."""

    #: Of exchangeability; 0 for a sample of one value.
    p_value: float
    #: Correlation of successive ranks; NaN for a sample of one value.
    correlation: float
    #: Different values in the sample.
    values: int
    #: Observations for which the answer counts.
    horizon: int

    @property
    def may_rank(self) -> bool:
        """Whether ranks in this reference sample keep their guarantee for ``horizon`` observations."""
        return self.p_value >= LEVEL

    @property
    def reason(self) -> str:
        """Reason why ranks may not be used; empty where they may."""
        if self.values == 1:
            return "the reference sample holds one value only, so nothing is known of how it changes"
        if not self.may_rank:
            return f"successive observations are not exchangeable (p = {self.p_value:.2g})"
        return ""


def stickiness(reference: Floats) -> Stickiness:
    """Judge ``reference`` float64 [n], in the order in which it was observed; NaN are left out.

    Raises ValueError below ``LEAST`` observations.
    """
    healthy = reference[~np.isnan(reference)]
    if healthy.size < LEAST:
        raise ValueError(f"expected a reference sample of at least {LEAST} observations, got {healthy.size}")
    values, horizon = int(np.unique(healthy).size), healthy.size // 2
    if values == 1:
        return Stickiness(p_value=0.0, correlation=math.nan, values=1, horizon=horizon)
    ranks = rankdata(healthy)
    ranks -= ranks.mean()
    orders = stream(0, "stickiness").permuted(np.tile(ranks, (ORDERS, 1)), axis=1)
    least = _smallest_p_value(np.concatenate([ranks[None], orders]))
    return Stickiness(
        p_value=float(np.mean(least <= least[0])),
        correlation=float(_correlation(ranks[None])[0]),
        values=values,
        horizon=horizon,
    )


def _smallest_p_value(ranks: Floats) -> Floats:
    """Smaller p-value of both tests, for large samples, of each order in ``ranks`` [orders, n], centred."""
    size = ranks.shape[1]
    least = ndtr(-(_correlation(ranks) + 1.0 / size) * math.sqrt(size))
    variance = float((ranks[0] * ranks[0]).sum()) / (size - 1)
    for count in BLOCKS:
        blocks = np.array_split(ranks, count, axis=1)
        between = sum(block.shape[1] * block.mean(axis=1) ** 2 for block in blocks)
        least = np.minimum(least, chdtrc(count - 1, between / variance))
    return np.asarray(least)


def _correlation(ranks: Floats) -> Floats:
    """Correlation [orders] of successive ranks [orders, n], centred."""
    return np.asarray((ranks[:, 1:] * ranks[:, :-1]).sum(axis=1) / (ranks * ranks).sum(axis=1))
