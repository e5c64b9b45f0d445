"""What the detectors say of one tick: of replicas, of kernels, and of drift from what was certified."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.contract import CompiledContract
from contracts.telemetry import ProbeSamples
from controller.detect.certified_drift import DriftPlan, drift_tick
from controller.detect.detector import AlarmState, Detector, DetectorState, EvidenceBatch, PooledAlarms
from controller.detect.sums import Sums


class DetectorInputs(NamedTuple):
    """What one tick gives the detectors to judge, for B fleets."""

    window: Sums  # [B, R, S, C, 4], running window of the replicas
    closed: NDArray[np.bool_]  # [B], it ends with this tick
    probes: ProbeSamples
    received: NDArray[np.bool_]  # [B, P], probes that count
    replicas: EvidenceBatch | None  # what arrived, for detectors that judge observations as they come
    kernels: EvidenceBatch | None  # the same, pooled over the replicas in rotation


class Memories(NamedTuple):
    """What the detectors remember before a tick."""

    replicas: DetectorState
    kernels: DetectorState
    drift: DetectorState


class DetectorOutputs(NamedTuple):
    """What the detectors say, and what they remember after saying so."""

    replicas: AlarmState
    replica_memory: DetectorState
    kernels: PooledAlarms | None  # None: windows of kernels are closed after quarantine, by the judge
    drift: DetectorState


def detect(
    evidence: DetectorInputs,
    memories: Memories,
    detector: Detector,
    contract: CompiledContract,
    plan: DriftPlan | None,
    *,
    consume: bool = False,
) -> DetectorOutputs:
    """Judge the evidence of a tick.

    ``plan``: how probes are compared with certified values (None: not at all).
    ``consume``: the caller gives the arrays of ``memories`` away, so they may be written to.
    """
    replicas, replica_memory = detector.update(
        memories.replicas, evidence.window, evidence.closed, contract, evidence.replicas, consume=consume
    )
    kernels = None
    if evidence.kernels is not None:
        was_alarm = np.array(memories.kernels["alarm"], dtype=np.bool_)
        alarms, memory = detector.update(
            memories.kernels, None, evidence.closed, contract, evidence.kernels, consume=consume
        )
        kernels = PooledAlarms(alarms=alarms, memory=memory, was_alarm=was_alarm)
    return DetectorOutputs(
        replicas=replicas,
        replica_memory=replica_memory,
        kernels=kernels,
        drift=drift_tick(memories.drift, evidence.probes, evidence.received, plan),
    )
