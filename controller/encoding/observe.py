"""From state and judgement to the ``Observation`` that a policy sees."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from contracts.telemetry import FleetTelemetry
from controller.detect.certified_drift import drifted_replicas
from controller.encoding.observe_pass import Load, Replicas, Rotation, Routing, see_kernels, see_replicas
from controller.encoding.running import family_excess, running_ratio
from controller.judge.judge import Judgement
from controller.options import ControllerSetup
from controller.ports import Observation
from controller.state import ControllerState, planned


def observe(
    state: ControllerState, judgement: Judgement, telemetry: FleetTelemetry, setup: ControllerSetup
) -> Observation:
    """The observation of this tick, from state and telemetry alone."""
    kernels, _, _ = setup.layout.shape
    rotation = _rotation(state, telemetry, setup)
    load = _load(state, rotation.ready, setup)
    return Observation(
        now_s=state.now_s,
        table=state.table,
        health=judgement.health,
        level=judgement.level,
        hard_violated=judgement.hard_violated,
        evidence_count=judgement.evidence_count,
        evidence_age_s=load.evidence_age_s,
        certified=judgement.certified,
        ready=rotation.ready,
        capacity_rps=load.capacity_rps,
        load_ratio=load.load_ratio,
        sure_rps=load.sure_rps,
        offered_rps=planned(state, "offered_rps"),
        consecutive_failed=telemetry.consecutive_failed,
        failed_ratio=rotation.failed_ratio,
        in_rotation=rotation.in_rotation,
        quarantined=state.quarantined,
        since_move_s=load.since_move_s,
        role_known_good=_known_good(kernels, setup.layout.known_good),
        home=setup.fleet.home,
        replica_kernel=setup.layout.replica_kernel,
        family_excess=family_excess(judgement.alarm, judgement.excess, setup.contract),
        evidence_ratio=judgement.evidence_ratio,
        running=rotation.running,
        waiting=rotation.waiting,
        running_ratio=_running_ratio(state, setup),
        drifted=drifted_replicas(state.drift),
        certified_loss=setup.fleet.quality_loss,
    )


@lru_cache(maxsize=64)
def _known_good(kernels: int, place: int) -> NDArray[np.bool_]:
    """bool [K]: the known-good kernel, at ``place``."""
    return np.asarray(np.arange(kernels) == place)


def _rotation(state: ControllerState, telemetry: FleetTelemetry, setup: ControllerSetup) -> Rotation:
    """Replicas in rotation, failure ratio of each, and queue lengths."""
    plain, (kernels, _, _) = np.ascontiguousarray, setup.layout.shape
    by_replica, by_kernel = state.quarantined.shape, (len(state.ticks), kernels)
    shown = Rotation(
        in_rotation=np.empty(by_replica, dtype=np.bool_),
        failed_ratio=np.empty(by_replica),
        ready=np.zeros(by_kernel, dtype=np.int64),
        running=np.zeros(by_kernel),
        waiting=np.zeros(by_kernel),
    )
    replicas = Replicas(
        plain(telemetry.replica_state),
        state.quarantined,
        plain(state.ejected),
        state.answered_rps,
        state.failed_rps,
        plain(telemetry.running),
        plain(telemetry.waiting),
    )
    see_replicas(tuple(shown), tuple(replicas), setup.layout.replica_kernel)
    return shown


def _load(state: ControllerState, ready: NDArray[np.int64], setup: ControllerSetup) -> Load:
    """Load of the kernels, and ages. ``ready``: int64 [B, K], replicas in rotation."""
    (batch, kernels), slices = ready.shape, state.offered_rps.shape[1]
    shown = Load(
        capacity_rps=np.empty((batch, kernels)),
        load_ratio=np.empty((batch, kernels)),
        sure_rps=np.empty((batch, kernels)),
        evidence_age_s=np.empty((batch, kernels, slices)),
        since_move_s=np.empty((batch, slices)),
    )
    routing = Routing(
        planned(state, "replica_rps"),
        planned(state, "least_rps"),
        state.healthy_rps,
        np.ascontiguousarray(state.table),
        planned(state, "offered_rps"),
        state.now_s,
        state.probed_at_s,
        state.row_moved_at_s,
    )
    see_kernels(tuple(shown), tuple(routing), ready, setup.layout.replica_kernel)
    return shown


def _running_ratio(state: ControllerState, setup: ControllerSetup) -> NDArray[np.float64] | None:
    """A pass over the whole window, so only for a policy that reads it."""
    if not getattr(setup.policy, "reads_running", False):
        return None
    return running_ratio(state.window, ~state.quarantined, setup.layout, setup.contract)
