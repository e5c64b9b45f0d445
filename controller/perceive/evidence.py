"""Evidence of one tick, per replica and per kernel, as the detectors read it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contracts.telemetry import FleetTelemetry
from controller.cells import kernel_count
from controller.detect.as_certified_pass import AwaitedReturns
from controller.detect.certified_drift import drifted_replicas
from controller.detect.detector import EvidenceBatch
from controller.detect.tick import DetectorInputs
from controller.options import ControllerSetup
from controller.perceive.estimate import Estimate
from controller.shield.capacity import SLACK
from controller.state import ControllerState, not_evidence_for_kernel


def gather(
    before: ControllerState, estimate: Estimate, telemetry: FleetTelemetry, setup: ControllerSetup
) -> DetectorInputs:
    """The evidence of this tick; ``before``: the state at its start.

    Batches of replicas and of kernels are built only for detectors that judge single observations.
    """
    replicas = _of_replicas(before, estimate, telemetry, setup) if setup.detector.by_observation else None
    return DetectorInputs(
        window=estimate.state.window,
        closed=estimate.closed,
        probes=telemetry.probes,
        received=estimate.received,
        replicas=replicas,
        kernels=None if replicas is None else _of_kernels(before, estimate, replicas, setup),
        awaited=AwaitedReturns(short=before.table[:, :, -1] > SLACK, in_rotation=~before.quarantined),
    )


def _of_replicas(
    before: ControllerState, estimate: Estimate, telemetry: FleetTelemetry, setup: ControllerSetup
) -> EvidenceBatch:
    """Observations of every replica, in quarantine or not."""
    return EvidenceBatch(
        pooled=False,
        probes=telemetry.probes,
        received=estimate.received,
        subject_of=np.arange(len(setup.layout.replicas)),
        sums=estimate.sums,
        doubted=before.replica_condemned,
        since_s=estimate.since_s,
        news=estimate.news,
        drifted=drifted_replicas(before.drift) if setup.drift is not None and setup.drift.prior else None,
    )


def _of_kernels(
    before: ControllerState, estimate: Estimate, replicas: EvidenceBatch, setup: ControllerSetup
) -> EvidenceBatch:
    """Observations of every kernel: of its replicas in rotation before this tick, and of the gateway."""
    kernels, _, _ = setup.layout.shape
    members, owner = ~before.quarantined, setup.layout.replica_kernel
    mine = members[np.arange(len(members))[:, None], replicas.probes.replica]
    return EvidenceBatch(
        pooled=True,
        probes=replicas.probes,
        received=replicas.received & mine,
        subject_of=owner,
        sums=estimate.kernel_sums,
        doubted=before.condemned,
        since_s=replicas.since_s,
        news=estimate.kernel_news,
        drifted=_drifted_kernels(replicas.drifted, members, owner, kernels),
        blurred=kernel_count(not_evidence_for_kernel(before), owner, kernels) > 0,
    )


def _drifted_kernels(
    drifted: NDArray[np.bool_] | None, members: NDArray[np.bool_], owner: NDArray[np.int64], kernels: int
) -> NDArray[np.bool_] | None:
    """bool [B, K]: at least half of the replicas in rotation (``members``) have drifted.

    Then the build has probably changed.
    """
    if drifted is None:
        return None
    count = kernel_count(members & drifted, owner, kernels)
    return np.asarray((count > 0) & (2 * count >= kernel_count(members, owner, kernels)))
