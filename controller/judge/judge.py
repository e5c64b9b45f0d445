"""Evidence to judgement: health, level, hard violations and certification of every (kernel, slice)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.contract import CompiledContract
from contracts.telemetry import FleetTelemetry
from controller.cells import kernel_count, pool, some_in
from controller.detect.clauses import clock_clauses, from_traffic, moves_traffic, own_clock, probe_clauses
from controller.detect.detector import AlarmState, DetectorState, PooledAlarms, hides_evidence
from controller.detect.sums import OVER, Sums, excess_of_sums
from controller.detect.tick import DetectorOutputs
from controller.judge.kernels.capped import Capped, broken_in_rotation, presumed_failing
from controller.judge.kernels.judge_pass import (
    READY,
    Health,
    KernelStanding,
    Said,
    Weights,
    condemn,
    count_evidence,
    take_over,
    weigh,
)
from controller.judge.kernels.loss import answer_loss
from controller.judge.kernels.more_failures import follow_failures, without_shared
from controller.judge.kernels.outage import follow_outages
from controller.judge.kernels.shared_slowness import slow_as_others
from controller.judge.replicas.culprits import of_kernels
from controller.judge.replicas.departures import Case
from controller.judge.replicas.identity import kernels_restated, replicas_restated
from controller.judge.replicas.quarantine import Departures, quarantine
from controller.options import ControllerSetup
from controller.perceive.estimate import Estimate
from controller.state import ControllerState, altered, not_evidence_for_kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What the evidence says of each kernel on each slice."""

    alarm: NDArray[np.bool_]  # [B, K, S, C]
    excess: NDArray[np.float64]  # [B, K, S, C], relative distance beyond the limit, >= 0
    health: NDArray[np.float64]  # [B, K, S], H >= 0
    level: NDArray[np.int64]  # [B, K, S], a ``contracts.compiled.contract.Level``
    hard_violated: NDArray[np.bool_]  # [B, K, S], a hard clause is condemned
    certified: NDArray[np.bool_]  # [B, K, S], nothing that moves traffic is condemned
    evidence_count: NDArray[np.float64]  # [B, K, S], probe observations behind the verdicts
    judged: NDArray[np.float64]  # [B, K, S, C, 4], sums behind the pooled verdicts
    spread: NDArray[np.bool_]  # [B, K, S, C], in alarm through single replicas, not through the pool
    down: NDArray[np.bool_]  # [B, K], every replica in rotation is or lately was failing or hung
    evidence_ratio: NDArray[np.float64]  # [B, K, S], 0..2, how near a moving alarm is; 1: in force
    #: float64 [B, K, S], ``controller.judge.kernels.loss.answer_loss`` (None: every cell is certified).
    loss: NDArray[np.float64] | None = None


def judge(
    estimate: Estimate,
    telemetry: FleetTelemetry,
    verdicts: DetectorOutputs,
    setup: ControllerSetup,
    *,
    consume: bool = False,
) -> tuple[ControllerState, Judgement]:
    """Quarantine replicas, then judge the kernels by those that are left.

    ``consume``: the memory of the kernels' detector may be written to.
    """
    ready = np.asarray(telemetry.replica_state == READY)
    case = Case(estimate=estimate, telemetry=telemetry, verdicts=verdicts, ready=ready, setup=setup)
    case = case._replace(verdicts=replicas_restated(case))
    state, apart = quarantine(case)
    return judge_kernels(case, state, apart, consume=consume)


def judge_kernels(
    case: Case, state: ControllerState, apart: Departures, *, consume: bool = False
) -> tuple[ControllerState, Judgement]:
    """Pooled detector, alarms that spread from replicas, latch of the condemned.

    ``state``, ``apart``: as quarantine left them. A hard violation, like every condemnation, lasts until the
    clause is re-certified.
    """
    contract, moves = case.setup.contract, moves_traffic(case.setup.contract)
    judged, memory = kernels_restated(*_pooled(case, state, consume), state, case)
    capped = broken_in_rotation(state, judged.judged, apart.late, case)
    seen = _joined(_with_spread(judged, apart, case), capped)
    blame = follow_failures(state, case)
    alarm, excess, shared = without_shared(seen, state, blame, slow_as_others(state, case), case)
    alarm, excess = _joined((alarm, excess), presumed_failing(state, judged.judged, case))
    state = altered(state, condemned=state.condemned & ~shared, **blame._asdict())
    outages = follow_outages(state, apart.down, case)
    down = state.now_s[:, None] < outages.down_until_at_s
    standing = _standing(state, _said(alarm, judged, contract), down, contract)
    found = _health(alarm, excess, down, contract)
    count, ratio = np.zeros(alarm.shape[:3]), _evidence_ratio(memory, judged, shared, case.setup)
    count_evidence(count, ratio, judged.judged, alarm, probe_clauses(contract), moves)
    loss = answer_loss(alarm, excess, standing, down, state.answer_loss, contract)
    judgement = Judgement(
        alarm=alarm,
        excess=excess,
        health=found.health,
        level=found.level,
        hard_violated=standing.hard_violated,
        certified=standing.certified,
        evidence_count=count,
        judged=judged.judged,
        spread=alarm & ~judged.alarm,
        down=down,
        evidence_ratio=ratio,
        loss=loss,
    )
    after = altered(
        state,
        condemned=standing.condemned,
        answer_loss=np.zeros(standing.certified.shape) if loss is None else loss,
        kernel_detector=memory,
        **outages._asdict(),
    )
    return after, judgement


def _pooled(case: Case, state: ControllerState, consume: bool) -> tuple[AlarmState, DetectorState]:
    """What the detector says of the kernels, without the replicas that quarantine took out."""
    if case.verdicts.kernels is not None:
        return _without_the_departed(case.verdicts.kernels, state, case)
    sums = pool_if_due(state, case.estimate, case.setup)
    return case.setup.detector.update(
        state.kernel_detector, sums, case.estimate.closed, case.setup.contract, consume=consume
    )


def pool_if_due(state: ControllerState, estimate: Estimate, setup: ControllerSetup) -> Sums | None:
    """Window sums of the kernels where the window closes, zero elsewhere; None: nowhere.

    Of traffic as the gateway counted it, of all else pooled over the replicas. The gateway counts replicas
    in quarantine and needed ones as well: where the others keep a clause, its counts say nothing of the
    kernel.
    """
    if not some_in(estimate.closed):
        return None
    (kernels, _, _), owner = setup.layout.shape, setup.layout.replica_kernel
    ends, contract = estimate.closed[:, None, None, None], setup.contract
    out = not_evidence_for_kernel(state)
    pooled = pool(state.window, ~state.quarantined & estimate.closed[:, None], owner, kernels)
    kept_by = pool(state.window, ~out & estimate.closed[:, None], owner, kernels)
    away = kernel_count(out, owner, kernels)[:, :, None, None] > 0
    told = ends & ~(away & of_kernels(excess_of_sums(kept_by, contract) <= 0.0, contract))
    counted = np.where(told[..., None], state.kernel_window, 0.0)
    told_of = np.where(from_traffic(contract)[:, None], counted, pooled)
    return np.asarray(np.where(own_clock(contract)[:, None], 0.0, told_of))


def _without_the_departed(
    pooled: PooledAlarms, state: ControllerState, case: Case
) -> tuple[AlarmState, DetectorState]:
    """Drop evidence that a replica took part in that is now in quarantine, or needed, where the rest speaks
    for the kernel.
    """
    before = case.estimate.state
    out = not_evidence_for_kernel(state)
    gone = out & ~not_evidence_for_kernel(before)
    if not some_in(gone):
        return pooled.alarms, pooled.memory
    left = kernel_count(gone, case.owner, case.kernels) > 0
    rest = pool(case.verdicts.replicas.judged, ~out, case.owner, case.kernels)
    kept = of_kernels(excess_of_sums(rest, case.setup.contract) <= 0.0, case.setup.contract)
    dropped = left[:, :, None, None] & kept
    alarm = np.where(dropped, pooled.was_alarm, pooled.alarms.alarm)
    excess = np.where(alarm, pooled.alarms.excess, 0.0)
    memory = case.setup.detector.forget(pooled.memory, dropped)
    return replace(pooled.alarms, alarm=alarm, excess=excess), {**memory, "alarm": alarm, "excess": excess}


def _with_spread(
    judged: AlarmState, apart: Departures, case: Case
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Alarm and excess of the kernels, with what spread from single replicas."""
    if apart.spread is None:
        return judged.alarm, judged.excess
    alarm, excess = judged.alarm.copy(), judged.excess.copy()
    take_over(alarm, excess, apart.spread, case.verdicts.replicas.excess, case.owner)
    return alarm, excess


def _joined(
    found: tuple[NDArray[np.bool_], NDArray[np.float64]], more: Capped | None
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """``found`` alarm and excess of the kernels, with what else is said of them (None: nothing)."""
    if more is None:
        return found
    alarm, excess = found
    return alarm | more.alarm, np.where(more.alarm, np.maximum(excess, more.excess), excess)


def _evidence_ratio(
    memory: DetectorState, judged: AlarmState, shared: NDArray[np.bool_], setup: ControllerSetup
) -> NDArray[np.float64]:
    """float64 [B, K, S], how near an alarm is by all evidence but that of failures which others share.

    shared: bool [B, K, 1, C].
    """
    detector, contract = setup.detector, setup.contract
    if hides_evidence(detector):
        hidden = shared & (judged.judged[..., OVER] > 0.0)
        return detector.evidence_ratio_without(memory, hidden, contract)
    ratio = detector.evidence_ratio(memory, contract).copy()
    if not some_in(ratio):  # nothing is near, and to hide evidence brings nothing nearer
        return ratio
    hidden = shared & (judged.judged[..., OVER] > 0.0)
    fleets = np.flatnonzero(hidden.any(axis=(1, 2, 3)))
    if fleets.size:  # of these fleets alone: to forget takes copies of all memory
        kept = detector.forget({name: array[fleets] for name, array in memory.items()}, hidden[fleets])
        ratio[fleets] = detector.evidence_ratio(kept, contract)
    return ratio


def _said(alarm: NDArray[np.bool_], judged: AlarmState, contract: CompiledContract) -> Said:
    """What is said of the kernels; of own clocks they are as their replicas are in this tick."""
    if not clock_clauses(contract).size:
        return Said(alarm, judged.inside, judged.fresh)
    clocks = own_clock(contract)
    return Said(alarm, judged.inside | (clocks & ~alarm), judged.fresh | clocks)


def _standing(
    state: ControllerState, said: Said, down: NDArray[np.bool_], contract: CompiledContract
) -> KernelStanding:
    """What is condemned, and what follows of it."""
    cells = said.alarm.shape[:3]
    standing = KernelStanding(
        condemned=state.condemned.copy(),
        hard_violated=np.empty(cells, dtype=np.bool_),
        certified=np.empty(cells, dtype=np.bool_),
    )
    condemn(tuple(standing), tuple(said), down, contract.hard, moves_traffic(contract))
    return standing


def _health(
    alarm: NDArray[np.bool_], excess: NDArray[np.float64], down: NDArray[np.bool_], contract: CompiledContract
) -> Health:
    """Health and level of every (kernel, slice)."""
    cells = alarm.shape[:3]
    found = Health(np.empty(cells), np.empty(cells, dtype=np.int64))
    weigh(tuple(found), alarm, excess, down, _weights(contract))
    return found


@lru_cache(maxsize=64)
def _weights(contract: CompiledContract) -> tuple[object, ...]:
    weights = Weights(
        severity=contract.level,
        weight=contract.weight,
        applies=np.ascontiguousarray(contract.applies),
        guard=contract.guard_threshold,
        fallback=contract.fallback_threshold,
    )
    return tuple(weights)
