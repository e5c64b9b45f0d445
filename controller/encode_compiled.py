"""Compiled loops of the observation; every fleet by itself, replicas and slices in their order."""

from __future__ import annotations

import numpy as np
from numba import njit

from contracts.telemetry import ReplicaState

#: A plain integer, because compiled code does not know the enumeration.
READY = int(ReplicaState.READY)
#: Answers per second below which a replica's failed ratio says nothing.
LEAST_RPS = 1e-6
#: Capacity in requests per second that a load is compared with at least.
LEAST_CAPACITY_RPS = 1e-9


@njit(cache=True, error_model="numpy")
def see_replicas(  # type: ignore[no-untyped-def]  # pragma: no cover
    in_rotation, failed_ratio, ready, running, waiting, replica_state, quarantined, ejected, answered_rps,
    failed_rps, running_now, waiting_now, owner,
):  # fmt: skip
    """Of replicas [B, R]: in rotation, share of failures; of kernels [B, K]: how many, mean queues.

    Queues that nobody knows count as 0.
    """
    members = np.zeros(ready.shape[1], np.int64)
    for k in owner:
        members[k] += 1
    for b in range(in_rotation.shape[0]):
        for r in range(len(owner)):
            serves = replica_state[b, r] == READY and not (quarantined[b, r] or ejected[b, r])
            in_rotation[b, r] = serves
            k = owner[r]
            ready[b, k] += serves
            running[b, k] += _known(running_now[b, r])
            waiting[b, k] += _known(waiting_now[b, r])
            ended_rps = answered_rps[b, r] + failed_rps[b, r]
            failed_ratio[b, r] = failed_rps[b, r] / ended_rps if ended_rps > LEAST_RPS else 0.0
        for k in range(len(members)):
            running[b, k] /= max(members[k], 1)
            waiting[b, k] /= max(members[k], 1)


@njit(cache=True, error_model="numpy")
def _known(value):  # type: ignore[no-untyped-def]  # pragma: no cover
    return 0.0 if np.isnan(value) else max(value, 0.0)


@njit(cache=True, error_model="numpy")
def see_kernels(  # type: ignore[no-untyped-def]  # pragma: no cover
    capacity_rps, load_ratio, evidence_age_s, since_move_s, ready, replica_rps, table, offered_rps, now_s,
    probed_s, row_moved_s, owner,
):  # fmt: skip
    """Capacity, load and age of the newest probe of each kernel; time since each slice's row moved.

    replica_rps: float64 [K], what one replica carries. Load is that of the table in force.
    """
    fleets, kernels = load_ratio.shape
    slices = offered_rps.shape[1]
    for b in range(fleets):
        for k in range(kernels):
            capacity_rps[b, k] = ready[b, k] * replica_rps[k]
            load_rps = 0.0
            for s in range(slices):
                load_rps += table[b, s, k] * offered_rps[b, s]
                evidence_age_s[b, k, s] = -np.inf
            load_ratio[b, k] = load_rps / max(capacity_rps[b, k], LEAST_CAPACITY_RPS)
        for r in range(len(owner)):
            for s in range(slices):
                evidence_age_s[b, owner[r], s] = max(evidence_age_s[b, owner[r], s], probed_s[b, r, s])
        for s in range(slices):
            since_move_s[b, s] = now_s[b] - row_moved_s[b, s]
            for k in range(kernels):
                evidence_age_s[b, k, s] = now_s[b] - evidence_age_s[b, k, s]
