"""A table while replicas come back: their kernels carry less, and nobody loses the last server."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def held_back(
    table: NDArray[np.float64],
    serving: NDArray[np.bool_],
    shares: NDArray[np.float64],
    owner: NDArray[np.int64],
) -> NDArray[np.float64]:
    """``table`` [S, K + 1] of one fleet with the shares of replicas that come back.

    serving: bool [R], in rotation and reachable; shares: [R], 0..1, of the traffic of a whole replica. A
    kernel with a whole replica keeps its row: its others carry it. One without carries at most the sum of its
    shares, and the rest of the row goes to the row's other kernels in proportion. A row that nobody else can
    carry stays as it is: a replica that is not verified serves before nobody does.
    """
    kernels = table.shape[1] - 1
    there = np.bincount(owner[serving], minlength=kernels) > 0
    carried = np.bincount(owner[serving], shares[serving], minlength=kernels)
    factor = np.where(there, np.minimum(carried, 1.0), 0.0)
    kept = table[:, :-1] * factor
    whole, left = table[:, :-1].sum(axis=1), kept.sum(axis=1)
    found = np.array(table, dtype=np.float64)
    able = left > 0.0
    found[able, :-1] = kept[able] * (whole[able] / left[able])[:, None]
    return found
