"""What one tick brought, per replica and per kernel, for detectors that judge unit by unit."""

from __future__ import annotations

import numpy as np

from contracts.telemetry import FleetTelemetry
from controller.detectors import Arrivals
from controller.estimate import Estimate, pool
from controller.setup import ControllerSetup
from controller.state import ControllerState


def replica_arrivals(
    before: ControllerState, estimate: Estimate, seen: FleetTelemetry, setup: ControllerSetup
) -> Arrivals:
    """Units of every replica, in quarantine or not. ``before``: the state that this tick began with."""
    since_s = np.where(np.isnan(before.now_s), setup.fleet.tick_s, estimate.state.now_s - before.now_s)
    return Arrivals(
        pooled=False,
        probes=seen.probes,
        heard=estimate.heard,
        unit_of=np.arange(len(setup.layout.replicas)),
        sums=estimate.state.window - before.window,
        doubted=before.replica_condemned,
        since_s=np.maximum(since_s, 0.0),
    )


def kernel_arrivals(before: ControllerState, replicas: Arrivals, setup: ControllerSetup) -> Arrivals:
    """The same units pooled over the replicas of each kernel that were in rotation before this tick."""
    kernels, _, _ = setup.layout.shape
    members, owner = ~before.quarantined, setup.layout.replica_kernel
    mine = np.take_along_axis(members, replicas.probes.replica, axis=1)
    return Arrivals(
        pooled=True,
        probes=replicas.probes,
        heard=replicas.heard & mine,
        unit_of=owner,
        sums=pool(replicas.sums, members, owner, kernels),
        doubted=before.condemned,
        since_s=replicas.since_s,
    )
