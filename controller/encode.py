"""From state and judgement to the ``Observation`` that a policy sees."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contracts.telemetry import FleetTelemetry
from controller.encode_compiled import READY, see_kernels, see_replicas
from controller.judge import Judgement
from controller.paired import changed_replicas
from controller.ports import Observation
from controller.running import family_excess, running_ratio
from controller.setup import ControllerSetup
from controller.state import ControllerState


def observe(
    state: ControllerState, judgement: Judgement, seen: FleetTelemetry, setup: ControllerSetup
) -> Observation:
    """The observation of this tick, from what is known and nothing else."""
    batch, owner, plain = len(state.ticks), setup.layout.replica_kernel, np.ascontiguousarray
    kernels, slices, replicas = setup.layout.shape
    in_rotation, failed_ratio = np.empty((batch, replicas), dtype=np.bool_), np.empty((batch, replicas))
    ready, running, waiting = np.zeros((batch, kernels), dtype=np.int64), *np.zeros((2, batch, kernels))
    see_replicas(
        in_rotation, failed_ratio, ready, running, waiting, plain(seen.replica_state), state.quarantined,
        plain(state.ejected), state.answered_rps, state.failed_rps, plain(seen.running), plain(seen.waiting),
        owner,
    )  # fmt: skip
    capacity_rps, load_ratio = np.empty((2, batch, kernels))
    age_s, since_move_s = np.empty((batch, kernels, slices)), np.empty((batch, slices))
    see_kernels(
        capacity_rps, load_ratio, age_s, since_move_s, ready, setup.fleet.capacity_rps, plain(state.table),
        state.offered_rps, state.now_s, state.probed_s, state.row_moved_s, owner,
    )  # fmt: skip
    return Observation(
        now_s=state.now_s,
        table=state.table,
        health=judgement.health,
        level=judgement.level,
        hard_violated=judgement.hard_violated,
        evidence_count=judgement.evidence_count,
        evidence_age_s=age_s,
        certified=judgement.certified,
        ready=ready,
        capacity_rps=capacity_rps,
        load_ratio=load_ratio,
        offered_rps=state.offered_rps,
        consecutive_failed=seen.consecutive_failed,
        failed_ratio=failed_ratio,
        in_rotation=in_rotation,
        quarantined=state.quarantined,
        since_move_s=since_move_s,
        role_known_good=np.arange(kernels) == setup.layout.known_good,
        home=setup.fleet.home,
        replica_kernel=owner,
        family_excess=family_excess(judgement.alarm, judgement.excess, setup.contract),
        running_ratio=_running_ratio(state, setup),
        evidence_ratio=judgement.evidence_ratio,
        running=running,
        waiting=waiting,
        changed=changed_replicas(state.paired),
        certified_loss=setup.fleet.quality_loss,
    )


def _running_ratio(state: ControllerState, setup: ControllerSetup) -> NDArray[np.float64] | None:
    """A pass over the whole window, so only for a policy that reads it."""
    if not getattr(setup.policy, "reads_running", False):
        return None
    kernels, _, _ = setup.layout.shape
    owner = setup.layout.replica_kernel
    return running_ratio(state.window, ~state.quarantined, owner, kernels, setup.contract)


def rotation(state: ControllerState, ejected: NDArray[np.bool_], seen: FleetTelemetry) -> NDArray[np.bool_]:
    """bool [B, R]: replicas that take traffic: ready, not in quarantine, not ``ejected`` by who drives."""
    ready = seen.replica_state == READY
    return np.asarray(ready & ~state.quarantined & ~ejected)
