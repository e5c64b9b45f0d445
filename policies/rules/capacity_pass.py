"""Compiled loops of moves that respect capacity; see ``policies.rules.capacity``. Fleets are independent."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.jit import borrowed, compiled
from controller.shield.capacity import load_of, overloaded

#: Shares and rates below this are rounding.
_NEGLIGIBLE = 1e-9
#: Upper bound of the relative error of a sum over kernels.
_ROUNDING = 1e-12
#: Rounds after which slices that overfill kernels together have nearly converged.
_ROUNDS = 50
#: Least reduction of the fullest kernel's load share for a move among plans that all overfill some kernel.
_WORTH = 0.05


class AllocationRequest(NamedTuple):
    """Proposals of B fleets, and their present state."""

    wanted: NDArray[np.float64]  #: [B, S, K + 1]
    last_wanted: NDArray[np.float64]  #: [B, S, K + 1], when the last plan was made; nothing before the first
    planned: NDArray[np.float64]  #: [B, S, K + 1], the last plan
    in_force: NDArray[np.float64]  #: [B, S, K + 1]
    stays: NDArray[np.bool_]  #: [B, S], the row stays as planned while others change
    rank: NDArray[np.float64]  #: [B, S, K], see ``fit_capacity``
    offered_rps: NDArray[np.float64]  #: [B, S]
    capacity_rps: NDArray[np.float64]  #: [B, K]
    now_s: NDArray[np.float64]  #: [B]
    order: NDArray[np.int64]  #: [S], slices, highest priority first
    fill_ratio: float  #: as in ``Headroom``, like the next two
    return_ratio: float
    replan_s: float


class AllocationResult(NamedTuple):
    """The resulting plans; every array is filled in, and the times are updated."""

    table: NDArray[np.float64]  #: [B, S, K + 1], the plan
    planned_at_s: NDArray[np.float64]  #: [B], time of the last new plan
    same_rows: NDArray[np.bool_]  #: [B, S], the proposal is unchanged
    capacity_only: NDArray[np.bool_]  #: [B], the plan differs from the last for lack of capacity alone


class CarriedLoad(NamedTuple):
    """The load of one fleet, and its kernels' capacity."""

    rank: NDArray[np.float64]  #: [S, K]
    offered_rps: NDArray[np.float64]  #: [S]
    capacity_rps: NDArray[np.float64]  #: [K]


@compiled
def settle(settled, asked):
    """Keep the last plan, return to the proposal, or plan anew, fleet by fleet."""
    settled, asked = borrowed((AllocationResult(*settled), AllocationRequest(*asked)))
    table = settled.table
    for b in range(len(asked.now_s)):
        wanted, planned, same = asked.wanted[b], asked.planned[b], _compare(settled, asked, b)
        offered, capacity = asked.offered_rps[b], asked.capacity_rps[b]
        back = False
        if same and asked.now_s[b] - settled.planned_at_s[b] < asked.replan_s:
            table[b] = planned
            continue
        if same:
            elsewhere = np.any(planned != wanted)
            full = overloaded(planned, offered, capacity, 1.0)
            back = elsewhere and not overloaded(wanted, offered, capacity, asked.return_ratio)
            if not (full or back):
                table[b] = planned
                continue
        row, first, headroom_rps = wanted.copy(), asked.order.copy(), capacity * asked.fill_ratio
        load = CarriedLoad(asked.rank[b], offered, capacity)
        if not same and asked.stays[b].any():
            _keep(row, first, headroom_rps, planned, asked.stays[b], load, asked.order)
        _fill(table[b], row, load, headroom_rps, first)
        if same and not (back or _pays(table[b], planned, offered, capacity)):
            table[b] = planned
        if np.any(planned) and np.any(table[b] != planned):
            settled.planned_at_s[b] = asked.now_s[b]


@compiled(inline="always")
def _compare(settled, asked, b):
    """Whether the proposal is unchanged; fills in for which rows, and whether the change is for capacity
    alone.

    A first plan whose proposal is the table in force can differ from it for capacity alone.
    """
    same, first = True, True
    for s in range(asked.wanted.shape[1]):
        alike = True
        for k in range(asked.wanted.shape[2]):
            wanted, before = asked.wanted[b, s, k], asked.last_wanted[b, s, k]
            alike &= wanted == before
            first &= before == 0.0 and wanted == asked.in_force[b, s, k]
        settled.same_rows[b, s] = alike
        same &= alike
    settled.capacity_only[b] = same or first
    return same


@compiled
def _pays(table, planned, offered, capacity):
    """Whether ``table`` fits, or its fullest kernel is less full than that of ``planned`` by enough.

    If not everything fits, any table overfills some kernel, and a new one hardly less than the last.
    """
    fullest, before = 0.0, 0.0
    for k in range(len(capacity)):
        headroom_rps = max(capacity[k], _NEGLIGIBLE)
        fullest = max(fullest, load_of(table, offered, k) / headroom_rps)
        before = max(before, load_of(planned, offered, k) / headroom_rps)
    return fullest <= 1.0 + _ROUNDING or before > fullest * (1.0 + _WORTH)


@compiled
def _keep(wanted, first, headroom_rps, planned, stays, load, order):
    """Kept rows ask for their planned shares, before the others, and may fill kernels completely.

    A slice displaced from its kernel by another's failover would have moved without a fault of that kernel.
    """
    place = 0
    for staying in (True, False):
        for s in order:
            if stays[s] == staying:
                first[place] = s
                place += 1
    for s in range(len(stays)):
        if stays[s]:
            wanted[s] = planned[s]
    for k in range(len(headroom_rps)):
        held = (planned[:, k] * load.offered_rps)[stays].sum()
        headroom_rps[k] = max(headroom_rps[k], min(held * (1.0 + _NEGLIGIBLE), load.capacity_rps[k]))


@compiled
def _fill(table, wanted, load, headroom_rps, order):
    """Proposed shares first, overflow to the next best in rank, and the remainder evenly on top."""
    offered, kernels = load.offered_rps, len(headroom_rps)
    left = headroom_rps.copy()
    table[:] = wanted
    overflow = np.zeros(len(offered))
    for s in order:
        for k in range(kernels):
            ask = wanted[s, k] * offered[s]
            if ask <= left[k] or ask <= 0.0:
                left[k] -= ask
                continue
            fits = max(left[k], 0.0) / offered[s]
            overflow[s] += wanted[s, k] - fits
            table[s, k] = fits
            left[k] = 0.0
    for s in order:
        if overflow[s] > 0.0:
            overflow[s] = _allocate(table[s], overflow[s], load.rank[s], offered[s], left)
        else:
            overflow[s] = 0.0
    if (overflow > _NEGLIGIBLE).any():
        _overfill(table, wanted, overflow, load, order)


@compiled
def _allocate(row, overflow, rank, offered, left):
    """Give ``overflow`` to the kernels with headroom, best rank first; returns the remainder."""
    for _ in range(len(left)):
        best = -1
        for k in range(len(left)):
            free = np.isfinite(rank[k]) and left[k] > _NEGLIGIBLE
            if free and (best < 0 or rank[k] < rank[best]):
                best = k
        if best < 0 or overflow <= _NEGLIGIBLE:
            break
        fits = min(overflow, left[best] / offered)
        row[best] += fits
        overflow -= fits
        left[best] -= fits * offered
    return overflow


@compiled
def _overfill(table, wanted, overflow, load, order):
    """Spread the remainder, slice by slice; repeated, because slices with fewer kernels may come later."""
    offered, capacity, kernels = load.offered_rps, load.capacity_rps, len(load.capacity_rps)
    carried, over = np.zeros(kernels), np.zeros((len(offered), kernels))
    for s in order:
        carried += table[s, :kernels] * offered[s]
    for _ in range(_ROUNDS):
        moved_rps = 0.0
        for s in order:
            if overflow[s] <= _NEGLIGIBLE:
                continue
            rate, rank = overflow[s] * offered[s], load.rank[s]
            allocated = _level(carried - over[s], rate, rank, wanted[s], capacity)
            moved_rps = max(moved_rps, np.abs(allocated - over[s]).max())
            carried += allocated - over[s]
            over[s] = allocated
        if moved_rps <= _NEGLIGIBLE:
            break
    for s in range(len(offered)):
        if overflow[s] > _NEGLIGIBLE:
            table[s, :kernels] += over[s] / offered[s]


@compiled
def _level(carried, rate, rank, wanted, capacity):
    """Each kernel's part of ``rate`` beside the ``carried`` load [K], so that kernels with a part have one
    load over capacity, the least possible.

    Kernels with a rank, or proposed. If they have no capacity at all: in proportion to the proposed shares.
    """
    kernels = len(capacity)
    open_ = np.zeros(kernels, dtype=np.bool_)
    for k in range(kernels):
        open_[k] = capacity[k] > 0.0 and (np.isfinite(rank[k]) or wanted[k] > 0.0)
    if not open_.any():
        return rate * wanted[:kernels] / wanted[:kernels].sum()
    level = 0.0
    for _ in range(kernels):
        level = (rate + carried[open_].sum()) / capacity[open_].sum()
        above = open_ & (carried > level * capacity * (1.0 + _ROUNDING))
        if not above.any():
            break
        open_ &= ~above
    allocated = np.where(open_, np.maximum(level * capacity - carried, 0.0), 0.0)
    if np.abs(allocated.sum() - rate) > _NEGLIGIBLE * rate:  # a rate that is negligible beside the load
        allocated = np.where(open_, capacity, 0.0)
    return allocated * (rate / allocated.sum())
