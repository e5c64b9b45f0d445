"""Sums of observations, as windows and ticks keep them, and how far they lie beyond a clause's limit.

Every observation adds to four sums on the last axis of an array: their names are the places below.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.contract import CompiledContract
from contracts.jit import compiled

#: Observations; sum of their (clipped) values in the metric's unit; sum of squares; those over the threshold.
COUNT, TOTAL, SQUARES, OVER = 0, 1, 2, 3

#: float64 [..., 4].
Sums = NDArray[np.float64]


def relative_excess(sums: Sums, contract: CompiledContract) -> NDArray[np.float64]:
    """How far the point estimates of ``sums`` [..., C, 4] lie beyond the limit, as a share of it, [..., C].

    Negative inside. A limit of 0 has no relative scale: there the excess is absolute.
    """
    count = np.maximum(sums[..., COUNT], 1.0)
    rate = sums[..., OVER] / count - contract.rate_limit
    mean = contract.sense * (sums[..., TOTAL] / count - contract.threshold)
    limit = np.where(contract.is_rate, contract.rate_limit, np.abs(contract.threshold))
    distance = np.where(contract.is_rate, rate, mean)
    return np.asarray(distance / np.where(limit > 0.0, limit, 1.0), dtype=np.float64)


@compiled
def relative_excess_of(cell, is_rate, rate_limit, threshold, sense):
    """``relative_excess`` of one cell of sums [4], of a clause with these four numbers."""
    count = max(cell[COUNT], 1.0)
    if is_rate:
        distance, limit = cell[OVER] / count - rate_limit, rate_limit
    else:
        distance, limit = sense * (cell[TOTAL] / count - threshold), abs(threshold)
    return distance / (limit if limit > 0.0 else 1.0)
