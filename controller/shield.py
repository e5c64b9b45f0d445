"""The shield: every proposal passes here, learned or not, and comes out allowed.

In this order, each yielding to those before it:

1. *hard*: no weight of a slice on a kernel whose hard clause on that slice is violated, that is not
   certified there, that has too few replicas in rotation or that is in shadow; at once, past slew and dwell;
2. *pool*: while a certified kernel lives, a slice is served; where none does, the contract chooses between
   shedding it and the known-good kernel;
3. *capacity*: no kernel above its limit, what does not fit is shed, the lowest priority first;
4. *exploration*: a canary gets at least and at most a stated share of a slice;
5. *slew and dwell*: what the policy moves of its own will goes slowly, and not again too soon.

An allowed table comes back bit for bit, and shielding twice is shielding once. Pure, batched over fleets,
no result depends on the batch. ``docs/shield.md`` states every rule.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntFlag
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from contracts.compiled import CompiledContract
from contracts.lent import lent
from controller import shield_rows
from controller.setup import FleetSetup, ShieldLimits, Stage
from controller.shield_exact import solve_exactly
from controller.shield_fleet import plan_fleet, settle_fleet

Table = NDArray[np.float64]

#: Columns of ``Shielded.size``.
STAGES = ("hard", "pool", "capacity", "exploration", "slew")
# Plain integers: comparing with an enumeration takes longer.
_SHADOW, _CANARY = int(Stage.SHADOW), int(Stage.CANARY)
#: Rows whose weights sum to 1 within this are left as they are.
_SUM_SLACK = 1e-9
#: Rounds in which bounds of canaries and capacity settle; two or three do.
_MOST_ROUNDS = 20


class Reason(IntFlag):
    """Why a row is not as proposed. DARK: no certified kernel lives, the contract's choice stands."""

    HARD = shield_rows.HARD
    POOL = shield_rows.POOL
    DARK = shield_rows.DARK
    CAPACITY = shield_rows.CAPACITY
    EXPLORATION = shield_rows.EXPLORATION
    SLEW = shield_rows.SLEW
    DWELL = shield_rows.DWELL


@dataclass(frozen=True, slots=True, kw_only=True)
class ShieldView:
    """What the shield goes by.

    last: float64 [B, S, K + 1], table in force. hard_violated, certified: bool [B, K, S]. ready: int64
    [B, K], replicas in rotation. offered_rps: float64 [B, S]. may_move: bool [B, S], see ``may_move``.
    """

    last: Table
    hard_violated: NDArray[np.bool_]
    certified: NDArray[np.bool_]
    ready: NDArray[np.int64]
    offered_rps: NDArray[np.float64]
    may_move: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shielded:
    """table: float64 [B, S, K + 1], allowed. reason: int64 [B, S], bits of ``Reason``. size: float64
    [B, S, 5], half L1 that each of ``STAGES`` changed. fallback: bool [B], the exact solver placed it.
    voluntary: bool [B, S], the row moved because the policy asked for it.
    """

    table: Table
    reason: NDArray[np.int64]
    size: NDArray[np.float64]
    fallback: NDArray[np.bool_]
    voluntary: NDArray[np.bool_]


def unshielded(table: Table) -> Shielded:
    """``table`` as it is, for arms that run without a shield."""
    shape = table.shape[:2]
    return Shielded(
        table=table,
        reason=np.zeros(shape, dtype=np.int64),
        size=np.zeros((*shape, len(STAGES))),
        fallback=np.zeros(shape[0], dtype=np.bool_),
        voluntary=np.zeros(shape, dtype=np.bool_),
    )


def may_move(
    now_s: NDArray[np.float64], began_s: NDArray[np.float64], tick_s: float, limits: ShieldLimits
) -> NDArray[np.bool_]:
    """bool [B, S]: rows that may move of the policy's own will at ``now_s`` [B].

    began_s: [B, S], when the last such move began. It may run as many ticks as a whole row needs at
    ``max_move_ratio``; the next may begin ``min_dwell_s`` after the begin of the last.
    """
    since_s = now_s[:, None] - began_s
    running_s = np.ceil(1.0 / limits.max_move_ratio) * tick_s
    slack_s = 1e-6 * tick_s
    return np.asarray((since_s < running_s - slack_s) | (since_s >= limits.min_dwell_s - slack_s))


def shield(proposal: Table, view: ShieldView, fleet: FleetSetup, limits: ShieldLimits) -> Shielded:
    """The allowed table next to ``proposal`` float64 [B, S, K + 1], whose rows sum to 1."""
    facts = _facts(view, fleet, limits)
    todo = np.ones(proposal.shape[0], dtype=np.bool_)
    done, moving = _once(np.ascontiguousarray(proposal, dtype=np.float64), facts, view, limits, todo)
    # Bounds of canaries, trickles and the solver free room for each other; repeated until nothing changes.
    todo = moving | done.fallback | facts.canary.any()
    for _ in range(_MOST_ROUNDS):
        if not todo.any():
            break
        again, _ = _once(done.table, facts, view, limits, todo)
        todo = (again.table != done.table).any(axis=(1, 2))
        done = replace(
            done,
            table=again.table,
            reason=done.reason | again.reason,
            fallback=done.fallback | again.fallback,
        )
    return done


def _once(
    wish: Table, facts: _Facts, view: ShieldView, limits: ShieldLimits, todo: NDArray[np.bool_]
) -> tuple[Shielded, NDArray[np.bool_]]:
    """One round over the fleets of ``todo`` [B], the others as wished; and see ``settle_fleet``."""
    batch, slices, columns = wish.shape
    goal, table = np.empty_like(wish), wish.copy()
    reason, size = np.zeros((batch, slices), dtype=np.int64), np.zeros((batch, slices, len(STAGES)))
    stuck, voluntary = np.zeros(batch, dtype=np.bool_), np.zeros((batch, slices), dtype=np.bool_)
    bounded, moving = np.empty((batch, columns - 1), dtype=np.bool_), np.zeros(batch, dtype=np.bool_)
    _plan(table, goal, wish, *facts, reason, size, stuck, bounded, todo)
    for b in np.flatnonzero(stuck):
        table[b] = solve_exactly(goal[b], facts.ok[b], facts.rate[b], facts.capacity[b], facts.order)
    _settle(
        table, goal, wish, facts.last, facts.ok, facts.refuge, bounded, facts.rate, facts.capacity,
        facts.least, facts.most, np.ascontiguousarray(view.may_move), limits.max_move_ratio, reason, size,
        voluntary, todo, moving,
    )  # fmt: skip
    done = Shielded(table=table, reason=reason, size=size, fallback=stuck, voluntary=voluntary)
    return done, moving


class _Facts(NamedTuple):
    """What the passes are told. ok: bool [B, S, K], cells that may carry weight. refuge: int64 [B, S], see
    ``aim``. canary: bool [K]. rate: requests per second [B, S]. capacity: [B, K], with the load ratio.
    order: int64 [S], highest priority first. least, most: bounds of a canary's weight.
    """

    last: Table
    ok: NDArray[np.bool_]
    refuge: NDArray[np.int64]
    canary: NDArray[np.bool_]
    rate: NDArray[np.float64]
    capacity: NDArray[np.float64]
    order: NDArray[np.int64]
    known_good: int
    least: float
    most: float
    max_shed: float


def _facts(view: ShieldView, fleet: FleetSetup, limits: ShieldLimits) -> _Facts:
    known_good, contract = fleet.layout.known_good, fleet.contract
    kernels = len(fleet.layout.kernels)
    stage = np.full(kernels, int(Stage.ACTIVE)) if fleet.stage is None else fleet.stage
    batch, slices, _ = view.last.shape
    ok, refuge = np.empty((batch, slices, kernels), dtype=np.bool_), np.empty((batch, slices), dtype=np.int64)
    plain = np.ascontiguousarray
    _find_sound(
        ok, refuge, plain(view.certified), plain(view.hard_violated), plain(view.ready), stage == _SHADOW,
        limits.min_ready_replicas, known_good, contract.shed_when_uncertified,
    )  # fmt: skip
    return _Facts(
        last=plain(view.last),
        ok=ok,
        refuge=refuge,
        canary=stage == _CANARY,
        rate=plain(view.offered_rps),
        capacity=view.ready * (fleet.capacity_rps * limits.max_load_ratio),
        order=_order(contract),
        known_good=known_good,
        least=min(limits.canary_least_ratio, limits.canary_most_ratio),
        most=limits.canary_most_ratio,
        max_shed=limits.max_shed_ratio,
    )


@lru_cache(maxsize=64)
def _order(contract: CompiledContract) -> NDArray[np.int64]:
    """int64 [S]: slices, highest priority first."""
    return np.argsort(-contract.priority, kind="stable")


@njit(cache=True, error_model="numpy")
def _find_sound(  # type: ignore[no-untyped-def]  # pragma: no cover
    ok, refuge, certified, violated, ready, shadow, least_ready, known_good, sheds
):
    """Fill in ``ok`` and ``refuge`` of ``_Facts``. shadow: bool [K], open to nobody."""
    for b in range(ok.shape[0]):
        serves = ready[b, known_good] >= least_ready and not sheds
        for s in range(ok.shape[1]):
            some = False
            for k in range(ok.shape[2]):
                alive = ready[b, k] >= least_ready and not shadow[k]
                ok[b, s, k] = alive and certified[b, k, s] and not violated[b, k, s]
                some |= ok[b, s, k]
            refuge[b, s] = -1
            if not some:
                refuge[b, s] = known_good if serves else ok.shape[2]
                ok[b, s, known_good] = serves


@njit(cache=True, error_model="numpy")
def _plan(  # type: ignore[no-untyped-def]  # pragma: no cover
    table, goal, wish, last, ok, refuge, canary, rate, capacity, order, known_good, least, most, max_shed,
    reason, size, stuck, bounded, todo,
):  # fmt: skip
    table, goal, wish, last, ok, refuge = lent((table, goal, wish, last, ok, refuge))
    rate, capacity, reason, size, bounded = lent((rate, capacity, reason, size, bounded))
    slices, kernels = ok.shape[1:]
    room, spill, queue = np.empty(kernels), np.empty(slices), np.empty(kernels, np.int64)
    seen = np.empty(kernels, np.bool_)
    for b in np.flatnonzero(todo):
        stuck[b] = plan_fleet(
            table[b], goal[b], wish[b], last[b], ok[b], refuge[b], canary, rate[b], capacity[b], order,
            known_good, least, most, max_shed, reason[b], size[b], room, spill, seen, queue,
            bounded[b],
        )  # fmt: skip


@njit(cache=True, error_model="numpy")
def _settle(  # type: ignore[no-untyped-def]  # pragma: no cover
    table, goal, wish, last, ok, refuge, bounded, rate, capacity, least, most, may_move, max_move, reason,
    size, voluntary, todo, moving,
):  # fmt: skip
    table, goal, wish, last, ok, refuge = lent((table, goal, wish, last, ok, refuge))
    bounded, rate, capacity, may_move = lent((bounded, rate, capacity, may_move))
    reason, size, voluntary = lent((reason, size, voluntary))
    slices, kernels = ok.shape[1:]
    slowed, room = np.empty((slices, kernels + 1)), np.empty(kernels)
    for b in np.flatnonzero(todo):
        moving[b] = settle_fleet(
            table[b], goal[b], wish[b], last[b], ok[b], refuge[b], bounded[b], rate[b], capacity[b], least,
            most, may_move[b], max_move, reason[b], size[b], voluntary[b], slowed, room,
        )  # fmt: skip


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


@njit(cache=True, error_model="numpy")
def _is_normal(table):  # type: ignore[no-untyped-def]  # pragma: no cover
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
