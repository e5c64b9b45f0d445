"""Whether anything is in alarm: a look at all cells of a unit at once, which mostly spares a look at each."""

from __future__ import annotations

from numba import njit

from contracts.lent import lent


@njit(cache=True, error_model="numpy")
def by_cell(flags):  # type: ignore[no-untyped-def]  # pragma: no cover
    """``flags`` bool [B, U, S, C] with slices and clauses on one axis, as ``some_of`` reads them."""
    return lent(flags).reshape((flags.shape[0], flags.shape[1], flags.shape[2] * flags.shape[3]))


@njit(cache=True, error_model="numpy")
def some_of(cells, b, u):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Any of ``cells[b, u]`` [S * C] holds; faster than to stop at the first, or to make a view."""
    found = False
    for x in range(cells.shape[2]):
        found |= cells[b, u, x]
    return found
