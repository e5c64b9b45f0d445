"""What the detectors say of one tick: of replicas, of kernels, and of drift from what was certified."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.contract import CompiledContract
from contracts.telemetry import ProbeSamples
from controller.detect.as_certified import Subjects, let_in_again
from controller.detect.as_certified_pass import AwaitedReturns
from controller.detect.bounds import BoundsPlan, bounded_runs, bounds_tick, teachers
from controller.detect.certified_drift import DriftPlan, drift_tick
from controller.detect.detector import (
    AlarmState,
    Detector,
    DetectorState,
    EvidenceBatch,
    PooledAlarms,
    flags,
    floats,
)
from controller.detect.sums import Sums


class DetectorInputs(NamedTuple):
    """What one tick gives the detectors to judge, for B fleets."""

    window: Sums  # [B, R, S, C, 4], running window of the replicas
    closed: NDArray[np.bool_]  # [B], it ends with this tick
    probes: ProbeSamples
    received: NDArray[np.bool_]  # [B, P], probes that count
    replicas: EvidenceBatch | None  # what arrived, for detectors that judge observations as they come
    kernels: EvidenceBatch | None  # the same, pooled over the replicas in rotation
    awaited: AwaitedReturns  # these, and the slices of which something is shed


class Memories(NamedTuple):
    """What the detectors remember before a tick."""

    replicas: DetectorState
    kernels: DetectorState
    drift: DetectorState
    bounds: DetectorState


class Comparisons(NamedTuple):
    """How probes are compared (None: not at all): with certified values, and where these let nobody in
    again, with what was seen in health.
    """

    drift: DriftPlan | None
    bounds: BoundsPlan | None


class DetectorOutputs(NamedTuple):
    """What the detectors say, and what they remember after saying so."""

    replicas: AlarmState
    replica_memory: DetectorState
    kernels: PooledAlarms | None  # None: windows of kernels are closed after quarantine, by the judge
    drift: DetectorState
    bounds: DetectorState


def detect(
    evidence: DetectorInputs,
    memories: Memories,
    detector: Detector,
    contract: CompiledContract,
    plans: Comparisons,
    *,
    consume: bool = False,
) -> DetectorOutputs:
    """Judge the evidence of a tick.

    ``consume``: the caller gives the arrays of ``memories`` away, so they may be written to.
    """
    if evidence.replicas is None or evidence.kernels is None:
        alarms, memory = detector.update(
            memories.replicas, evidence.window, evidence.closed, contract, consume=consume
        )
        drift = drift_tick(memories.drift, evidence.probes, evidence.received, plans.drift)
        return DetectorOutputs(alarms, memory, kernels=None, drift=drift, bounds=memories.bounds)
    replicas, kernels = (
        _judged(batch, memory, evidence, detector, contract, consume)
        for batch, memory in ((evidence.replicas, memories.replicas), (evidence.kernels, memories.kernels))
    )
    pooled = evidence.kernels.received
    drift = drift_tick(memories.drift, evidence.probes, evidence.received, plans.drift, pooled)
    bounds = memories.bounds
    if plans.bounds is not None:
        teaches = teachers(replicas, kernels, evidence.awaited.in_rotation, plans.bounds)
        bounds = bounds_tick(bounds, evidence.probes, evidence.received, pooled, teaches, plans.bounds)
    if plans.drift is not None and plans.drift.runs is not None:
        matched = floats(drift, "runs"), plans.drift.runs
        replicas, kernels = let_in_again(replicas, kernels, evidence.awaited, *matched, detector)
    elif plans.bounds is not None and any(bool(one.ill().any()) for one in (replicas, kernels)):
        matched = floats(bounds, "runs"), bounded_runs(bounds, plans.bounds, len(contract.clause_ids))
        replicas, kernels = let_in_again(replicas, kernels, evidence.awaited, *matched, detector)
    return DetectorOutputs(
        replicas=replicas.alarms,
        replica_memory=replicas.memory,
        kernels=PooledAlarms(alarms=kernels.alarms, memory=kernels.memory, was_alarm=kernels.was_alarm),
        drift=drift,
        bounds=bounds,
    )


def _judged(
    batch: EvidenceBatch,
    memory: DetectorState,
    evidence: DetectorInputs,
    detector: Detector,
    contract: CompiledContract,
    consume: bool,
) -> Subjects:
    """What the detector says of the replicas, or of the kernels, of ``batch``."""
    was_alarm = flags(memory, "alarm").copy()
    window = None if batch.pooled else evidence.window
    alarms, after = detector.update(memory, window, evidence.closed, contract, batch, consume=consume)
    return Subjects(alarms=alarms, memory=after, was_alarm=was_alarm, doubted=batch.doubted)
