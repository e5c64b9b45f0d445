"""What one tick brought, per replica and per kernel, less what says nothing of the kernel.

Late answers of a kernel that is offered more than it carries are no evidence against it: whoever takes its
traffic is overloaded next. They are left out for every detector; capacity is the policies' business.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from contracts.compiled import Source
from contracts.telemetry import FleetTelemetry
from controller.detectors import Arrivals
from controller.encode import kernel_load_rps, rotation
from controller.estimate import Estimate, kernel_count, pool
from controller.setup import ControllerSetup
from controller.state import ControllerState


def note_overload(estimate: Estimate, seen: FleetTelemetry, setup: ControllerSetup) -> Estimate:
    """``estimate`` that knows when each kernel was last offered more than it carries.

    The running window forgets the latencies of kernels that are, or lately were, overloaded.
    """
    state, (kernels, _, _) = estimate.state, setup.layout.shape
    ready = kernel_count(rotation(state, seen), setup.layout.replica_kernel, kernels)
    carried_rps = setup.options.overload_ratio * ready * setup.fleet.capacity_rps
    over = kernel_load_rps(state, kernels) > carried_rps
    overloaded_s = np.where(over, state.now_s[:, None], state.overloaded_s)
    state = replace(state, overloaded_s=overloaded_s)
    excused = _excused(state, setup)
    if bool(excused.any()):
        state = replace(state, window=np.where(excused[..., None], 0.0, state.window))
    return replace(estimate, state=state)


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
        sums=np.where(_excused(estimate.state, setup)[..., None], 0.0, estimate.state.window - before.window),
        doubted=before.replica_condemned,
        since_s=np.maximum(since_s, 0.0),
    )


def _excused(state: ControllerState, setup: ControllerSetup) -> NDArray[np.bool_]:
    """bool [B, R, 1, C]: latency of kernels that are, or lately were, overloaded."""
    contract = setup.contract
    lately = state.now_s[:, None] - state.overloaded_s < contract.window_s
    replicas = lately[:, setup.layout.replica_kernel]
    return np.asarray(replicas[:, :, None, None] & (contract.source == Source.LATENCY))


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
