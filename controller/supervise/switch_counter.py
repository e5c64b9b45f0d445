"""Counts that the supervisor keeps of a policy: moves, turns and stays of every slice, tick by tick.

A *move* is the opening of a switch episode as ``contracts.scoring.switch_law`` defines it. A *turn* is a sign
change: a weight that rose falls by more than 0.05 from its highest value, or the other way round. Several
kernels of one row that turn in one tick are one turn. A *stay* lasts from a row's last change to its turn.
Moves that the shield makes for a hard clause or an empty kernel are *forced*: they count as no move, and the
direction starts anew after them.
"""

from __future__ import annotations

from math import floor, isfinite
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.contract import FleetLayout
from contracts.compiled.meta import CompiledMeta
from contracts.jit import borrowed, compiled
from contracts.scoring.switch_law import SWITCH_DISTANCE, RowMemory, begin_row, opens_episode, row_distance
from controller.ports import PolicyState

#: Rates are counted over this trailing time.
HOUR_S = 3600.0
#: A row or a weight that changed by less than this did not move.
LEAST_MOVE = 1e-9


class Counts(NamedTuple):
    """Counts of B fleets; changed in place. N is one more than a clause allows in an hour."""

    started: NDArray[np.bool_]  #: [B], a first table was counted
    changed_at_s: NDArray[np.float64]  #: [B, S], when the row last changed
    extreme: NDArray[np.float64]  #: [B, S, K + 1], farthest weight in the present direction
    direction: NDArray[np.int64]  #: [B, S, K + 1], 1 rises, -1 falls, 0 has not moved yet
    moved_at_s: NDArray[np.float64]  #: [B, S, N], the newest moves, oldest first
    turned_at_s: NDArray[np.float64]  #: [B, S, N], the newest turns, oldest first
    moves: NDArray[np.int64]  #: [B, S], all of them
    turns: NDArray[np.int64]  #: [B, S], all of them
    largest_move: NDArray[np.float64]  #: [B], half L1 of one row in one tick, not forced
    shortest_stay_s: NDArray[np.float64]  #: [B]


def initial_follow(meta: CompiledMeta, layout: FleetLayout, batch: int) -> PolicyState:
    """Memory of what was followed, before the first tick: fields of ``RowMemory`` and ``Counts`` by name."""
    kernels, slices, _ = layout.shape
    rows, cells = (batch, slices), (batch, slices, kernels + 1)
    memory = RowMemory(
        followed=np.zeros(cells),
        settled=np.zeros(cells),
        anchor=np.zeros(cells),
        anchored_at_s=np.full(rows, -np.inf),
        moving=np.zeros(rows, dtype=np.bool_),
    )
    counts = Counts(
        started=np.zeros(batch, dtype=np.bool_),
        changed_at_s=np.full(rows, -np.inf),
        extreme=np.zeros(cells),
        direction=np.zeros(cells, dtype=np.int64),
        moved_at_s=np.full((*rows, _needed(meta, "switch_rate_per_slice_hour")), -np.inf),
        turned_at_s=np.full((*rows, _needed(meta, "oscillation_sign_changes_per_hour")), -np.inf),
        moves=np.zeros(rows, dtype=np.int64),
        turns=np.zeros(rows, dtype=np.int64),
        largest_move=np.zeros(batch),
        shortest_stay_s=np.full(batch, np.inf),
    )
    return {**memory._asdict(), **counts._asdict()}


def _needed(meta: CompiledMeta, metric: str) -> int:
    """Number of newest events that shows whether one hour had more than the limit."""
    limit = meta.most(metric)
    return floor(limit) + 1 if isfinite(limit) else 1


def forced_rows(
    table: NDArray[np.float64],
    last: NDArray[np.float64],
    hard_violated: NDArray[np.bool_],
    ready: NDArray[np.int64],
    exempt: tuple[bool, bool],
) -> NDArray[np.bool_]:
    """bool [B, S]: weight left a kernel that a hard clause forbids, or one that has no replica left.

    exempt: whether the first and the second of these count as forced.
    """
    left = table[:, :, :-1] < last[:, :, :-1] - LEAST_MOVE
    why = np.zeros(left.shape, dtype=np.bool_)
    if exempt[0]:
        why |= hard_violated.transpose(0, 2, 1)
    if exempt[1]:
        why |= (ready <= 0)[:, None, :]
    return np.asarray((left & why).any(axis=2))


def follow(
    memory: PolicyState, table: NDArray[np.float64], forced: NDArray[np.bool_], now_s: NDArray[np.float64]
) -> PolicyState:
    """The memory after ``table`` float64 [B, S, K + 1], in force from ``now_s`` on."""
    after: dict[str, Any] = {name: memory[name].copy() for name in memory}
    _follow(
        np.ascontiguousarray(table),
        forced,
        now_s,
        RowMemory(*(after[name] for name in RowMemory._fields)),
        Counts(*(after[name] for name in Counts._fields)),
    )
    return after


def begin_anew(memory: PolicyState, fleets: NDArray[np.bool_]) -> PolicyState:
    """Forget the newest events of ``fleets`` bool [B], because another policy drives from now on."""
    if not bool(fleets.any()):
        return memory
    cleared = {
        name: np.where(fleets[:, None, None], -np.inf, memory[name]) for name in ("moved_at_s", "turned_at_s")
    }
    return {**memory, **cleared, "started": np.asarray(memory["started"], dtype=np.bool_) & ~fleets}


def unfollowed(before: PolicyState, after: PolicyState) -> PolicyState:
    """``after`` without the table that was counted since ``before``, because it was not put in force.

    Where another policy drives since then, the newest events stay forgotten.
    """
    if not after:
        return after
    restored = {**after, **{name: before[name] for name in (*RowMemory._fields, *Counts._fields)}}
    return begin_anew(restored, np.asarray(after["demoted"] != before["demoted"]))


def per_hour(events_at_s: NDArray[np.generic], now_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Most events of one slice in the hour before ``now_s``, float64 [B]; counts stop one above the limit."""
    recent = np.asarray(events_at_s, dtype=np.float64) > now_s[:, None, None] - HOUR_S
    return np.asarray(recent.sum(axis=2).max(axis=1), dtype=np.float64)


@compiled
def _follow(table, forced, now_s, memory, counts):
    """Update ``memory`` and ``counts`` by ``table``, row by row."""
    memory, counts = borrowed((memory, counts))
    for b in range(table.shape[0]):
        for s in range(table.shape[1]):
            if counts.started[b]:
                _count_row(table[b, s], forced[b, s], now_s[b], memory, counts, b, s)
            else:
                begin_row(memory, b, s, table[b, s], now_s[b])
                counts.extreme[b, s] = table[b, s]
                counts.direction[b, s] = 0
                counts.changed_at_s[b, s] = now_s[b]
        counts.started[b] = True


@compiled
def _count_row(row, forced, now_s, memory, counts, b, s):
    """Update the counts by ``row``, which is in force from ``now_s`` on."""
    if opens_episode(memory, b, s, row, now_s) and not forced:
        _note(counts.moved_at_s[b, s], now_s)
        counts.moves[b, s] += 1
    moved = row_distance(row, memory.followed[b, s])
    if _turned(row, forced, counts.extreme[b, s], counts.direction[b, s]):
        _note(counts.turned_at_s[b, s], now_s)
        counts.turns[b, s] += 1
        counts.shortest_stay_s[b] = min(counts.shortest_stay_s[b], now_s - counts.changed_at_s[b, s])
    if moved > LEAST_MOVE:
        counts.changed_at_s[b, s] = now_s
        if not forced:
            counts.largest_move[b] = max(counts.largest_move[b], moved)
    memory.followed[b, s] = row


@compiled
def _note(events_at_s, now_s):
    """Append ``now_s`` to the newest events and drop the oldest."""
    for i in range(len(events_at_s) - 1):
        events_at_s[i] = events_at_s[i + 1]
    events_at_s[-1] = now_s


@compiled
def _turned(row, forced, extreme, direction):
    """Update the directions by ``row``; True where some weight turned."""
    turned = False
    for k in range(len(row)):
        if forced:
            extreme[k], direction[k] = row[k], 0
            continue
        beyond = row[k] - extreme[k]
        if direction[k] == 0:
            if abs(beyond) > SWITCH_DISTANCE:
                direction[k] = 1 if beyond > 0.0 else -1
                extreme[k] = row[k]
        elif beyond * direction[k] >= 0.0:
            extreme[k] = row[k]
        elif abs(beyond) > SWITCH_DISTANCE:
            direction[k] = -direction[k]
            extreme[k] = row[k]
            turned = True
    return turned
