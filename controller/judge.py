"""Evidence to judgement: health, level, hard violations and certification of every (kernel, slice)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from contracts.compiled import Level, Source
from contracts.health import health
from contracts.telemetry import FleetTelemetry, ReplicaState
from controller.detectors import COUNT, Arrivals, DetectorState, Verdicts, relative_excess
from controller.estimate import Estimate, kernel_count, kernel_max, pool
from controller.quarantine import Departures, Pooled, severe_clauses
from controller.setup import ControllerSetup
from controller.state import ControllerState


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What the evidence says of each kernel on each slice.

    alarm: bool [B, K, S, C]; excess: float64 [B, K, S, C]; health: float64 [B, K, S];
    level: int64 [B, K, S]; hard_violated, certified: bool [B, K, S]; evidence_count: float64 [B, K, S].
    judged: float64 [B, K, S, C, 4], sums behind the pooled verdicts; spread: bool [B, K, S, C], in alarm
    through single replicas, not through the pool. down: bool [B, K], every replica in rotation is or
    lately was failing or hung. evidence_ratio: float64 [B, K, S] in 0..2, how near an alarm that moves
    traffic is (``Detector.evidence_ratio`` of the pool), at least 1 where one is in force.
    """

    alarm: NDArray[np.bool_]
    excess: NDArray[np.float64]
    health: NDArray[np.float64]
    level: NDArray[np.int64]
    hard_violated: NDArray[np.bool_]
    certified: NDArray[np.bool_]
    evidence_count: NDArray[np.float64]
    judged: NDArray[np.float64]
    spread: NDArray[np.bool_]
    down: NDArray[np.bool_]
    evidence_ratio: NDArray[np.float64]


def judge(
    estimate: Estimate, state: ControllerState, seen: FleetTelemetry, verdicts: Verdicts,
    apart: Departures, setup: ControllerSetup, pooled: Pooled | None = None,
) -> tuple[ControllerState, Judgement]:  # fmt: skip
    """Judge the kernels: pooled detector, alarms that spread from replicas, latch of the condemned.

    A hard violation, like every condemnation, lasts until the clause is re-certified. ``pooled``: what a
    detector ``by_unit`` said of the kernels before quarantine acted.
    """
    kernels, _, _ = setup.layout.shape
    owner = setup.layout.replica_kernel
    if pooled is None:
        sums = pool_if_due(state, estimate, setup)
        judged, memory = setup.detector.update(state.kernel_detector, sums, estimate.closed, setup.contract)
    else:
        judged, memory = _without_the_departed(pooled, estimate, state, verdicts, setup)
    spread = kernel_count(apart.spread, owner, kernels) > 0 if bool(apart.spread.any()) else None
    alarm, excess = judged.alarm, judged.excess
    if spread is not None:
        worst = kernel_max(np.where(apart.spread, verdicts.excess, 0.0), owner, kernels)
        alarm, excess = alarm | spread, np.maximum(excess, np.where(spread, worst, 0.0))
    condemned = alarm | (state.condemned & ~(judged.inside & judged.fresh))
    score, level = _health(alarm, excess, setup)
    down_until_s = _down_until_s(state, seen, apart, setup)
    down = state.now_s[:, None] < down_until_s
    sick = down[:, :, None]
    judgement = Judgement(
        alarm=alarm,
        excess=excess,
        health=np.where(sick, np.maximum(score, setup.contract.fallback_threshold), score),
        level=np.where(sick, int(Level.FALLBACK), level),
        hard_violated=np.asarray((condemned & setup.contract.hard).any(axis=3)),
        certified=~(condemned & severe_clauses(setup)).any(axis=3) & ~sick,
        evidence_count=judged.judged[..., setup.contract.source == Source.PROBE, COUNT].max(
            axis=3, initial=0.0
        ),
        judged=judged.judged,
        spread=alarm & ~judged.alarm,
        down=down,
        evidence_ratio=_evidence_ratio(memory, alarm, setup),
    )
    state = replace(state, condemned=condemned, down_until_s=down_until_s, kernel_detector=memory)
    return state, judgement


def pooled_verdicts(estimate: Estimate, arrived: Arrivals, setup: ControllerSetup) -> Pooled:
    """What a detector ``by_unit`` says of the kernels, with everybody who was in rotation."""
    before = estimate.state.kernel_detector
    nothing = np.zeros((*arrived.sums.shape[:-1], 4))
    verdicts, memory = setup.detector.update(before, nothing, estimate.closed, setup.contract, arrived)
    return Pooled(verdicts=verdicts, memory=memory)


def _without_the_departed(
    pooled: Pooled, estimate: Estimate, state: ControllerState, verdicts: Verdicts, setup: ControllerSetup
) -> tuple[Verdicts, DetectorState]:
    """Drop evidence that a replica now in quarantine took part in, where the rest speaks for the kernel."""
    kernels, _, _ = setup.layout.shape
    owner = setup.layout.replica_kernel
    left = kernel_count(state.quarantined & ~estimate.state.quarantined, owner, kernels) > 0
    if not bool(left.any()):
        return pooled.verdicts, pooled.memory
    rest = pool(verdicts.judged, ~state.quarantined, owner, kernels)
    dropped = left[:, :, None, None] & (relative_excess(rest, setup.contract) <= 0.0)
    before = estimate.state.kernel_detector["alarm"].astype(np.bool_)
    kept = np.where(dropped, before, pooled.verdicts.alarm)
    memory = setup.detector.forget(pooled.memory, dropped)
    memory = {**memory, "alarm": kept, "excess": np.where(kept, pooled.verdicts.excess, 0.0)}
    return replace(pooled.verdicts, alarm=kept, excess=np.where(kept, pooled.verdicts.excess, 0.0)), memory


def _health(
    alarm: NDArray[np.bool_], excess: NDArray[np.float64], setup: ControllerSetup
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    score, level = np.zeros(alarm.shape[:3]), np.zeros(alarm.shape[:3], dtype=np.int64)
    some = np.flatnonzero(alarm.any(axis=(1, 2, 3)))
    if some.size:
        score[some], level[some] = health(alarm[some], excess[some], setup.contract)
    return score, level


def _evidence_ratio(
    memory: DetectorState, alarm: NDArray[np.bool_], setup: ControllerSetup
) -> NDArray[np.float64]:
    """The pool's, and at least 1 where an alarm that moves traffic spread from single replicas."""
    own = setup.detector.evidence_ratio(memory, setup.contract)
    some = np.flatnonzero(alarm.any(axis=(1, 2, 3)))
    if some.size:
        in_force = (alarm[some] & severe_clauses(setup)).any(axis=3)
        own[some] = np.where(in_force, np.maximum(own[some], 1.0), own[some])
    return own


def pool_if_due(state: ControllerState, estimate: Estimate, setup: ControllerSetup) -> NDArray[np.float64]:
    """Pooled window sums of the kernels where the window closes, zero elsewhere."""
    kernels, slices, _ = setup.layout.shape
    if not bool(estimate.closed.any()):
        return np.zeros((len(state.ticks), kernels, slices, len(setup.contract.clause_ids), 4))
    pooled = pool(state.window, ~state.quarantined, setup.layout.replica_kernel, kernels)
    return np.asarray(np.where(estimate.closed[:, None, None, None, None], pooled, 0.0))


def _down_until_s(
    state: ControllerState, seen: FleetTelemetry, apart: Departures, setup: ControllerSetup
) -> NDArray[np.float64]:
    """A kernel is down while every replica in rotation fails or hangs, and some time after.

    The time after is needed because a kernel without traffic has no failures: without it the slice would
    come back at the next tick.
    """
    if not bool(apart.down.any()):
        return state.down_until_s
    kernels, _, _ = setup.layout.shape
    owner = setup.layout.replica_kernel
    serving = (seen.replica_state == ReplicaState.READY) & ~state.quarantined
    broken = apart.down | (seen.consecutive_failed >= setup.options.failing_after)
    count = kernel_count(serving, owner, kernels)
    whole = (count > 0) & (kernel_count(serving & broken, owner, kernels) == count)
    now = whole & (kernel_count(serving & apart.down, owner, kernels) > 0)
    return np.where(now, state.now_s[:, None] + setup.options.readmit_after_s, state.down_until_s)
