"""Why weights moved: the clause behind each move, what the shield did by stage, what the baseline wanted."""

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

#: Weights closer than this are the same in a record.
SAME = 1e-12


#: ``because`` of a move that nothing but capacity asks for.
CAPACITY_ALONE = ("capacity",)


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightMove:
    """One weight that changed."""

    slice: str
    target: str  # a kernel, or "shed"
    before: float
    after: float
    proposed: float  # by the policy
    forced: float  # what supervisor and shield changed of the policy's own
    driven: float  # by the driving policy, which is the baseline after a demotion
    baseline: float | None  # proposed by the baseline on the same observation (None: it was not asked)
    because: tuple[str, ...]  # clauses, or what else explains it


@dataclass(frozen=True, slots=True, kw_only=True)
class ShieldStep:
    """What the shield did to one row: its reasons, and by stage the half L1 that it changed."""

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
    """A weight that the baseline would have asked for otherwise than the policy did."""

    slice: str
    target: str
    proposed: float
    baseline: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A clause of the meta-contract as it stands: value within limit, or not."""

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
    """Why row ``s`` moved: what is wrong with a kernel that the policy or the shield took weight from."""
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
    """Clauses that the kernel is condemned for on the slice, and what else is wrong with it."""
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
    """Clauses that the kernel was re-certified for on the slice at this tick."""
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
    """Soft cells that the shield lets carry weight, each with the comparison that let it."""
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
    """What the supervisor read of the clauses that it watches, as far as it is known and finite."""
    if meta is None or decision.readings is None:
        return ()
    read = decision.readings[fleet]
    return tuple(
        Reading(metric=POLICY_METRICS[m], value=float(read[m]), limit=float(meta.limit[m]))
        for m in np.flatnonzero(meta.online & np.isfinite(read))
    )
