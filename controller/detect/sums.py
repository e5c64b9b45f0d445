"""Sums of observations, as windows and ticks keep them, and how far they lie beyond a clause's limit.

Every observation adds to four sums on the last axis of an array: their names are the places below.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.contract import CompiledContract
from contracts.compiled.health import excess_of, relative_excess
from contracts.jit import compiled

#: Observations; sum of their (clipped) values in the metric's unit; sum of squares; those over the threshold.
COUNT, TOTAL, SQUARES, OVER = 0, 1, 2, 3

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
