"""What a switch episode is: the law by which the supervisor counts as it goes and scoring afterwards.

Per slice a *row episode* opens when the row of the table is more than ``SWITCH_DISTANCE`` (half L1) from its
last settled value, and closes once it has stayed within ``SWITCH_DISTANCE`` of one value for ``SETTLE_S``.
The law stands here in two forms that a test compares: ``opens_episode`` takes one row after the other, by
instants; ``row_spans`` reads a whole record, by rows, and looks only at those that changed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.jit import compiled

#: Half L1 beyond which a row has left a value.
SWITCH_DISTANCE = 0.05
#: So long a row stays near one value until it has settled there.
SETTLE_S = 60.0


class RowMemory(NamedTuple):
    """What is known of the rows of B fleets so far; changed in place."""

    followed: NDArray[np.float64]  #: [B, S, K + 1], the last row
    settled: NDArray[np.float64]  #: [B, S, K + 1], where it settled last
    anchor: NDArray[np.float64]  #: [B, S, K + 1], what it stays near since ``anchored_at_s``
    anchored_at_s: NDArray[np.float64]  #: [B, S]
    moving: NDArray[np.bool_]  #: [B, S], an episode is open


def half_l1(left: NDArray[np.floating], right: NDArray[np.floating]) -> NDArray[np.float64]:
    """Half the L1 distance over the last axis: the share of traffic that differs."""
    out: NDArray[np.float64] = 0.5 * np.abs(left.astype(np.float64) - right).sum(axis=-1)
    return out


@compiled(forceinline=True)
def row_distance(left, right):
    """``half_l1`` of two rows, for compiled code; weights are added in their order."""
    total = 0.0
    for k in range(left.shape[0]):
        total += abs(left[k] - right[k])
    return 0.5 * total


@compiled
def begin_row(memory, b, s, row, now_s):
    """Row ``s`` of fleet ``b`` has settled at ``row``; nothing is open."""
    memory.followed[b, s] = row
    memory.settled[b, s] = row
    memory.anchor[b, s] = row
    memory.anchored_at_s[b, s] = now_s
    memory.moving[b, s] = False


@compiled
def opens_episode(memory, b, s, row, now_s):
    """Take ``row``, in force from ``now_s`` on, into row ``s`` of fleet ``b``; whether an episode opens.

    ``memory.followed`` is still the row before.
    """
    if memory.moving[b, s] and now_s - memory.anchored_at_s[b, s] >= SETTLE_S:
        memory.settled[b, s] = memory.followed[b, s]
        memory.moving[b, s] = False
    if memory.moving[b, s]:
        if row_distance(row, memory.anchor[b, s]) > SWITCH_DISTANCE:
            memory.anchor[b, s] = row
            memory.anchored_at_s[b, s] = now_s
        return False
    if row_distance(row, memory.settled[b, s]) <= SWITCH_DISTANCE:
        return False
    memory.moving[b, s] = True
    memory.anchor[b, s] = row
    memory.anchored_at_s[b, s] = now_s
    return True


def row_spans(rows: NDArray[np.float32], settle_rows: int) -> list[tuple[int, int, NDArray[np.float32]]]:
    """(opened, closed, settled value before) of one slice's rows [T, K + 1].

    The first settled value is row 1, the table after the controller's first decision: initial placement is
    no switch.
    """
    spans = []
    placed = rows[min(1, len(rows) - 1)]
    settled, anchor, opened, anchored_at = placed, placed, -1, 0
    changes = np.flatnonzero((rows[1:] != rows[:-1]).any(axis=1)) + 1
    for row in [*changes, len(rows) + settle_rows]:
        if opened >= 0 and row - anchored_at >= settle_rows:
            spans.append((opened, min(anchored_at + settle_rows, len(rows)), settled))
            settled, opened = rows[min(row, len(rows)) - 1], -1
        if row >= len(rows):
            break
        if opened < 0 and half_l1(rows[row], settled) > SWITCH_DISTANCE:
            opened, anchor, anchored_at = int(row), rows[row], int(row)
        elif opened >= 0 and half_l1(rows[row], anchor) > SWITCH_DISTANCE:
            anchor, anchored_at = rows[row], int(row)
    return spans
