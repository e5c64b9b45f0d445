"""Compiled loops of the plan, row by row: moves, their reasons, and their record in the state."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.jit import borrowed, compiled
from contracts.telemetry import ReplicaState
from controller.shield.records import CAPACITY, DWELL, HARD, NO_TARGET, POOL, SLEW

#: A plain integer, because compiled code does not know the enumeration.
READY = int(ReplicaState.READY)
#: Reasons of moves that the policy did not choose, and of moves that are slowed.
_FORCED, _SLOWED = HARD | POOL | NO_TARGET, SLEW | DWELL
#: Reasons of the minimum share of a slice on full kernels, which counts as a move for capacity as well.
_LEAST_SERVED = POOL | CAPACITY


class TableChange(NamedTuple):
    """A change of the table in force, of B fleets: the old, the new and the wanted one, with reasons."""

    table: NDArray[np.float64]  #: [B, S, K + 1], allowed
    last: NDArray[np.float64]  #: [B, S, K + 1], in force until now
    wanted: NDArray[np.float64]  #: [B, S, K + 1], by the driving policy
    claimed: NDArray[np.bool_]  #: [B, S], rows that differ for capacity alone, as that policy reports
    reason: NDArray[np.int64]  #: [B, S], bits of ``ShieldReason``
    voluntary: NDArray[np.bool_]  #: [B, S]
    was_pending: NDArray[np.bool_]  #: [B, S]
    now_s: NDArray[np.float64]  #: [B]
    rest_s: float  #: least time from the start of one voluntary move to the start of the next


class Followed(NamedTuple):
    """Result of a change, of B fleets: all fields are filled in; instants are only updated."""

    rows: NDArray[np.bool_]  #: [B, S], moved for capacity alone
    for_capacity: NDArray[np.bool_]  #: [B], the table changed for capacity alone
    moved: NDArray[np.bool_]  #: [B], the table changed
    pending: NDArray[np.bool_]  #: [B, S], a move that was not for capacity alone is not done yet
    row_moved_at_s: NDArray[np.float64]  #: [B, S]
    row_move_began_at_s: NDArray[np.float64]  #: [B, S], of a voluntary move


@compiled
def follow_rows(change, followed):
    """Fill in ``followed`` for ``change``, both as plain tuples, row by row."""
    change, followed = borrowed((TableChange(*change), Followed(*followed)))
    for b in range(change.table.shape[0]):
        now_s, moved, alike = change.now_s[b], False, True
        for s in range(change.table.shape[1]):
            changed, left = False, True
            for k in range(change.table.shape[2]):
                changed |= change.table[b, s, k] != change.last[b, s, k]
                left &= change.wanted[b, s, k] == change.last[b, s, k]
            reason, other = (
                change.reason[b, s],
                change.was_pending[b, s] or not (change.claimed[b, s] or left),
            )
            forced = (reason & _FORCED) != 0 and (reason & (_FORCED | CAPACITY)) != _LEAST_SERVED
            followed.rows[b, s] = changed and not (other or forced)
            followed.pending[b, s] = other and (reason & _SLOWED) != 0
            if changed:
                followed.row_moved_at_s[b, s] = now_s
            rested = now_s - followed.row_move_began_at_s[b, s] >= change.rest_s
            if change.voluntary[b, s] and rested:
                followed.row_move_began_at_s[b, s] = now_s
            moved |= changed
            alike &= followed.rows[b, s] == changed
        followed.moved[b] = moved
        followed.for_capacity[b] = moved and alike


@compiled
def count_ready(count, replica_state, quarantined, ejected, owner):
    """Add to ``count`` int64 [B, K] the replicas [B, R] that are ready, neither quarantined nor ejected."""
    for b in range(count.shape[0]):
        for r in range(len(owner)):
            count[b, owner[r]] += replica_state[b, r] == READY and not (quarantined[b, r] or ejected[b, r])


@compiled
def turn(in_rotation, moved, quarantined, ejected, was_quarantined, was_ejected):
    """Fill ``in_rotation`` bool [B, R], and set ``moved`` [B] where it differs from the rotation before."""
    for b in range(in_rotation.shape[0]):
        for r in range(in_rotation.shape[1]):
            in_rotation[b, r] = not (quarantined[b, r] or ejected[b, r])
            moved[b] |= in_rotation[b, r] == (was_quarantined[b, r] or was_ejected[b, r])
