"""Reasons of moved weights: the clauses behind each move, the shield's changes, the baseline's proposal."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.meta import POLICY_METRICS, CompiledMeta
from controller.decision import Decision
from controller.detect.clauses import moves_traffic
from controller.explain.own_moves import why_back
from controller.options import ControllerSetup
from controller.shield.lesser_evil import WHOLE
from controller.shield.records import ShieldReason
from controller.state import ControllerState
from controller.supervise.meta import NO_REASON, OPERATOR

#: Weights that differ by less are equal in a record.
SAME = 1e-12


#: ``because`` of a move for capacity alone.
CAPACITY_ALONE = ("capacity",)


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightMove:
    """One weight that changed."""

    slice: str
    target: str  # a kernel, or "shed"
    before: float
    after: float
    proposed: float  # by the policy
    forced: float  # change of the policy's proposal by supervisor and shield
    driven: float  # by the driving policy, which is the baseline after a demotion
    baseline: float | None  # proposed by the baseline on the same observation (None: it was not asked)
    because: tuple[str, ...]  # clauses, or other reasons


@dataclass(frozen=True, slots=True, kw_only=True)
class ShieldStep:
    """Changes of one row by the shield: its reasons, and the half L1 changed by each stage."""

    slice: str
    reasons: tuple[str, ...]
    sizes: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LesserEvil:
    """Weight that is served where soft clauses are broken, because no other kernel could carry it."""

    slice: str
    kernel: str
    weight: float
    loss: float  # of an answer there, in answers, by the contract's weights
    loss_if_shed: float  # of the same request without an answer


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """A weight on which the baseline's proposal differs from the policy's."""

    slice: str
    target: str
    proposed: float
    baseline: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Present reading of a clause of the meta-contract, with its limit."""

    metric: str
    value: float
    limit: float


def targets(setup: ControllerSetup) -> tuple[str, ...]:
    """Names of the columns of a table."""
    return (*setup.layout.kernels, "shed")


def moves(
    before: ControllerState,
    after: ControllerState,
    decision: Decision,
    setup: ControllerSetup,
    fleet: int,
    baseline: NDArray[np.float64] | None,
) -> tuple[WeightMove, ...]:
    """Every weight that changed. baseline: float64 [S, K + 1], or None."""
    old, new = before.table[fleet], decision.table[fleet]
    changed = np.abs(new - old) > SAME
    names = targets(setup)
    rows = np.flatnonzero(changed.any(axis=1))
    because = {int(s): _reasons(before, after, decision, setup, fleet, int(s)) for s in rows}
    return tuple(
        WeightMove(
            slice=setup.layout.slices[s],
            target=names[k],
            before=float(old[s, k]),
            after=float(new[s, k]),
            proposed=float(decision.proposed[fleet, s, k]),
            forced=float(decision.shield_delta[fleet, s, k]),
            driven=float(decision.driven[fleet, s, k]),
            baseline=None if baseline is None else float(baseline[s, k]),
            because=because[int(s)],
        )
        for s, k in np.argwhere(changed)
    )


def _reasons(
    before: ControllerState,
    after: ControllerState,
    decision: Decision,
    setup: ControllerSetup,
    fleet: int,
    s: int,
) -> tuple[str, ...]:
    """Reasons why row ``s`` moved: faults of kernels that lost weight, recoveries of those that gained."""
    old, new = before.table[fleet, s], decision.table[fleet, s]
    found = why_back(decision, fleet, s)
    for k in np.flatnonzero(new[:-1] < old[:-1] - SAME):
        found += _against(after, decision, setup, fleet, (int(k), s))
    for k in np.flatnonzero(new[:-1] > old[:-1] + SAME):
        found += _healed(before, after, setup, fleet, (int(k), s))
    if decision.capacity_move[fleet] or int(decision.shielded.reason[fleet, s]) & ShieldReason.CAPACITY:
        found += CAPACITY_ALONE
    if decision.held[fleet] or decision.degraded[fleet]:
        found.append("telemetry is silent")
    return tuple(dict.fromkeys(found)) or (_else(decision, fleet),)


def _against(
    after: ControllerState, decision: Decision, setup: ControllerSetup, fleet: int, place: tuple[int, int]
) -> list[str]:
    """Clauses for which the kernel is condemned on the slice, and other faults of it."""
    kernel, s = place
    name, judgement = setup.layout.kernels[kernel], decision.judgement
    condemned = after.condemned[fleet, kernel, s] | judgement.alarm[fleet, kernel, s]
    severe = condemned & moves_traffic(setup.contract)
    found = [f"{setup.contract.clause_ids[c]} on {name}" for c in np.flatnonzero(severe)]
    if judgement.down[fleet, kernel]:
        found.append(f"{name} fails or hangs as a whole")
    if decision.observation.ready[fleet, kernel] <= 0:
        found.append(f"{name} has no replica in rotation")
    return found


def _healed(
    before: ControllerState,
    after: ControllerState,
    setup: ControllerSetup,
    fleet: int,
    place: tuple[int, int],
) -> list[str]:
    """Clauses for which the kernel was re-certified on the slice in this tick."""
    kernel, s = place
    healed = before.condemned[fleet, kernel, s] & ~after.condemned[fleet, kernel, s]
    name = setup.layout.kernels[kernel]
    return [f"{setup.contract.clause_ids[c]} re-certified on {name}" for c in np.flatnonzero(healed)]


def _else(decision: Decision, fleet: int) -> str:
    return "the baseline's own pace" if decision.demoted[fleet] else "the policy's own choice"


def shield_steps(decision: Decision, setup: ControllerSetup, fleet: int) -> tuple[ShieldStep, ...]:
    """Rows that the shield changed; ``sizes`` in the order of ``controller.shield.gate.STAGES``."""
    shielded = decision.shielded
    return tuple(
        ShieldStep(
            slice=setup.layout.slices[s],
            reasons=tuple(
                r.name.lower() for r in ShieldReason if r.name and int(shielded.reason[fleet, s]) & r
            ),
            sizes=tuple(float(size) for size in shielded.size[fleet, s]),
        )
        for s in np.flatnonzero(shielded.reason[fleet])
    )


def lesser_evils(decision: Decision, setup: ControllerSetup, fleet: int) -> tuple[LesserEvil, ...]:
    """Soft cells to which the shield gives weight, each with the two losses compared."""
    loss = decision.judgement.loss
    if loss is None:
        return ()
    soft = (decision.shielded.reason[fleet] & ShieldReason.SOFT) > 0
    shown = soft[:, None] & ~decision.judgement.certified[fleet].T & (decision.table[fleet, :, :-1] > SAME)
    return tuple(
        LesserEvil(
            slice=setup.layout.slices[s],
            kernel=setup.layout.kernels[k],
            weight=float(decision.table[fleet, s, k]),
            loss=float(loss[fleet, k, s]),
            loss_if_shed=WHOLE,
        )
        for s, k in np.argwhere(shown)
    )


def what_if(
    decision: Decision, setup: ControllerSetup, fleet: int, baseline: NDArray[np.float64] | None
) -> tuple[WhatIf, ...]:
    """Weights on which policy and baseline disagree; none where the baseline was not asked (None)."""
    if baseline is None:
        return ()
    ours, names = decision.proposed[fleet], targets(setup)
    return tuple(
        WhatIf(
            slice=setup.layout.slices[s],
            target=names[k],
            proposed=float(ours[s, k]),
            baseline=float(baseline[s, k]),
        )
        for s, k in np.argwhere(np.abs(ours - baseline) > SAME)
    )


def demotion_reason(decision: Decision, fleet: int) -> str:
    """Metric that the policy broke, or "operator"; empty while it drives."""
    reason = int(decision.demotion_reason[fleet])
    if reason == NO_REASON:
        return ""
    return "operator" if reason == OPERATOR else POLICY_METRICS[reason]


def online_readings(decision: Decision, meta: CompiledMeta | None, fleet: int) -> tuple[Reading, ...]:
    """The supervisor's readings of the clauses that it watches, as far as they are known and finite."""
    if meta is None or decision.readings is None:
        return ()
    read = decision.readings[fleet]
    return tuple(
        Reading(metric=POLICY_METRICS[m], value=float(read[m]), limit=float(meta.limit[m]))
        for m in np.flatnonzero(meta.online & np.isfinite(read))
    )
