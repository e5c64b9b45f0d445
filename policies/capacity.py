"""Moves that respect capacity: fill the wanted kernels, spill what does not fit to the next best.

What fits nowhere overfills all kernels alike that the slice may use: theirs is one level of load over
capacity, the least there is. A table that already carries the load is kept: offered load wobbles, and a
table that followed it would never settle.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from controller.ports import Observation, PolicyState, Proposal

#: Shares and rates below this are rounding.
_CRUMB = 1e-9
#: Relative error of a sum over kernels, more than it can be.
_ROUNDING = 1e-12
#: Rounds after which slices that overfill kernels together have found their level, or nearly.
_ROUNDS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Headroom:
    """fill_ratio: share of capacity that a plan may use; return_ratio: share that must suffice before a
    spilled slice goes back; replan_s: least time between two moves for capacity alone.
    """

    fill_ratio: float = 0.9
    return_ratio: float = 0.75
    replan_s: float = 30.0


def fit_capacity(
    wanted: NDArray[np.float64], rank: NDArray[np.float64], seen: Observation, memory: PolicyState,
    priority: NDArray[np.int64], headroom: Headroom, kept: NDArray[np.bool_] | None = None,
) -> tuple[Proposal, PolicyState]:  # fmt: skip
    """Proposal near ``wanted`` float64 [B, S, K + 1] that does not overload a kernel where one has room.

    rank: float64 [B, S, K], order in which kernels take what spills (lowest first, inf: never).
    ``memory`` holds ``wanted``, ``planned`` and ``planned_s`` of the last plan. kept: bool [B, S], rows that
    stay as planned while others change, and may fill a kernel to the brim (None: no row).
    """
    last_wanted, planned = np.asarray(memory["wanted"]), np.asarray(memory["planned"], dtype=np.float64)
    same = (wanted == last_wanted).all(axis=(1, 2))
    # The first plan of who wants what is in force anyway can differ from it for want of capacity alone.
    first = ~last_wanted.any(axis=(1, 2)) & (wanted == seen.table).all(axis=(1, 2))
    table = np.empty_like(wanted)
    replanned = np.zeros(len(same), dtype=np.bool_)
    planned_s = np.asarray(memory["planned_s"], dtype=np.float64)
    order = np.argsort(-priority, kind="stable")
    nobody = np.zeros(same.shape + priority.shape, dtype=np.bool_)
    stays = nobody if kept is None else kept & planned.any(axis=2)
    _settle(
        table, replanned, wanted, planned, same, stays, rank, seen.offered_rps, seen.capacity_rps, order,
        seen.now_s - planned_s, headroom.fill_ratio, headroom.return_ratio, headroom.replan_s,
    )  # fmt: skip
    after: PolicyState = {
        **memory,
        "wanted": wanted,
        "planned": table,
        "planned_s": np.where(replanned, seen.now_s, planned_s),
    }
    proposal = Proposal(
        table=table,
        ejected=np.zeros(seen.in_rotation.shape, dtype=np.bool_),
        capacity_only=same | first,
        capacity_rows=(wanted == last_wanted).all(axis=2),
    )
    return proposal, after


def capacity_memory(batch: int, slices: int, kernels: int) -> PolicyState:
    """Memory for ``fit_capacity`` before the first tick."""
    return {
        "wanted": np.zeros((batch, slices, kernels + 1)),
        "planned": np.zeros((batch, slices, kernels + 1)),
        "planned_s": np.full(batch, -np.inf),
    }


@njit(cache=True)
def _settle(  # type: ignore[no-untyped-def]  # pragma: no cover
    table, replanned, wanted, planned, same, stays, rank, offered, capacity, order, since_s, fill_ratio,
    return_ratio, replan_s,
):  # fmt: skip
    """Keep the last plan, go back to what is wanted, or plan anew, fleet by fleet."""
    for b in range(len(same)):
        if same[b]:
            spilled = np.any(planned[b] != wanted[b])
            overloaded = _overloaded(planned[b], offered[b], capacity[b], 1.0)
            back = spilled and not _overloaded(wanted[b], offered[b], capacity[b], return_ratio)
            if since_s[b] < replan_s or not (overloaded or back):
                table[b] = planned[b]
                continue
        replanned[b] = True
        asked, first, room = wanted[b].copy(), order.copy(), capacity[b] * fill_ratio
        if not same[b] and stays[b].any():
            _keep(asked, first, room, planned[b], stays[b], offered[b], capacity[b], order)
        _fill(table[b], asked, rank[b], offered[b], capacity[b], room, first)


@njit(cache=True)
def _overloaded(table, offered, capacity, ratio):  # type: ignore[no-untyped-def]  # pragma: no cover
    for k in range(len(capacity)):
        load = 0.0
        for s in range(len(offered)):
            load += table[s, k] * offered[s]
        if load > capacity[k] * ratio:
            return True
    return False


@njit(cache=True)
def _keep(asked, first, room, planned, stays, offered, capacity, order):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Rows that stay ask for what was planned, before the others; there is room for them up to the brim.

    A slice that another's flight pushes off its kernel would have moved for no fault of that kernel.
    """
    place = 0
    for staying in (True, False):
        for s in order:
            if stays[s] == staying:
                first[place] = s
                place += 1
    for s in range(len(stays)):
        if stays[s]:
            asked[s] = planned[s]
    for k in range(len(room)):
        held = (planned[:, k] * offered)[stays].sum()
        room[k] = max(room[k], min(held * (1.0 + _CRUMB), capacity[k]))


@njit(cache=True)
def _fill(table, wanted, rank, offered, capacity, room, order):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Wanted shares first, spill to the next best in rank, and what fits nowhere evenly on top."""
    kernels = len(room)
    left = room.copy()
    table[:] = wanted
    spill = np.zeros(len(offered))
    for s in order:
        for k in range(kernels):
            ask = wanted[s, k] * offered[s]
            if ask <= left[k] or ask <= 0.0:
                left[k] -= ask
                continue
            fits = max(left[k], 0.0) / offered[s]
            spill[s] += wanted[s, k] - fits
            table[s, k] = fits
            left[k] = 0.0
    for s in order:
        spill[s] = _pour(table[s], spill[s], rank[s], offered[s], left) if spill[s] > 0.0 else 0.0
    if (spill > _CRUMB).any():
        _overfill(table, wanted, spill, rank, offered, capacity, order)


@njit(cache=True)
def _pour(row, spill, rank, offered, left):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Pour ``spill`` into the kernels with room, best rank first; what fits nowhere comes back."""
    for _ in range(len(left)):
        best = -1
        for k in range(len(left)):
            free = np.isfinite(rank[k]) and left[k] > _CRUMB
            if free and (best < 0 or rank[k] < rank[best]):
                best = k
        if best < 0 or spill <= _CRUMB:
            break
        fits = min(spill, left[best] / offered)
        row[best] += fits
        spill -= fits
        left[best] -= fits * offered
    return spill


@njit(cache=True)
def _overfill(table, wanted, spill, rank, offered, capacity, order):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Spread what fits nowhere, slice by slice; again, because slices that may use less come later."""
    kernels = len(capacity)
    load, over = np.zeros(kernels), np.zeros((len(offered), kernels))
    for s in order:
        load += table[s, :kernels] * offered[s]
    for _ in range(_ROUNDS):
        moved_rps = 0.0
        for s in order:
            if spill[s] <= _CRUMB:
                continue
            poured = _level(load - over[s], spill[s] * offered[s], rank[s], wanted[s], capacity)
            moved_rps = max(moved_rps, np.abs(poured - over[s]).max())
            load += poured - over[s]
            over[s] = poured
        if moved_rps <= _CRUMB:
            break
    for s in range(len(offered)):
        if spill[s] > _CRUMB:
            table[s, :kernels] += over[s] / offered[s]


@njit(cache=True)
def _level(load, rate, rank, wanted, capacity):  # type: ignore[no-untyped-def]  # pragma: no cover
    """What each kernel gets of ``rate``, so that those that get any have one load over capacity, the least.

    Kernels with a rank, or wanted. If they have no capacity at all: in proportion to the wanted shares.
    """
    kernels = len(capacity)
    open_ = np.zeros(kernels, dtype=np.bool_)
    for k in range(kernels):
        open_[k] = capacity[k] > 0.0 and (np.isfinite(rank[k]) or wanted[k] > 0.0)
    if not open_.any():
        return rate * wanted[:kernels] / wanted[:kernels].sum()
    level = 0.0
    for _ in range(kernels):
        level = (rate + load[open_].sum()) / capacity[open_].sum()
        above = open_ & (load > level * capacity * (1.0 + _ROUNDING))
        if not above.any():
            break
        open_ &= ~above
    poured = np.where(open_, np.maximum(level * capacity - load, 0.0), 0.0)
    if np.abs(poured.sum() - rate) > _CRUMB * rate:  # a rate that vanishes beside the load
        poured = np.where(open_, capacity, 0.0)
    return poured * (rate / poured.sum())
