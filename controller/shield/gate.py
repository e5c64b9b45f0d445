"""The shield: turns any proposal, learned or not, into an allowed routing table.

The rules apply in this order, each subject to those before it:

1. *hard*: no weight of a slice on a kernel whose hard clause on that slice is violated, that is not
   certified there, that has too few replicas in rotation or that is in shadow; at once, past slew and dwell;
2. *pool*: while a certified kernel lives, a slice is served; where none does, the contract chooses between
   shedding it and the known-good kernel;
3. *capacity*: no kernel above a comfortable load while others have room below theirs, none above its limit;
   what does not fit is served where a soft clause is broken by less than an answer is worth, else shed, the
   lowest priority first;
4. *exploration*: a canary gets at least and at most a stated share of a slice;
5. *slew and dwell*: voluntary moves of the policy are limited in speed and in frequency.

An allowed table is returned bit for bit, and shielding twice equals shielding once. Pure and batched over
fleets; no result depends on the batch. ``docs/shield.md`` states every rule.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.contract import CompiledContract
from contracts.jit import borrowed, compiled
from controller.cells import some_in
from controller.fleet import FleetSetup, Stage
from controller.options import ShieldLimits
from controller.shield.comfort import load_limits
from controller.shield.exact import place_exactly
from controller.shield.fleet import plan_fleet, settle_fleet
from controller.shield.lesser_evil import LEAST_GAIN
from controller.shield.records import SOFT, STAGES, Facts, Outcome, facts_of, new_work, outcome_of
from controller.shield.rows import Table

# Plain integers: comparing with an enumeration takes longer.
_SHADOW, _CANARY, _ACTIVE = int(Stage.SHADOW), int(Stage.CANARY), int(Stage.ACTIVE)
#: Rounds in which bounds of canaries and capacity settle; two or three do. Soft cells take no more than this.
_MOST_ROUNDS = ceil(1.0 / LEAST_GAIN)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShieldView:
    """Input of the shield, of B fleets."""

    last: Table  #: [B, S, K + 1], table in force
    hard_violated: NDArray[np.bool_]  #: [B, K, S]
    certified: NDArray[np.bool_]  #: [B, K, S]
    ready: NDArray[np.int64]  #: [B, K], replicas in rotation
    offered_rps: NDArray[np.float64]  #: [B, S]
    may_move: NDArray[np.bool_]  #: [B, S], see ``may_move``
    #: float64 [B, K], capacity of one replica in requests per second (None: as the fleet declares it).
    replica_rps: NDArray[np.float64] | None = None
    #: float64 [B, K], limit of the load of one replica (None: ``max_load_ratio`` times its capacity).
    most_rps: NDArray[np.float64] | None = None
    #: float64 [B, K, S], loss of an answer where only soft clauses are broken, in answers; a cell with 1 or
    #: more is never used (None: no cell is used that breaks a soft clause).
    loss: NDArray[np.float64] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shielded:
    """An allowed table of B fleets, and what the shield changed to reach it."""

    table: Table  #: [B, S, K + 1], allowed
    reason: NDArray[np.int64]  #: [B, S], bits of ``ShieldReason``
    size: NDArray[np.float64]  #: [B, S, 5], half L1 that each of ``STAGES`` changed
    fallback: NDArray[np.bool_]  #: [B], the exact solver placed it
    voluntary: NDArray[np.bool_]  #: [B, S], the row moved because the policy asked for it


def unshielded(table: Table) -> Shielded:
    """``table`` as it is, for configurations that run without a shield."""
    shape = table.shape[:2]
    return Shielded(
        table=table,
        reason=np.zeros(shape, dtype=np.int64),
        size=np.zeros((*shape, len(STAGES))),
        fallback=np.zeros(shape[0], dtype=np.bool_),
        voluntary=np.zeros(shape, dtype=np.bool_),
    )


def may_move(
    now_s: NDArray[np.float64], began_at_s: NDArray[np.float64], tick_s: float, limits: ShieldLimits
) -> NDArray[np.bool_]:
    """bool [B, S]: rows that may make a voluntary move at ``now_s`` [B].

    began_at_s: [B, S], when the last such move began. It may run as many ticks as a whole row needs at
    ``max_move_ratio``; the next may begin ``min_dwell_s`` after the begin of the last.
    """
    running_s = ceil(1.0 / limits.max_move_ratio) * tick_s
    slack_s = 1e-6 * tick_s
    found = np.empty(began_at_s.shape, dtype=np.bool_)
    _find_movable(found, now_s, began_at_s, running_s - slack_s, limits.min_dwell_s - slack_s)
    return found


@compiled
def _find_movable(found, now_s, began_at_s, running_s, rest_s):
    """Fill in ``may_move`` [B, S]: a move lasts ``running_s``, the next begins ``rest_s`` after it began."""
    for b in range(found.shape[0]):
        for s in range(found.shape[1]):
            since_s = now_s[b] - began_at_s[b, s]
            found[b, s] = since_s < running_s or since_s >= rest_s


def shield(proposal: Table, view: ShieldView, fleet: FleetSetup, limits: ShieldLimits) -> Shielded:
    """The allowed table next to ``proposal`` float64 [B, S, K + 1], whose rows sum to 1."""
    facts = _facts(proposal, view, fleet, limits)
    done, todo = _once(facts, np.ones(proposal.shape[0], dtype=np.bool_))
    for _ in range(_MOST_ROUNDS):
        if not some_in(todo):
            break
        again, _ = _once(facts._replace(proposed=done.table), todo)
        todo = (again.table != done.table).any(axis=(1, 2))
        done = replace(
            done,
            table=again.table,
            reason=done.reason | again.reason,
            fallback=done.fallback | again.fallback,
        )
    return done


def _once(facts: Facts, todo: NDArray[np.bool_]) -> tuple[Shielded, NDArray[np.bool_]]:
    """One round over the fleets of ``todo`` [B], others as proposed; and which need another round, [B]."""
    batch, slices, columns = facts.proposed.shape
    outcome = Outcome(
        table=facts.proposed.copy(),
        target=np.empty_like(facts.proposed),
        reason=np.zeros((batch, slices), dtype=np.int64),
        size=np.zeros((batch, slices, len(STAGES))),
        voluntary=np.zeros((batch, slices), dtype=np.bool_),
        bounded=np.empty((batch, columns - 1), dtype=np.bool_),
        most_rps=np.empty((batch, columns - 1)),
    )
    stuck, again = np.zeros((2, batch), dtype=np.bool_)
    known, found = tuple(facts), tuple(outcome)
    if _plan_and_settle(known, found, todo, stuck, again, False):
        for b in np.flatnonzero(stuck):
            outcome.table[b] = place_exactly(facts_of(facts, b), outcome.target[b])
        _plan_and_settle(known, found, stuck, stuck, again, True)
    done = Shielded(
        table=outcome.table,
        reason=outcome.reason,
        size=outcome.size,
        fallback=stuck,
        voluntary=outcome.voluntary,
    )
    return done, again


def _facts(proposal: Table, view: ShieldView, fleet: FleetSetup, limits: ShieldLimits) -> Facts:
    plain = np.ascontiguousarray
    kernels = len(fleet.layout.kernels)
    stages = _all_active(kernels) if fleet.stage is None else _stages(fleet.stage)
    batch, slices, _ = view.last.shape
    each_rps = fleet.capacity_rps if view.replica_rps is None else view.replica_rps
    most_rps = each_rps * limits.max_load_ratio if view.most_rps is None else view.most_rps
    loads = load_limits(view.last, view.offered_rps, view.ready * each_rps, view.ready * most_rps, limits)
    facts = Facts(
        proposed=plain(proposal, dtype=np.float64),
        last=plain(view.last),
        allowed=np.empty((batch, slices, kernels), dtype=np.bool_),
        failover=np.empty((batch, slices), dtype=np.int64),
        may_move=plain(view.may_move),
        offered_rps=plain(view.offered_rps),
        limit_rps=loads.limit_rps,
        capacity_rps=loads.capacity_rps,
        comfort_rps=loads.comfort_rps,
        loss=np.ones((batch, slices, kernels)),
        canary=stages.canary,
        order=_order(fleet.contract),
        known_good=fleet.layout.known_good,
        least_canary=min(limits.canary_least_ratio, limits.canary_most_ratio),
        most_canary=limits.canary_most_ratio,
        most_shed=limits.max_shed_ratio,
        most_moved=limits.max_move_ratio,
    )
    known = _Known(
        certified=plain(view.certified),
        violated=plain(view.hard_violated),
        ready=plain(view.ready),
        shadow=stages.shadow,
        active=stages.active,
        least_ready=limits.min_ready_replicas,
        sheds=fleet.contract.shed_when_uncertified,
    )
    _find_allowed(known, facts.allowed, facts.failover, facts.known_good)
    if view.loss is not None:
        _find_soft(known, plain(view.loss), facts.allowed, facts.failover, facts.loss)
    return facts


class _Stages(NamedTuple):
    """Stages of the kernels; all bool [K]."""

    shadow: NDArray[np.bool_]  # [K]
    canary: NDArray[np.bool_]  # [K]
    active: NDArray[np.bool_]  # [K]


def _stages(stage: NDArray[np.int64]) -> _Stages:
    """stage: int64 [K], a ``Stage`` each."""
    return _Stages(shadow=stage == _SHADOW, canary=stage == _CANARY, active=stage == _ACTIVE)


@lru_cache(maxsize=64)
def _all_active(kernels: int) -> _Stages:
    """Stages of a pool that declares none."""
    return _stages(np.full(kernels, _ACTIVE))


@lru_cache(maxsize=64)
def _order(contract: CompiledContract) -> NDArray[np.int64]:
    """int64 [S]: slices, highest priority first."""
    return np.argsort(-contract.priority, kind="stable")


class _Known(NamedTuple):
    """Facts that decide which cells may carry weight."""

    certified: NDArray[np.bool_]  #: [B, K, S]
    violated: NDArray[np.bool_]  #: [B, K, S], a hard clause
    ready: NDArray[np.int64]  #: [B, K]
    shadow: NDArray[np.bool_]  #: [K], takes no user traffic
    active: NDArray[np.bool_]  #: [K], neither that nor a canary
    least_ready: int
    sheds: bool  #: the contract sheds where no certified kernel lives


@compiled
def _find_allowed(known, allowed, failover, known_good):
    """Fill in ``allowed`` and ``failover`` of ``Facts``."""
    known, allowed, failover = borrowed((known, allowed, failover))
    for b in range(allowed.shape[0]):
        serves = known.ready[b, known_good] >= known.least_ready and not known.sheds
        for s in range(allowed.shape[1]):
            some = False
            for k in range(allowed.shape[2]):
                alive = known.ready[b, k] >= known.least_ready and not known.shadow[k]
                allowed[b, s, k] = alive and known.certified[b, k, s] and not known.violated[b, k, s]
                some |= allowed[b, s, k]
            failover[b, s] = -1
            if not some:
                failover[b, s] = known_good if serves else allowed.shape[2]
                allowed[b, s, known_good] = serves


@compiled
def _find_soft(known, given, allowed, failover, loss):
    """Fill in ``loss`` of ``Facts`` from that ``given`` [B, K, S] for cells that break no hard clause.

    Canaries stay out, and rows that the contract chose to shed.
    """
    known, given, allowed, failover, loss = borrowed((known, given, allowed, failover, loss))
    for b in range(allowed.shape[0]):
        for s in range(allowed.shape[1]):
            if failover[b, s] == allowed.shape[2]:
                continue
            for k in range(allowed.shape[2]):
                alive = known.ready[b, k] >= known.least_ready and known.active[k]
                if alive and not known.violated[b, k, s] and not allowed[b, s, k]:
                    loss[b, s, k] = max(given[b, k, s], 0.0)


@compiled
def _plan_and_settle(facts, outcome, todo, stuck, again, placed):
    """Both passes over the fleets of ``todo`` [B]; returns whether any fleet is ``stuck`` [B].

    Fleets that need the exact solver are marked as stuck after the first pass. With ``placed``, the solver
    has placed the fleets of ``todo``, and only the second pass runs.

    Canaries' bounds, minimum shares, loads beyond the comfortable one, soft cells and the solver free
    headroom for each other. Where any of them acted, another round may change the table (``again`` [B]).
    """
    facts, outcome = borrowed((Facts(*facts), Outcome(*outcome)))
    work, some = new_work(facts.allowed.shape[1], facts.allowed.shape[2]), False
    some_canary = facts.canary.any()
    for b in range(todo.shape[0]):
        if not todo[b]:
            continue
        one, made = facts_of(facts, b), outcome_of(outcome, b)
        if not placed:
            stuck[b] = plan_fleet(one, made, work)
            some |= stuck[b]
        if placed or not stuck[b]:
            again[b] = settle_fleet(one, made, work) or placed or some_canary
            for k in range(made.most_rps.shape[0]):
                again[b] |= made.most_rps[k] > one.comfort_rps[k]
            for reason in made.reason:
                again[b] |= reason & SOFT > 0
    return some
