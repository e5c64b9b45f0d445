"""Why a tick decided as it did: one frozen record per tick and fleet, ready for a log.

The core writes no logs; adapters write these records. Each moved weight is shown with the clauses in alarm on
its slice and their evidence, the policy's proposal, the changes by supervisor and shield, and the baseline's
proposal (``controller.explain.moves``).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.contract import CompiledContract, Level
from contracts.loading.files import json_text
from controller.decision import Decision
from controller.detect.sums import COUNT, OVER, TOTAL
from controller.explain.assumptions import assumptions
from controller.explain.moves import (
    LesserEvil,
    Reading,
    ShieldStep,
    WeightMove,
    WhatIf,
    demotion_reason,
    lesser_evils,
    moves,
    online_readings,
    shield_steps,
    what_if,
)
from controller.explain.own_moves import WatchedMove, watched_moves
from controller.options import ControllerSetup
from controller.state import ControllerState, QuarantineReason


@dataclass(frozen=True, slots=True, kw_only=True)
class ClauseEvidence:
    """One clause in alarm."""

    kernel: str
    slice: str
    clause_id: str
    observations: float  # number of observations behind it
    estimate: float  # their mean, or the share of them over the threshold
    limit: float  # limit of the estimate
    excess: float  # relative distance beyond the limit


@dataclass(frozen=True, slots=True, kw_only=True)
class ClauseState:
    """A kernel that is unhealthy or not certified on a slice."""

    kernel: str
    slice: str
    health: float
    level: str
    certified: bool
    hard_violated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantinedReplica:
    """A replica in quarantine, why, and whether this tick put it there."""

    replica: str
    reason: str
    new: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRecord:
    """One tick of one fleet."""

    tick: int
    now_s: float  # of the controller's clock
    plan_version: int
    policy_id: str
    contract_sha256: str
    moves: tuple[WeightMove, ...]
    evidence: tuple[ClauseEvidence, ...]
    verdicts: tuple[ClauseState, ...]
    quarantined: tuple[QuarantinedReplica, ...]
    readmitted: tuple[str, ...]  # replicas
    drifted: tuple[str, ...]  # replicas that drifted from the certified baseline
    unreadable: tuple[str, ...]  # replicas with an unreadable answer to a probe
    held: bool
    degraded: bool
    capacity_move: bool
    shield: tuple[ShieldStep, ...]
    lesser_evils: tuple[LesserEvil, ...]  # weights served where soft clauses are broken
    what_if: tuple[WhatIf, ...]  # weights on which the baseline disagrees with the policy
    demoted: bool
    demotion_reason: str
    readings: tuple[Reading, ...]  # of the meta-contract
    own_moves: tuple[WatchedMove, ...]  # watched, taken back or held
    assumptions: tuple[str, ...]  # declared or certified values used instead of measured ones


def explain(
    before: ControllerState,
    after: ControllerState,
    decision: Decision,
    setup: ControllerSetup,
    fleet: int = 0,
    baseline: NDArray[np.float64] | None = None,
) -> DecisionRecord:
    """Record of fleet number ``fleet`` for the tick that led from ``before`` to ``after``.

    baseline: float64 [B, S, K + 1], what another policy proposed on the decision's observation; by default
    the proposal of the meta-contract's baseline, where there is one.
    """
    other = decision.baseline_proposed if baseline is None else baseline
    theirs = None if other is None else other[fleet]
    return DecisionRecord(
        tick=int(after.ticks[fleet]),
        now_s=float(after.now_s[fleet]),
        plan_version=int(decision.plan.version[fleet]),
        policy_id=setup.policy.policy_id,
        contract_sha256=setup.contract.sha256,
        moves=moves(before, after, decision, setup, fleet, theirs),
        evidence=_evidence(decision, setup, fleet),
        verdicts=_verdicts(decision, setup, fleet),
        quarantined=_quarantined(before, decision, setup, fleet),
        readmitted=tuple(
            setup.layout.replicas[replica]
            for replica in np.flatnonzero(before.quarantined[fleet] & ~decision.quarantined[fleet])
        ),
        drifted=_drifted(decision, setup, fleet),
        unreadable=tuple(setup.layout.replicas[r] for (r,) in _places(decision.unreadable[fleet] > 0)),
        held=bool(decision.held[fleet]),
        degraded=bool(decision.degraded[fleet]),
        capacity_move=bool(decision.capacity_move[fleet]),
        shield=shield_steps(decision, setup, fleet),
        lesser_evils=lesser_evils(decision, setup, fleet),
        what_if=what_if(decision, setup, fleet, theirs),
        demoted=bool(decision.demoted[fleet]),
        demotion_reason=demotion_reason(decision, fleet),
        readings=online_readings(decision, setup.meta, fleet),
        own_moves=watched_moves(after, decision, setup, fleet),
        assumptions=assumptions(after, decision, setup, fleet),
    )


def record_json(record: DecisionRecord) -> str:
    """One line of sorted JSON; equal records give equal text."""
    return json_text(asdict(record))


def _evidence(decision: Decision, setup: ControllerSetup, fleet: int) -> tuple[ClauseEvidence, ...]:
    judgement, contract = decision.judgement, setup.contract
    return tuple(
        ClauseEvidence(
            kernel=setup.layout.kernels[k],
            slice=setup.layout.slices[s],
            clause_id=contract.clause_ids[c],
            observations=float(_sums(decision, setup, fleet, (k, s, c))[COUNT]),
            estimate=_estimate(_sums(decision, setup, fleet, (k, s, c)), bool(contract.is_rate[c])),
            limit=_limit(contract, c),
            excess=float(judgement.excess[fleet, k, s, c]),
        )
        for k, s, c in _places(judgement.alarm[fleet])
    )


def _verdicts(decision: Decision, setup: ControllerSetup, fleet: int) -> tuple[ClauseState, ...]:
    judgement = decision.judgement
    shown = (judgement.level[fleet] > 0) | ~judgement.certified[fleet] | (judgement.health[fleet] > 0.0)
    return tuple(
        ClauseState(
            kernel=setup.layout.kernels[k],
            slice=setup.layout.slices[s],
            health=float(judgement.health[fleet, k, s]),
            level=Level(int(judgement.level[fleet, k, s])).name.lower(),
            certified=bool(judgement.certified[fleet, k, s]),
            hard_violated=bool(judgement.hard_violated[fleet, k, s]),
        )
        for k, s in _places(shown)
    )


def _quarantined(
    before: ControllerState, decision: Decision, setup: ControllerSetup, fleet: int
) -> tuple[QuarantinedReplica, ...]:
    return tuple(
        QuarantinedReplica(
            replica=setup.layout.replicas[r],
            reason=QuarantineReason(int(decision.quarantine_reason[fleet, r])).name.lower(),
            new=not bool(before.quarantined[fleet, r]),
        )
        for (r,) in _places(decision.quarantined[fleet])
    )


def _drifted(decision: Decision, setup: ControllerSetup, fleet: int) -> tuple[str, ...]:
    """Replicas with probes that differ from their certified values: information, no verdict."""
    if decision.drifted is None:
        return ()
    return tuple(setup.layout.replicas[r] for r in np.flatnonzero(decision.drifted[fleet]))


def _places(mask: NDArray[np.bool_]) -> list[tuple[int, ...]]:
    return [tuple(int(index) for index in place) for place in np.argwhere(mask)]


def _sums(
    decision: Decision, setup: ControllerSetup, fleet: int, place: tuple[int, ...]
) -> NDArray[np.float64]:
    """Sums behind an alarm: the pool's, or those of the replicas in alarm where it spread from them."""
    kernel, s, c = place
    if not decision.judgement.spread[fleet, kernel, s, c]:
        return np.asarray(decision.judged[fleet, kernel, s, c])
    in_alarm = (setup.layout.replica_kernel == kernel) & decision.replica_alarm[fleet, :, s, c]
    return np.asarray(decision.replica_judged[fleet, in_alarm, s, c].sum(axis=0))


def _estimate(sums: NDArray[np.float64], is_rate: bool) -> float:
    return float(sums[OVER if is_rate else TOTAL] / max(float(sums[COUNT]), 1.0))


def _limit(contract: CompiledContract, clause: int) -> float:
    return float(contract.rate_limit[clause] if contract.is_rate[clause] else contract.threshold[clause])
