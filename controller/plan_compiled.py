"""Compiled loops of the plan: what moved, for what reason, and what is remembered of it; row by row."""

from __future__ import annotations

from numba import njit


@njit(cache=True, error_model="numpy")
def follow_rows(  # type: ignore[no-untyped-def]  # pragma: no cover
    rows, for_capacity, moved, owed, row_moved_s, row_began_s, table, last, wanted, claimed, reason,
    voluntary, was_owed, now_s, rest_s, forced, slowed,
):  # fmt: skip
    """Compare ``table`` [B, S, K + 1] with ``last``; fills all up to ``owed``, brings both times up to date.

    rows: bool [B, S], moved for capacity alone; for_capacity, moved: bool [B], the fleet did so, the table
    changed; owed: bool [B, S]. wanted: the table of who drives; claimed: bool [B, S], which of its rows
    differ for capacity alone, as it says. forced, slowed: bits of ``reason``.
    """
    for b in range(table.shape[0]):
        moved[b], alike = False, True
        for s in range(table.shape[1]):
            changed, left = False, True
            for k in range(table.shape[2]):
                changed |= table[b, s, k] != last[b, s, k]
                left &= wanted[b, s, k] == last[b, s, k]
            other = was_owed[b, s] or not (claimed[b, s] or left)
            rows[b, s] = changed and not (other or (reason[b, s] & forced) != 0)
            owed[b, s] = other and (reason[b, s] & slowed) != 0
            if changed:
                row_moved_s[b, s] = now_s[b]
            if voluntary[b, s] and now_s[b] - row_began_s[b, s] >= rest_s:
                row_began_s[b, s] = now_s[b]
            moved[b] |= changed
            alike &= rows[b, s] == changed
        for_capacity[b] = moved[b] and alike


@njit(cache=True, error_model="numpy")
def turn(in_rotation, moved, quarantined, ejected, was_quarantined, was_ejected):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Who takes traffic, bool [B, R]; ``moved`` [B] also where that is not who did."""
    for b in range(in_rotation.shape[0]):
        for r in range(in_rotation.shape[1]):
            in_rotation[b, r] = not (quarantined[b, r] or ejected[b, r])
            moved[b] |= in_rotation[b, r] == (was_quarantined[b, r] or was_ejected[b, r])
