"""One tick of the detectors: alarms of replicas and kernels, and drift from the certified baseline."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.contract import CompiledContract
from contracts.telemetry import ProbeSamples
from controller.detect.as_certified import Subjects, readmit_matching
from controller.detect.as_certified_pass import AwaitedReturns
from controller.detect.bounds import BoundsPlan, bounded_runs, bounds_tick, healthy_replicas
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
    """Evidence of one tick, for B fleets."""

    window: Sums  # [B, R, S, C, 4], running window of the replicas
    closed: NDArray[np.bool_]  # [B], the window ends with this tick
    probes: ProbeSamples
    received: NDArray[np.bool_]  # [B, P], probes that count
    replicas: EvidenceBatch | None  # observations of this tick, for detectors ``by_observation``
    kernels: EvidenceBatch | None  # these observations pooled over the replicas in rotation
    awaited: AwaitedReturns  # replicas in rotation, and slices that are short of capacity


class Memories(NamedTuple):
    """Memory of the detectors before a tick."""

    replicas: DetectorState
    kernels: DetectorState
    drift: DetectorState
    bounds: DetectorState


class Comparisons(NamedTuple):
    """How probes are compared (None: not at all).

    They are compared with certified values. Where these cannot show recovery, they are compared with values
    observed in health.
    """

    drift: DriftPlan | None
    bounds: BoundsPlan | None


class DetectorOutputs(NamedTuple):
    """Verdicts of the detectors, and their memory after the tick."""

    replicas: AlarmState
    replica_memory: DetectorState
    kernels: PooledAlarms | None  # None: the judge closes the windows of kernels after quarantine
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

    ``consume``: the arrays of ``memories`` may be overwritten.
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
        healthy = healthy_replicas(replicas, kernels, evidence.awaited.in_rotation, plans.bounds)
        bounds = bounds_tick(bounds, evidence.probes, evidence.received, pooled, healthy, plans.bounds)
    if plans.drift is not None and plans.drift.runs is not None:
        runs = floats(drift, "runs"), plans.drift.runs
        replicas, kernels = readmit_matching(replicas, kernels, evidence.awaited, *runs, detector)
    elif plans.bounds is not None and any(bool(s.unhealthy().any()) for s in (replicas, kernels)):
        runs = floats(bounds, "runs"), bounded_runs(bounds, plans.bounds, len(contract.clause_ids))
        replicas, kernels = readmit_matching(replicas, kernels, evidence.awaited, *runs, detector)
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
    """Verdicts of the detector on the replicas, or on the kernels, of ``batch``."""
    was_alarm = flags(memory, "alarm").copy()
    window = None if batch.pooled else evidence.window
    alarms, after = detector.update(memory, window, evidence.closed, contract, batch, consume=consume)
    return Subjects(alarms=alarms, memory=after, was_alarm=was_alarm, doubted=batch.doubted)
