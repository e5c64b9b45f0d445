"""What a fleet shows its controller: finite, delayed, sometimes missing samples. Never the truth.

One ``FleetTelemetry`` per control tick holds what *arrived* since the last tick, for a batch of B
fleets; a live fleet or a cluster has B = 1. Axes are those of ``contracts.layout.FleetLayout``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray


class ReplicaState(IntEnum):
    """What discovery (Kubernetes endpoints, process table) says of a replica."""

    ABSENT = 0
    STARTING = 1
    READY = 2
    DRAINING = 3
    DEAD = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeSamples:
    """Probe results that arrived in this tick; ``P`` slots, unused ones have ``valid`` False.

    replica, slice, prompt: int64 [B, P]; ``prompt`` is the measured prompt's id.
    sampled_at_ms: float64 [B, P], when the probe was sent.
    values: float64 [B, P, M], one number per probe metric (NaN where not measured).
    valid: bool [B, P].
    """

    replica: NDArray[np.int64]
    slice: NDArray[np.int64]
    prompt: NDArray[np.int64]
    sampled_at_ms: NDArray[np.float64]
    values: NDArray[np.float64]
    valid: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetTelemetry:
    """All that arrived in one tick.

    now_ms: float64 [B], the controller's clock.
    replica_state: int8 [B, R], a ``ReplicaState``.
    scraped_at_ms: float64 [B, R], instant of the newest scrape that has arrived (NaN: none yet).
    running, waiting: float64 [B, R], requests (vllm:num_requests_running / _waiting).
    kv_used_ratio: float64 [B, R], 0..1 (vllm:kv_cache_usage_perc, which is a ratio).
    answered, failed: int64 [B, R, S], requests since the previous scrape that ended well / badly
        (HTTP 5xx, reset, timeout) as the gateway counts them.
    latency_le: int64 [B, R, S, F, E + 1], cumulative histogram counts (Prometheus ``le`` semantics;
        the last column is the total) of the scrapes that arrived now, families and edges of
        ``contracts.layout``.
    consecutive_failed: int64 [B, R], the gateway's current run of failed answers per replica.
    fingerprint_match: float64 [B, R], 1 right, 0 wrong, NaN unknown.
    trace_fields_ratio: float64 [B, R], share of answers with every required trace field, NaN unknown.
    offered: int64 [B, S], requests that reached the gateway since the last tick.
    """

    now_ms: NDArray[np.float64]
    replica_state: NDArray[np.int8]
    scraped_at_ms: NDArray[np.float64]
    running: NDArray[np.float64]
    waiting: NDArray[np.float64]
    kv_used_ratio: NDArray[np.float64]
    answered: NDArray[np.int64]
    failed: NDArray[np.int64]
    latency_le: NDArray[np.int64]
    consecutive_failed: NDArray[np.int64]
    fingerprint_match: NDArray[np.float64]
    trace_fields_ratio: NDArray[np.float64]
    offered: NDArray[np.int64]
    probes: ProbeSamples
