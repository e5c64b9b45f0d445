"""From state and judgement to the ``Observation`` that a policy sees."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contracts.telemetry import FleetTelemetry, ReplicaState
from controller.estimate import kernel_count, kernel_max, kernel_sum
from controller.judge import Judgement
from controller.ports import Observation
from controller.running import family_excess, running_ratio
from controller.setup import ControllerSetup
from controller.state import ControllerState

#: Answers per second below which a replica's failed ratio says nothing.
_LEAST_RPS = 1e-6


def observe(
    state: ControllerState, judgement: Judgement, seen: FleetTelemetry, setup: ControllerSetup
) -> Observation:
    """The observation of this tick, from what is known and nothing else."""
    kernels, _, _ = setup.layout.shape
    owner = setup.layout.replica_kernel
    in_rotation = rotation(state, seen)
    ready = kernel_count(in_rotation, owner, kernels)
    capacity_rps = ready * setup.fleet.capacity_rps
    ended_rps = state.answered_rps + state.failed_rps
    now_s = state.now_s
    return Observation(
        now_s=now_s,
        table=state.table,
        health=judgement.health,
        level=judgement.level,
        hard_violated=judgement.hard_violated,
        evidence_count=judgement.evidence_count,
        evidence_age_s=now_s[:, None, None] - kernel_max(state.probed_s, owner, kernels),
        certified=judgement.certified,
        ready=ready,
        capacity_rps=capacity_rps,
        load_ratio=kernel_load_rps(state, kernels) / np.maximum(capacity_rps, 1e-9),
        offered_rps=state.offered_rps,
        consecutive_failed=seen.consecutive_failed,
        failed_ratio=np.where(
            ended_rps > _LEAST_RPS, state.failed_rps / np.maximum(ended_rps, _LEAST_RPS), 0.0
        ),
        in_rotation=in_rotation,
        quarantined=state.quarantined,
        since_move_s=now_s[:, None] - state.row_moved_s,
        role_known_good=np.arange(kernels) == setup.layout.known_good,
        home=setup.fleet.home,
        replica_kernel=owner,
        family_excess=_family_excess(judgement, setup),
        running_ratio=_running_ratio(state, setup),
        evidence_ratio=judgement.evidence_ratio,
        running=_per_replica(seen.running, owner, kernels),
        waiting=_per_replica(seen.waiting, owner, kernels),
    )


def _family_excess(judgement: Judgement, setup: ControllerSetup) -> NDArray[np.float64]:
    """Largest excess in alarm [B, K, S, 4] by family; a clause in alarm is never at 0."""
    return family_excess(judgement.alarm, judgement.excess, setup.contract)


def _running_ratio(state: ControllerState, setup: ControllerSetup) -> NDArray[np.float64] | None:
    """A pass over the whole window, so only for a policy that reads it."""
    if not getattr(setup.policy, "reads_running", False):
        return None
    kernels, _, _ = setup.layout.shape
    owner = setup.layout.replica_kernel
    return running_ratio(state.window, ~state.quarantined, owner, kernels, setup.contract)


def _per_replica(values: NDArray[np.float64], owner: NDArray[np.int64], kernels: int) -> NDArray[np.float64]:
    """Mean [B, K] of ``values`` [B, R] over the replicas of each kernel, nothing known counting as 0."""
    count = np.maximum(np.bincount(owner, minlength=kernels), 1)
    return np.asarray(kernel_sum(np.fmax(values, 0.0), owner, kernels) / count)


def rotation(state: ControllerState, seen: FleetTelemetry) -> NDArray[np.bool_]:
    """bool [B, R]: replicas that take traffic: ready, not in quarantine, not ejected."""
    ready = seen.replica_state == ReplicaState.READY
    return np.asarray(ready & ~state.quarantined & ~state.ejected)


def kernel_load_rps(state: ControllerState, kernels: int) -> NDArray[np.float64]:
    """Offered requests per second [B, K] under the table in force."""
    load = np.zeros((len(state.ticks), kernels))
    for index in range(state.table.shape[1]):
        load += state.table[:, index, :kernels] * state.offered_rps[:, index, None]
    return load
