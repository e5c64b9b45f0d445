"""Tables of weights as policies hand them over: rows that sum to 1, whatever was proposed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contracts.jit import compiled

#: float64 [B, S, K + 1], share of each slice on each kernel; the last column is shed.
Table = NDArray[np.float64]

#: Rows whose weights sum to 1 within this are left as they are.
_SUM_SLACK = 1e-9


def normalise(table: Table, last: Table) -> Table:
    """``table`` with rows that sum to 1; an unusable row (NaN, negative or no weight) becomes ``last``'s."""
    if _is_normal(np.ascontiguousarray(table, dtype=np.float64)):
        return table
    total = table.sum(axis=2)
    usable = np.isfinite(table).all(axis=2) & (table >= 0.0).all(axis=2) & (total > 0.0)
    exact = np.abs(total - 1.0) <= _SUM_SLACK
    scaled = table / np.where(usable, total, 1.0)[:, :, None]
    kept = np.where(exact[:, :, None], table, scaled)
    return np.where(usable[:, :, None], kept, last)


@compiled
def _is_normal(table):
    """Whether all rows are usable and sum to 1."""
    for b in range(table.shape[0]):
        for s in range(table.shape[1]):
            total = 0.0
            for k in range(table.shape[2]):
                if not table[b, s, k] >= 0.0:
                    return False
                total += table[b, s, k]
            if not abs(total - 1.0) <= _SUM_SLACK:
                return False
    return True
