"""What the supervisor counts of a policy: moves, turns and stays of every slice, tick by tick.

A *move* is the opening of a switch episode as ``contracts.switches`` defines it: the row is more than 0.05
(half L1) from its last settled value, and it settles when it has stayed there for 60 s. A *turn* is a sign
change: a weight that rose falls by more than 0.05 from its highest value, or the other way round; several
kernels of one row that turn at one tick are one turn. A *stay* lasts from a row's last change to its turn.
What the shield has to do for a hard clause or an empty kernel is *forced*: it opens no move, and the
direction starts anew behind it.
"""

from __future__ import annotations

from math import floor, isfinite

import numpy as np
from numba import njit
from numpy.typing import NDArray

from contracts.compiled_meta import CompiledMeta
from contracts.layout import FleetLayout
from contracts.switches import SETTLE_S, SWITCH_DISTANCE
from controller.ports import PolicyState
from controller.shield_rows import half_l1

#: Rates are counted over this trailing time.
HOUR_S = 3600.0
#: A row that changed by less than this did not move.
_CRUMB = 1e-9


def initial_follow(meta: CompiledMeta, layout: FleetLayout, batch: int) -> PolicyState:
    """Memory of what was followed, before the first tick.

    started: bool [B]. followed, settled, anchor, extreme: float64 [B, S, K + 1]; direction: int64
    [B, S, K + 1]; anchored_s, changed_s: float64 [B, S]; moving: bool [B, S].
    moves_s: float64 [B, S, N], instants of the newest moves, N one more than the limit allows in an hour;
    turns_s likewise. moves, turns: int64 [B, S], all of them. largest_move: float64 [B], of one tick, not
    forced; shortest_stay_s: float64 [B].
    """
    kernels, slices, _ = layout.shape
    rows, cells = (batch, slices), (batch, slices, kernels + 1)
    return {
        "started": np.zeros(batch, dtype=np.bool_),
        **{name: np.zeros(cells) for name in ("followed", "settled", "anchor", "extreme")},
        "direction": np.zeros(cells, dtype=np.int64),
        "anchored_s": np.full(rows, -np.inf),
        "changed_s": np.full(rows, -np.inf),
        "moving": np.zeros(rows, dtype=np.bool_),
        "moves_s": np.full((*rows, _needed(meta, "switch_rate_per_slice_hour")), -np.inf),
        "turns_s": np.full((*rows, _needed(meta, "oscillation_sign_changes_per_hour")), -np.inf),
        "moves": np.zeros(rows, dtype=np.int64),
        "turns": np.zeros(rows, dtype=np.int64),
        "largest_move": np.zeros(batch),
        "shortest_stay_s": np.full(batch, np.inf),
    }


def _needed(meta: CompiledMeta, metric: str) -> int:
    """Newest events that tell whether more than the limit fell into one hour."""
    limit = meta.most(metric)
    return floor(limit) + 1 if isfinite(limit) else 1


def forced_rows(
    table: NDArray[np.float64], last: NDArray[np.float64], hard_violated: NDArray[np.bool_],
    ready: NDArray[np.int64], exempt: tuple[bool, bool],
) -> NDArray[np.bool_]:  # fmt: skip
    """bool [B, S]: weight left a kernel that a hard clause forbids, or one that has no replica left.

    exempt: whether the first and the second of these count as forced.
    """
    left = table[:, :, :-1] < last[:, :, :-1] - _CRUMB
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
    after = {name: memory[name].copy() for name in memory}
    _follow(
        np.ascontiguousarray(table), forced, now_s, after["started"], after["followed"], after["settled"],
        after["anchor"], after["anchored_s"], after["changed_s"], after["moving"], after["extreme"],
        after["direction"], after["moves_s"], after["turns_s"], after["moves"], after["turns"],
        after["largest_move"], after["shortest_stay_s"],
    )  # fmt: skip
    return after


def begin_anew(memory: PolicyState, fleets: NDArray[np.bool_]) -> PolicyState:
    """Forget the newest events of ``fleets`` bool [B]: somebody else is followed from now on."""
    if not bool(fleets.any()):
        return memory
    cleared = {
        name: np.where(fleets[:, None, None], -np.inf, memory[name]) for name in ("moves_s", "turns_s")
    }
    return {**memory, **cleared, "started": np.asarray(memory["started"], dtype=np.bool_) & ~fleets}


def per_hour(events_s: NDArray[np.generic], now_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Most events of one slice in the hour before ``now_s``, float64 [B]; counts stop one above the limit."""
    recent = np.asarray(events_s, dtype=np.float64) > now_s[:, None, None] - HOUR_S
    return np.asarray(recent.sum(axis=2).max(axis=1), dtype=np.float64)


@njit(cache=True)
def _follow(  # type: ignore[no-untyped-def]  # pragma: no cover
    table, forced, now_s, started, followed, settled, anchor, anchored_s, changed_s, moving, extreme,
    direction, moves_s, turns_s, moves, turns, largest_move, shortest_stay_s,
):  # fmt: skip
    for b in range(table.shape[0]):
        for s in range(table.shape[1]):
            row = table[b, s]
            if not started[b]:
                _begin(row, settled[b, s], anchor[b, s], extreme[b, s], direction[b, s])
                anchored_s[b, s], changed_s[b, s], moving[b, s] = now_s[b], now_s[b], False
                followed[b, s] = row
                continue
            opened = _opened(
                row, followed[b, s], settled[b, s], anchor[b, s], anchored_s[b], moving[b], s, now_s[b]
            )
            if opened and not forced[b, s]:
                _note(moves_s[b, s], now_s[b])
                moves[b, s] += 1
            moved = half_l1(row, followed[b, s])
            if _turned(row, forced[b, s], extreme[b, s], direction[b, s]):
                _note(turns_s[b, s], now_s[b])
                turns[b, s] += 1
                shortest_stay_s[b] = min(shortest_stay_s[b], now_s[b] - changed_s[b, s])
            if moved > _CRUMB:
                changed_s[b, s] = now_s[b]
                if not forced[b, s]:
                    largest_move[b] = max(largest_move[b], moved)
            followed[b, s] = row
        started[b] = True


@njit(cache=True)
def _begin(row, settled, anchor, extreme, direction):  # type: ignore[no-untyped-def]  # pragma: no cover
    settled[:] = row
    anchor[:] = row
    extreme[:] = row
    direction[:] = 0


@njit(cache=True)
def _opened(row, followed, settled, anchor, anchored_s, moving, s, now_s):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Take ``row`` of slice ``s`` in; True where a switch episode opens."""
    if moving[s] and now_s - anchored_s[s] >= SETTLE_S:
        settled[:] = followed
        moving[s] = False
    if moving[s]:
        if half_l1(row, anchor) > SWITCH_DISTANCE:
            anchor[:] = row
            anchored_s[s] = now_s
        return False
    if half_l1(row, settled) <= SWITCH_DISTANCE:
        return False
    moving[s] = True
    anchor[:] = row
    anchored_s[s] = now_s
    return True


@njit(cache=True)
def _note(events_s, now_s):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Put ``now_s`` behind the newest events, oldest first."""
    for i in range(len(events_s) - 1):
        events_s[i] = events_s[i + 1]
    events_s[-1] = now_s


@njit(cache=True)
def _turned(row, forced, extreme, direction):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Take ``row`` in; True where some weight turned."""
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
