"""Slowness that all kernels share: a host, a power cap or held memory that slows everybody moves nobody.

Each move away from a slow kernel lands on one that is as slow and fuller. So a clause on the times of answers
or on own clocks says nothing against a kernel that computes slowly while no kernel that could take its
traffic computes clearly faster, by what each carries over what it would carry well
(``perceive.capacity``): that depends on no queue and no load, and idle kernels show it by their probes.

A kernel whose engine nobody has heard of might be faster, so it is tried, and then it is known. Who is late
and not slow (on the way, by its queue) is judged as ever.
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

#: Times as long as certified from which a kernel is slow.
SLOW_FACTOR = 1.25
#: Of a kernel's slowness: another that is less slow than this is a better place.
FASTER_RATIO = 0.8


def slow_as_others(state: ControllerState, case: Case) -> Flags | None:
    """bool [B, K, 1, C]: clauses that say nothing against a kernel, of ``state`` as quarantine left it; None:
    nowhere.
    """
    places = slow_clauses(case.setup.contract)
    if not places.size or case.setup.fleet.engine is None or case.kernels == 1:
        return None
    slow = (state.healthy_rps >= SLOW_FACTOR * state.replica_rps) & (state.replica_rps > 0.0)
    if not some_in(slow):
        return None
    slowness = _slowness(state)
    others = able_kernels(state, case)[:, None, :] & ~np.eye(case.kernels, dtype=np.bool_)
    counts = np.where(_known(state, case), slowness, 0.0)[:, None, :]
    fastest = np.where(others, counts, np.inf).min(axis=2)
    shared = slow & np.isfinite(fastest) & (fastest >= FASTER_RATIO * slowness)
    if not some_in(shared):
        return None
    found = np.zeros((*shared.shape, 1, len(case.setup.contract.clause_ids)), dtype=np.bool_)
    found[..., places] = shared[:, :, None, None]
    return found


def _slowness(state: ControllerState) -> NDArray[np.float64]:
    """float64 [B, K]: what a replica would carry well over what it carries; 1 where it carries nothing."""
    carries = state.replica_rps > 0.0
    return np.where(carries, state.healthy_rps / np.where(carries, state.replica_rps, 1.0), 1.0)


def _known(state: ControllerState, case: Case) -> Flags:
    """bool [B, K]: a server in rotation has told how fast it is."""
    told = (state.engine_speed[..., SCRAPES] > 0.0) & case.ready & ~state.quarantined
    return np.asarray(kernel_count(told, case.owner, case.kernels) > 0)
