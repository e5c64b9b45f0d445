"""Compiled loops of the observation; every fleet by itself, replicas and slices in their order.

Records cross the border as plain tuples, which numba reads in a third of the time of named ones (0.1 us an
array); inside they are named again.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.jit import borrowed, compiled
from contracts.telemetry import ReplicaState
from controller.perceive.capacity_pass import UNBOUNDED_RPS

#: A plain integer, because compiled code does not know the enumeration.
READY = int(ReplicaState.READY)
#: Ended attempts per second below which a replica's failed ratio is not meaningful.
LEAST_ENDED_RPS = 1e-6
#: Lower bound of the capacity by which a load is divided, in requests per second.
LEAST_CAPACITY_RPS = 1e-9
#: Sure capacity of a kernel over its present load, at least: policies fill 0.85 to 0.9 of a capacity, and
#: would leave a kernel that looks exactly full.
KEPT_MARGIN = 1.2


class Replicas(NamedTuple):
    """State of the replicas."""

    replica_state: NDArray[np.int8]  # [B, R], a ``ReplicaState``
    quarantined: NDArray[np.bool_]  # [B, R]
    ejected: NDArray[np.bool_]  # [B, R]
    answered_rps: NDArray[np.float64]  # [B, R]
    failed_rps: NDArray[np.float64]  # [B, R]
    running: NDArray[np.float64]  # [B, R], requests in the newest scrape (NaN: not known)
    waiting: NDArray[np.float64]  # [B, R], requests in the queue (NaN: not known)


class Rotation(NamedTuple):
    """Observation of the replicas; filled in, with ``ready`` and queues from 0."""

    in_rotation: NDArray[np.bool_]  # [B, R]
    failed_ratio: NDArray[np.float64]  # [B, R]
    ready: NDArray[np.int64]  # [B, K], replicas in rotation
    running: NDArray[np.float64]  # [B, K], mean over all replicas of the kernel
    waiting: NDArray[np.float64]  # [B, K], the same


class Routing(NamedTuple):
    """The table in force, and the state of kernels and slices."""

    replica_rps: NDArray[np.float64]  # [B, K], capacity of one replica, best estimate
    least_rps: NDArray[np.float64]  # [B, K], lower limit of that capacity
    healthy_rps: NDArray[np.float64]  # [B, K], its capacity at certified or usual speed
    table: NDArray[np.float64]  # [B, S, K + 1]
    offered_rps: NDArray[np.float64]  # [B, S]
    now_s: NDArray[np.float64]  # [B]
    probed_at_s: NDArray[np.float64]  # [B, R, S]
    row_moved_at_s: NDArray[np.float64]  # [B, S]


class Load(NamedTuple):
    """Observation of kernels and slices; filled in."""

    capacity_rps: NDArray[np.float64]  # [B, K], of the replicas in rotation, best estimate
    load_ratio: NDArray[np.float64]  # [B, K], load of the table in force over that capacity
    sure_rps: NDArray[np.float64]  # [B, K], sure capacity of those replicas
    evidence_age_s: NDArray[np.float64]  # [B, K, S], age of the newest probe (inf: none)
    since_move_s: NDArray[np.float64]  # [B, S], time since the row moved


@compiled
def see_replicas(shown, replicas, owner):
    """Fill in the replicas in rotation, failure ratios and mean queues. Unknown queues count as 0."""
    shown, replicas = borrowed((Rotation(*shown), Replicas(*replicas)))
    ready, running, waiting = shown.ready, shown.running, shown.waiting
    answered_rps, failed_rps = replicas.answered_rps, replicas.failed_rps
    members = np.zeros(ready.shape[1], np.int64)
    for k in owner:
        members[k] += 1
    for b in range(shown.in_rotation.shape[0]):
        for r in range(len(owner)):
            away = replicas.quarantined[b, r] or replicas.ejected[b, r]
            serves = replicas.replica_state[b, r] == READY and not away
            shown.in_rotation[b, r] = serves
            k = owner[r]
            ready[b, k] += serves
            running[b, k] += _known(replicas.running[b, r])
            waiting[b, k] += _known(replicas.waiting[b, r])
            ended_rps = answered_rps[b, r] + failed_rps[b, r]
            shown.failed_ratio[b, r] = failed_rps[b, r] / ended_rps if ended_rps > LEAST_ENDED_RPS else 0.0
        for k in range(len(members)):
            running[b, k] /= max(members[k], 1)
            waiting[b, k] /= max(members[k], 1)


@compiled
def _known(value):
    return 0.0 if np.isnan(value) else max(value, 0.0)


@compiled
def see_kernels(shown, routing, ready, owner):
    """Capacity, load and age of the newest probe of each kernel; time since each slice's row moved.

    The capacity shown is the best estimate; until something was counted, that at certified speed. More
    traffic is planned against the lower limit of the capacity, ``sure_rps``. Present traffic is no reason to
    leave a kernel while the best estimate carries it.
    """
    shown, routing = borrowed((Load(*shown), Routing(*routing)))
    capacity_rps, age_s = shown.capacity_rps, shown.evidence_age_s
    table, offered_rps, now_s, probed_at_s = (
        routing.table,
        routing.offered_rps,
        routing.now_s,
        routing.probed_at_s,
    )
    fleets, kernels = shown.load_ratio.shape
    slices = offered_rps.shape[1]
    for b in range(fleets):
        for k in range(kernels):
            load_rps = 0.0
            for s in range(slices):
                load_rps += table[b, s, k] * offered_rps[b, s]
                age_s[b, k, s] = -np.inf
            best_rps = routing.replica_rps[b, k]
            kept_rps = min(ready[b, k] * best_rps, load_rps * KEPT_MARGIN)
            shown.sure_rps[b, k] = max(ready[b, k] * routing.least_rps[b, k], kept_rps)
            shown_rps = best_rps if best_rps < UNBOUNDED_RPS else routing.healthy_rps[b, k]
            capacity_rps[b, k] = ready[b, k] * shown_rps
            shown.load_ratio[b, k] = load_rps / max(capacity_rps[b, k], LEAST_CAPACITY_RPS)
        for r in range(len(owner)):
            for s in range(slices):
                age_s[b, owner[r], s] = max(age_s[b, owner[r], s], probed_at_s[b, r, s])
        for s in range(slices):
            shown.since_move_s[b, s] = now_s[b] - routing.row_moved_at_s[b, s]
            for k in range(kernels):
                age_s[b, k, s] = now_s[b] - age_s[b, k, s]
