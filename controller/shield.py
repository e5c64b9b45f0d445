"""The shield: every proposal passes here, learned or not, and comes out allowed.

Allowed means: no weight on a kernel whose hard clause is violated on that slice, none on a kernel without
a replica in rotation, no emptied row while a certified kernel lives, finite weights >= 0 that sum to 1.
An allowed table comes back untouched, bit for bit, and shielding twice is shielding once. The one
exception is written in the contract: where no certified kernel lives, a row that would be empty is shed or
served by the known-good kernel.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from contracts.compiled import CompiledContract

Table = NDArray[np.float64]

#: Rows whose weights sum to 1 within this are left as they are.
_SUM_SLACK = 1e-9


def shield(
    table: Table, hard_violated: NDArray[np.bool_], certified: NDArray[np.bool_],
    health: NDArray[np.float64], ready: NDArray[np.int64], known_good: int, contract: CompiledContract,
) -> Table:  # fmt: skip
    """The allowed table next to ``table`` float64 [B, S, K + 1].

    hard_violated, certified: bool [B, K, S]; health: float64 [B, K, S]; ready: int64 [B, K], replicas in
    rotation. Weight taken from a masked kernel goes to the row's other kernels in proportion; an emptied
    row goes to the best certified kernel (known-good first, then the healthiest).
    """
    safe = np.array(table, dtype=np.float64)
    _shield(safe, hard_violated, certified, health, ready, known_good, contract.shed_when_uncertified)
    return safe


def normalise(table: Table, last: Table) -> Table:
    """``table`` with rows that sum to 1; an unusable row (NaN, negative or no weight) becomes ``last``'s."""
    total = table.sum(axis=2)
    usable = np.isfinite(table).all(axis=2) & (table >= 0.0).all(axis=2) & (total > 0.0)
    exact = np.abs(total - 1.0) <= _SUM_SLACK
    if bool((usable & exact).all()):
        return table
    scaled = table / np.where(usable, total, 1.0)[:, :, None]
    kept = np.where(exact[:, :, None], table, scaled)
    return np.where(usable[:, :, None], kept, last)


@njit(cache=True)
def _shield(table, hard_violated, certified, health, ready, known_good, shed):  # type: ignore[no-untyped-def]  # pragma: no cover
    fleets, slices, columns = table.shape
    for b in range(fleets):
        for s in range(slices):
            kept, removed = 0.0, 0.0
            for k in range(columns - 1):
                if hard_violated[b, k, s] or ready[b, k] <= 0:
                    removed += table[b, s, k]
                else:
                    kept += table[b, s, k]
            if kept > 0.0:
                if removed > 0.0:
                    _spread(table[b, s], hard_violated[b, :, s], ready[b], kept, removed)
                continue
            refuge = _refuge(
                hard_violated[b, :, s], certified[b, :, s], health[b, :, s], ready[b], known_good
            )
            if refuge < 0 and not shed and ready[b, known_good] > 0:
                refuge = known_good
            table[b, s, :] = 0.0
            table[b, s, refuge if refuge >= 0 else columns - 1] = 1.0


@njit(cache=True)
def _spread(row, hard_violated, ready, kept, removed):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Zero the masked kernels and share their weight over the others in proportion."""
    for k in range(len(row) - 1):
        if hard_violated[k] or ready[k] <= 0:
            row[k] = 0.0
        else:
            row[k] *= (kept + removed) / kept


@njit(cache=True)
def _refuge(hard_violated, certified, health, ready, known_good):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Best certified kernel that lives, or -1."""
    best = -1
    for k in range(len(ready)):
        if hard_violated[k] or not certified[k] or ready[k] <= 0:
            continue
        if k == known_good:
            return k
        if best < 0 or health[k] < health[best]:
            best = k
    return best
