"""Evidence to judgement: health, level, hard violations and certification of every (kernel, slice)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from contracts.telemetry import FleetTelemetry
from controller.detectors import (
    Arrivals,
    DetectorState,
    Opinion,
    Sums,
    Verdicts,
    probe_clauses,
    relative_excess,
)
from controller.estimate import Estimate, kernel_count, pool
from controller.judge_compiled import condemn, count_evidence, note_down, take_over, weigh
from controller.quarantine import Departures, severe_clauses
from controller.setup import ControllerSetup
from controller.state import ControllerState, altered


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
    apart: Departures, setup: ControllerSetup, pooled: Opinion | None = None, *, consume: bool = False,
) -> tuple[ControllerState, Judgement]:  # fmt: skip
    """Judge the kernels: pooled detector, alarms that spread from replicas, latch of the condemned.

    A hard violation, like every condemnation, lasts until the clause is re-certified. ``pooled``: what a
    detector ``by_unit`` said of the kernels before quarantine acted. ``consume``: the memory of the kernels'
    detector may be written to.
    """
    contract = setup.contract
    if pooled is None:
        judged, memory = setup.detector.update(
            state.kernel_detector, pool_if_due(state, estimate, setup), estimate.closed, contract,
            consume=consume,
        )  # fmt: skip
    else:
        judged, memory = _without_the_departed(pooled, estimate, state, verdicts, setup)
    alarm, excess = _spread(judged, verdicts, apart, setup)
    down_until_s = _down_until_s(state, seen, apart, setup)
    down = state.now_s[:, None] < down_until_s
    shape = alarm.shape[:3]
    hard_violated, certified = np.empty(shape, dtype=np.bool_), np.empty(shape, dtype=np.bool_)
    condemned = state.condemned.copy()
    condemn(
        condemned, hard_violated, certified, alarm, judged.inside, judged.fresh, down, contract.hard,
        severe_clauses(setup),
    )  # fmt: skip
    score, level = _health(alarm, excess, down, setup)
    count, ratio = np.zeros(shape), setup.detector.evidence_ratio(memory, contract).copy()
    count_evidence(count, ratio, judged.judged, alarm, probe_clauses(contract), severe_clauses(setup))
    judgement = Judgement(
        alarm=alarm, excess=excess, health=score, level=level, hard_violated=hard_violated,
        certified=certified, evidence_count=count, judged=judged.judged, spread=alarm & ~judged.alarm,
        down=down, evidence_ratio=ratio,
    )  # fmt: skip
    state = altered(state, condemned=condemned, down_until_s=down_until_s, kernel_detector=memory)
    return state, judgement


def _spread(
    judged: Verdicts, verdicts: Verdicts, apart: Departures, setup: ControllerSetup
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Alarm and excess of the kernels, with what spread from single replicas."""
    if apart.spread is None:
        return judged.alarm, judged.excess
    alarm, excess = judged.alarm.copy(), judged.excess.copy()
    take_over(alarm, excess, apart.spread, verdicts.excess, setup.layout.replica_kernel)
    return alarm, excess


def pooled_verdicts(
    estimate: Estimate, arrived: Arrivals, setup: ControllerSetup, *, consume: bool = False
) -> Opinion:
    """What a detector ``by_unit`` says of the kernels, with everybody who was in rotation."""
    before = estimate.state.kernel_detector
    was_alarm = np.array(before["alarm"], dtype=np.bool_)
    verdicts, memory = setup.detector.update(
        before, None, estimate.closed, setup.contract, arrived, consume=consume
    )
    return Opinion(verdicts=verdicts, memory=memory, was_alarm=was_alarm)


def _without_the_departed(
    pooled: Opinion, estimate: Estimate, state: ControllerState, verdicts: Verdicts, setup: ControllerSetup
) -> tuple[Verdicts, DetectorState]:
    """Drop evidence that a replica now in quarantine took part in, where the rest speaks for the kernel."""
    kernels, _, _ = setup.layout.shape
    owner = setup.layout.replica_kernel
    gone = state.quarantined & ~estimate.state.quarantined
    if not bool(gone.any()):
        return pooled.verdicts, pooled.memory
    left = kernel_count(gone, owner, kernels) > 0
    rest = pool(verdicts.judged, ~state.quarantined, owner, kernels)
    dropped = left[:, :, None, None] & (relative_excess(rest, setup.contract) <= 0.0)
    kept = np.where(dropped, pooled.was_alarm, pooled.verdicts.alarm)
    memory = setup.detector.forget(pooled.memory, dropped)
    memory = {**memory, "alarm": kept, "excess": np.where(kept, pooled.verdicts.excess, 0.0)}
    return replace(pooled.verdicts, alarm=kept, excess=np.where(kept, pooled.verdicts.excess, 0.0)), memory


def _health(
    alarm: NDArray[np.bool_], excess: NDArray[np.float64], down: NDArray[np.bool_], setup: ControllerSetup
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    contract = setup.contract
    score, level = np.empty(alarm.shape[:3]), np.empty(alarm.shape[:3], dtype=np.int64)
    weigh(
        score, level, alarm, excess, down, contract.level, contract.weight,
        np.ascontiguousarray(contract.applies), contract.guard_threshold, contract.fallback_threshold,
    )  # fmt: skip
    return score, level


def pool_if_due(state: ControllerState, estimate: Estimate, setup: ControllerSetup) -> Sums | None:
    """Window sums of the kernels, pooled, where the window closes, zero elsewhere; None: nowhere."""
    if not bool(estimate.closed.any()):
        return None
    kernels, _, _ = setup.layout.shape
    counted = ~state.quarantined & estimate.closed[:, None]
    return pool(state.window, counted, setup.layout.replica_kernel, kernels)


def _down_until_s(
    state: ControllerState, seen: FleetTelemetry, apart: Departures, setup: ControllerSetup
) -> NDArray[np.float64]:
    """A kernel is down while every replica in rotation fails or hangs, and some time after.

    The time after is needed because a kernel without traffic has no failures: without it the slice would
    come back at the next tick.
    """
    if not bool(apart.down.any()):
        return state.down_until_s
    down_until_s = state.down_until_s.copy()
    note_down(
        down_until_s, state.now_s, np.ascontiguousarray(seen.replica_state), state.quarantined, apart.down,
        np.ascontiguousarray(seen.consecutive_failed), setup.options.failing_after,
        setup.options.readmit_after_s, setup.layout.replica_kernel,
    )  # fmt: skip
    return down_until_s
