"""Slowness that all kernels share, such as a slow host or a power cap: it moves no traffic.

A move away from a slow kernel would land on a kernel that is as slow and more loaded. So clauses on latency
or on a replica's own clock do not count against a slow kernel while no eligible kernel computes clearly
faster. Speed is compared by slowness: the capacity of a healthy replica over its present capacity
(``perceive.capacity``). This ratio depends on neither queue nor load, and idle kernels show it by their
probes.

A kernel without known engine speed might be faster. It counts as a faster target until its speed is known.
A kernel that is late but not slow (network path, queue) is judged as usual.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from controller.cells import kernel_count, some_in
from controller.detect.clauses import slow_clauses
from controller.judge.kernels.more_failures import able_kernels
from controller.judge.replicas.departures import Case, Flags
from controller.perceive.capacity_pass import SCRAPES
from controller.state import ControllerState

#: Slowness from which a kernel counts as slow.
SLOW_FACTOR = 1.25
#: A kernel whose slowness is below this share of another kernel's slowness is clearly faster.
FASTER_RATIO = 0.8


def slow_as_others(state: ControllerState, case: Case) -> Flags | None:
    """bool [B, K, 1, C]: clauses that do not count against a kernel; None: no such clause.

    state: after quarantine.
    """
    places = slow_clauses(case.setup.contract)
    if not places.size or case.setup.fleet.engine is None or case.kernels == 1:
        return None
    slow = (state.healthy_rps >= SLOW_FACTOR * state.replica_rps) & (state.replica_rps > 0.0)
    if not some_in(slow):
        return None
    slowness = _slowness(state)
    others = able_kernels(state, case)[:, None, :] & ~np.eye(case.kernels, dtype=np.bool_)
    assumed = np.where(_speed_known(state, case), slowness, 0.0)[:, None, :]
    fastest = np.where(others, assumed, np.inf).min(axis=2)
    shared = slow & np.isfinite(fastest) & (fastest >= FASTER_RATIO * slowness)
    if not some_in(shared):
        return None
    discounted = np.zeros((*shared.shape, 1, len(case.setup.contract.clause_ids)), dtype=np.bool_)
    discounted[..., places] = shared[:, :, None, None]
    return discounted


def _slowness(state: ControllerState) -> NDArray[np.float64]:
    """float64 [B, K]: capacity of a healthy replica over its present capacity; 1 where the latter is 0."""
    has_capacity = state.replica_rps > 0.0
    return np.where(has_capacity, state.healthy_rps / np.where(has_capacity, state.replica_rps, 1.0), 1.0)


def _speed_known(state: ControllerState, case: Case) -> Flags:
    """bool [B, K]: at least one replica in rotation has reported its engine speed."""
    reported = (state.engine_speed[..., SCRAPES] > 0.0) & case.ready & ~state.quarantined
    return np.asarray(kernel_count(reported, case.owner, case.kernels) > 0)
