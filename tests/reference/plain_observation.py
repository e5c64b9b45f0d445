"""Policies' observation of a fleet by definition, in plain numpy."""

from __future__ import annotations

from typing import Any

import numpy as np

from contracts.telemetry import FleetTelemetry, ReplicaState
from controller.encoding.observe_pass import KEPT_MARGIN
from controller.options import ControllerSetup
from controller.perceive.capacity_pass import UNBOUNDED_RPS
from controller.state import ControllerState, planned
from tests.reference.plain_perceive import load_rps, over_kernels


def plain_observation(state: ControllerState, seen: FleetTelemetry, setup: ControllerSetup) -> dict[str, Any]:
    """Fields that the observation adds to state and judgement."""
    owner, (kernels, _, _) = setup.layout.replica_kernel, setup.layout.shape
    serves = (seen.replica_state == ReplicaState.READY) & ~state.quarantined & ~state.ejected
    ready = over_kernels(serves, owner, kernels, np.add)
    best_rps = planned(state, "replica_rps")
    load = load_rps(state, planned(state, "offered_rps"))
    kept_rps = np.minimum(ready * best_rps, load * KEPT_MARGIN)
    capacity_rps = ready * np.where(best_rps < UNBOUNDED_RPS, best_rps, state.healthy_rps)
    ended_rps = state.answered_rps + state.failed_rps
    members = np.maximum(np.bincount(owner, minlength=kernels), 1)
    newest_s = over_kernels(state.probed_at_s, owner, kernels, np.maximum)
    return {
        "in_rotation": serves,
        "ready": ready,
        "capacity_rps": capacity_rps,
        "sure_rps": np.maximum(ready * planned(state, "least_rps"), kept_rps),
        "load_ratio": load / np.maximum(capacity_rps, 1e-9),
        "failed_ratio": np.where(ended_rps > 1e-6, state.failed_rps / np.maximum(ended_rps, 1e-6), 0.0),
        "evidence_age_s": state.now_s[:, None, None] - newest_s,
        "since_move_s": state.now_s[:, None] - state.row_moved_at_s,
        "running": over_kernels(np.fmax(seen.running, 0.0), owner, kernels, np.add) / members,
        "waiting": over_kernels(np.fmax(seen.waiting, 0.0), owner, kernels, np.add) / members,
    }
