"""Linear-program policy: the table of least expected loss, with every kernel's estimates taken as certain.

Over the shares ``x[s, k]`` of each slice, the shed share ``x[s, K]``, the gains ``m[s, k]`` and how far
``o`` the fullest kernel is beyond the planned share of its capacity:

    minimise   sum_s d_s (sum_k x[s,k] (loss[k,s] + capacity work_k + away [k is not home of s])
                          + x[s,K] shed_s + move sum_k m[s,k]) + overload o sum_k capacity_k
    subject to sum_k x[s,k] + x[s,K] = 1                    every row is a row of shares
               sum_s d_s x[s,k] <= (fill + o) capacity_k    of what is in rotation
               x[s,K] = 0 where s has an open cell          shedding for capacity is the shield's decision
               x[s,k] - m[s,k] <= last[s,k]                 a gain of weight costs
               x[s,k] = 0 on closed cells

d_s: offered rate. One ``o`` for all levels load that fits nowhere; the sum is over kernels with an open
cell. The shield decides for all policies which of that load is shed, or served although a soft clause is
broken. Kept rows stay up to ``o <= 1.25 - fill``. Closed are cells that are not compliant
(``policies.rules.threshold``), or were not within the last ``dwell_s`` (doubled with each relapse, at most
eight times) while another was. If no cell of a slice is compliant the contract chooses: shed or known-good.

``loss`` is certainty-equivalent: the certified loss of the healthy kernel (measured profiles), at least the
contract's limit times one plus the relative excess where a numeric clause is in alarm, and with
``evidence_weight`` above 0 that share of the limit for as much of an alarm's evidence as there is.

It is solved (HiGHS) when estimates change beyond a tolerance, when a kernel is overfull, or when a row that
It is solved (HiGHS) when estimates change beyond a tolerance, when a kernel is overfull, or when a row away
from home may return; fleet by fleet, so that no result depends on the batch. Equal costs are resolved by
the order of the kernels. When estimates change, unaffected rows are kept; ten seconds later these may move
to make room (or at once if nothing else carries the load), counted as moves for capacity alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.contract import CompiledContract
from contracts.telemetry import Source
from controller.ports import Observation, PolicyState, Proposal
from policies.program.model import Costs, TableProgram, solve
from policies.rules.hysteresis import DOUBLED_DWELLS, FORGIVEN_DWELLS
from policies.rules.threshold import compliant

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

#: Time after a move caused by estimates until other rows may make room for it: a move for capacity.
_MAKE_ROOM_S = 10.0


def _unconcerned(problem: TableProgram, dearer: Flags) -> Flags:
    """bool [S]: rows that estimates do not ask to move: planned on open cells that have not become
    ``dearer`` (bool [K, S]), and at home or unable to return.
    """
    planned, slices = problem.last[:, :-1] > 0.0, np.arange(problem.home.size)
    wrong = (planned & (~problem.open_ | dearer).T).any(axis=1) | (problem.last[:, -1] > 0.0)
    at_home = problem.last[slices, problem.home] >= 1.0
    away = at_home | ~problem.open_[problem.home, slices]
    return np.asarray(planned.any(axis=1) & ~wrong & away)


def numeric_limit(contract: CompiledContract, metrics: tuple[str, ...]) -> float:
    """Quality loss at the limit of the contract's numeric clauses: its least mean total variation.

    Without such a clause, the bound by Pinsker's inequality from its least mean KL, else 0.05.
    """
    for column, of in (("tv_mean", float), ("kl_mean", lambda nats: math.sqrt(nats / 2.0))):
        limits = [
            of(float(contract.threshold[clause]))
            for clause in np.flatnonzero((contract.source == Source.PROBE) & ~contract.is_rate)
            if metrics[contract.column[clause]].startswith(column)
        ]
        if limits:
            return min(limits)
    return 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearProgramPolicy:
    """See the module."""

    policy_id: str
    healthy_loss: Floats  #: [K, S], certified loss of healthy kernels
    limit: float  #: quality loss at the limit of the contract's numeric clauses
    priority: NDArray[np.int64]  #: [S]
    shed_when_uncertified: bool
    costs: Costs = field(default_factory=Costs)
    dwell_s: float = 60.0  #: time for which a cell must have been compliant
    evidence_weight: float = 0.0  #: 0 acts on alarms alone
    load_tolerance: float = 0.15  #: share of capacity by which load must differ for a row to try to go home
    loss_tolerance: float = 0.005  #: change of an estimated loss that counts
    replan_s: float = 30.0  #: least time between two solutions that only the load requires

    def initial(self, batch: int) -> PolicyState:
        """Nothing planned yet; ``for_...`` are the inputs of the last plan."""
        kernels, slices = self.healthy_loss.shape
        cells = (batch, kernels, slices)
        return {
            "planned": np.zeros((batch, slices, kernels + 1)),
            "solved_at_s": np.full(batch, -np.inf),
            "for_load": np.zeros((batch, slices), dtype=np.bool_),  # the row moved for load alone
            "crowded": np.zeros(batch, dtype=np.bool_),  # rows were kept that may have to make room
            "for_open": np.zeros(cells, dtype=np.bool_),
            "for_loss": np.zeros(cells),
            "for_capacity_rps": np.zeros((batch, kernels)),
            "for_offered_rps": np.zeros((batch, slices)),
            "unhealthy_at_s": np.full(cells, -np.inf),  # when the cell was last not compliant
            "unhealthy": np.zeros(cells, dtype=np.bool_),  # now
            "relapses": np.zeros(cells, dtype=np.int64),
        }

    def propose(self, observation: Observation, state: PolicyState) -> tuple[Proposal, PolicyState]:
        """The last plan if nothing has changed, else the new optimum."""
        eligible, now_s = compliant(observation), observation.now_s
        health = self._remembered(eligible, now_s, state)
        rested_s = now_s[:, None, None] - health["unhealthy_at_s"].astype(np.float64)
        settled = rested_s >= self.dwell_s * 2.0 ** health["relapses"].astype(np.float64)
        open_ = self._open(eligible, eligible & settled, observation)
        loss = self.estimated_loss(observation)
        changed, loaded = self._changed(observation, state, open_, loss)
        after: PolicyState = {name: array.copy() for name, array in state.items()} | health
        for b in np.flatnonzero(changed | loaded):
            self._plan(after, observation, int(b), open_[b], loss[b], believed=bool(changed[b]))
        none_ejected = np.zeros(observation.in_rotation.shape, dtype=np.bool_)
        table = np.array(after["planned"], dtype=np.float64)
        for_load = np.array(after["for_load"], dtype=np.bool_)
        return Proposal(table=table, ejected=none_ejected, capacity_rows=for_load), after

    def _plan(
        self,
        after: PolicyState,
        observation: Observation,
        b: int,
        open_: Flags,
        loss: Floats,
        *,
        believed: bool,
    ) -> None:
        """Write the new optimum of fleet ``b`` into ``after``; believed: estimates have changed."""
        problem = self._problem(observation, b, open_, loss, np.asarray(after["planned"][b], np.float64))
        dearer = loss - after["for_loss"][b].astype(np.float64) > self.loss_tolerance
        kept = _unconcerned(problem, dearer) if believed else None
        after["planned"][b] = solve(problem, self.costs, kept)
        at_home = bool(open_[observation.home, np.arange(len(observation.home))].all())
        first = bool(np.isneginf(after["solved_at_s"][b]))
        after["for_load"][b] = True if kept is None or (first and at_home) else kept
        after["crowded"][b] = believed
        after["solved_at_s"][b], after["for_open"][b], after["for_loss"][b] = (
            observation.now_s[b],
            open_,
            loss,
        )
        after["for_capacity_rps"][b] = observation.planned_rps[b]
        after["for_offered_rps"][b] = observation.offered_rps[b]

    def _remembered(self, eligible: Flags, now_s: Floats, state: PolicyState) -> PolicyState:
        """When every cell was last unhealthy, and how often it relapsed soon after it was healthy."""
        unhealthy_at_s = np.asarray(state["unhealthy_at_s"], dtype=np.float64)
        fell = ~eligible & ~state["unhealthy"].astype(np.bool_)
        soon = now_s[:, None, None] - unhealthy_at_s < FORGIVEN_DWELLS * self.dwell_s
        more = np.where(soon, np.minimum(state["relapses"].astype(np.int64) + 1, DOUBLED_DWELLS), 0)
        return {
            "unhealthy_at_s": np.where(eligible, unhealthy_at_s, now_s[:, None, None]),
            "unhealthy": ~eligible,
            "relapses": np.where(fell, more, state["relapses"].astype(np.int64)),
        }

    def estimated_loss(self, observation: Observation) -> Floats:
        """Quality loss of each cell if the estimates were certain, float64 [B, K, S]."""
        loss = np.broadcast_to(self.healthy_loss, observation.health.shape)
        if observation.family_excess is not None:
            excess = observation.family_excess[..., 0]
            loss = np.where(excess > 0.0, np.maximum(loss, self.limit * (1.0 + excess)), loss)
        if self.evidence_weight > 0.0 and observation.evidence_ratio is not None:
            loss = loss + self.evidence_weight * self.limit * np.clip(observation.evidence_ratio, 0.0, 1.0)
        return np.minimum(loss, 1.0)

    def _open(self, eligible: Flags, settled: Flags, observation: Observation) -> Flags:
        """bool [B, K, S]: cells that may serve: settled, else compliant ones, else the contract's choice."""
        open_ = np.where(settled.any(axis=1, keepdims=True), settled, eligible)
        known_good = int(np.argmax(observation.role_known_good))
        if not self.shed_when_uncertified:
            open_[:, known_good] |= ~open_.any(axis=1) & (observation.ready[:, known_good] > 0)[:, None]
        return open_

    def _changed(
        self, observation: Observation, state: PolicyState, open_: Flags, loss: Floats
    ) -> tuple[Flags, Flags]:
        """``(changed, loaded)``, bool [B]: estimates differ from those solved for; only the load differs.

        Estimates of a closed cell are ignored: nothing is served there.
        """
        moved = open_ & (np.abs(loss - state["for_loss"].astype(np.float64)) > self.loss_tolerance)
        changed = (open_ != state["for_open"]).any(axis=(1, 2)) | moved.any(axis=(1, 2))
        solved_at_s = np.asarray(state["solved_at_s"], dtype=np.float64)
        waited_s = observation.now_s - solved_at_s
        wait_s = np.where(state["crowded"].astype(np.bool_), _MAKE_ROOM_S, self.replan_s)
        loaded = self._loaded(observation, state, open_) & (waited_s >= wait_s)
        return changed | np.isneginf(solved_at_s), np.asarray(loaded)

    def _loaded(self, observation: Observation, state: PolicyState, open_: Flags) -> Flags:
        """bool [B]: the plan newly overfills a kernel, or keeps a row from an open home that has more
        headroom than when the plan was made.
        """
        kernels, slices = open_.shape[1:]
        planned = np.asarray(state["planned"], dtype=np.float64)[:, :, :kernels]
        capacity_rps, then_rps = observation.planned_rps, state["for_capacity_rps"].astype(np.float64)
        excess = (planned * observation.offered_rps[:, :, None]).sum(axis=1) - capacity_rps
        before = (planned * state["for_offered_rps"].astype(np.float64)[:, :, None]).sum(axis=1) - then_rps
        tolerated, crowded = self.load_tolerance * capacity_rps, state["crowded"].astype(np.bool_)[:, None]
        full = (excess > 0.0) & (crowded | (before <= 0.0) | (excess > before + tolerated))
        own = np.arange(slices)
        strayed = (planned[:, own, observation.home] < 1.0) & open_[:, observation.home, own]
        roomier = crowded | (before - excess > tolerated)
        return np.asarray(full.any(axis=1) | (strayed & roomier[:, observation.home]).any(axis=1))

    def _problem(
        self, observation: Observation, b: int, open_: Flags, loss: Floats, planned: Floats
    ) -> TableProgram:
        each = observation.planned_rps[b] / np.maximum(observation.ready[b], 1)
        alive = each > 0.0
        work = each[alive].min(initial=np.inf) / np.where(alive, each, np.inf) if alive.any() else each
        rank = np.argsort(np.argsort(self.priority, kind="stable"), kind="stable")
        return TableProgram(
            offered_rps=observation.offered_rps[b],
            loss=loss,
            open_=open_,
            capacity_rps=observation.planned_rps[b],
            work=np.asarray(work),
            last=planned if planned.any() else observation.table[b],
            home=observation.home,
            shed=np.asarray(self.costs.shed * (1.0 + 0.01 * rank), dtype=np.float64),
        )
