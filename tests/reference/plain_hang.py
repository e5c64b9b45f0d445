"""Silence of engines, and the hung replicas it implies, by the definitions: see ``plain_perceive``."""

from __future__ import annotations

import numpy as np

from contracts.telemetry import FleetTelemetry, ReplicaState
from controller.options import ControllerSetup
from controller.state import ControllerState
from tests.reference.plain_perceive import Flags, Floats, holds, over_kernels


def plain_steps(
    state: ControllerState, seen: FleetTelemetry, fresh: Flags, stale_after_s: float
) -> dict[str, Floats]:
    """When the counters of each replica [B, R] were read, and when they showed that it steps."""
    engine, now = seen.engine, np.broadcast_to(seen.now_ms[:, None] / 1000.0, fresh.shape)
    read = fresh & ~(np.isnan(engine.iterations) & np.isnan(engine.generation_tokens))
    began_at_s = now - np.nan_to_num(engine.span_s)
    anew = read & ~(began_at_s - state.counted_at_s <= stale_after_s)
    stepped_at_s = np.where(anew, np.fmax(state.stepped_at_s, began_at_s), state.stepped_at_s)
    moved = read & ((engine.iterations > 0.0) | (engine.generation_tokens > 0.0))
    return {
        "counted_at_s": np.where(read, now, state.counted_at_s),
        "stepped_at_s": np.where(moved, now, stepped_at_s),
    }


def plain_hung(state: ControllerState, seen: FleetTelemetry, setup: ControllerSetup) -> Flags:
    """Bool [B, R], before quarantine acts."""
    options, owner, (kernels, _, _) = setup.options, setup.layout.replica_kernel, setup.layout.shape
    ready = seen.replica_state == ReplicaState.READY
    known = state.now_s[:, None] - state.counted_at_s <= setup.contract.stale_after_s
    moved_at_s = np.maximum(state.progressed_at_s, state.stepped_at_s)
    quiet_s = np.minimum(state.counted_at_s, state.scraped_at_s) - moved_at_s
    serving = ready & ~state.quarantined
    own_rps = np.where(serving, state.answered_rps, 0.0)
    others = over_kernels(serving, owner, kernels, np.add)[:, owner] - serving
    total_rps = over_kernels(own_rps, owner, kernels, np.add)[:, owner] - own_rps
    missed = quiet_s * (total_rps / np.maximum(others, 1))
    outpaced = (quiet_s >= options.hung_least_s) & (missed >= options.hung_answers)
    busy = ready & known & holds(seen)
    return np.asarray(busy & ((quiet_s >= options.hung_after_s) | outpaced))
