"""What a fleet shows its controller: finite, delayed, sometimes missing samples. Never the truth.

One ``FleetTelemetry`` per control tick holds what *arrived* since the last tick, for a batch of B fleets; a
live fleet or a cluster has B = 1. Other axes are those of ``contracts.compiled.layout``: R replicas, S
slices, M probe metrics, F latency families, E histogram edges; and P slots for probes.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

#: Upper bucket edges of every latency histogram, in ms; the last bucket is open. Chosen to cover
#: inter-token times of a few ms and end-to-end times of minutes.
HISTOGRAM_EDGES_MS: tuple[float, ...] = (
    5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 250.0, 500.0, 1000.0, 2000.0,
    4000.0, 8000.0, 15000.0, 30000.0, 60000.0, 120000.0,
)  # fmt: skip

#: Latency families of a histogram, in array order (vLLM: e2e_request_latency_seconds,
#: time_to_first_token_seconds, inter_token_latency_seconds).
LATENCY_FAMILIES: tuple[str, ...] = ("latency_ms", "ttft_ms", "inter_token_ms")


class ReplicaState(IntEnum):
    """What discovery (Kubernetes endpoints, process table) says of a replica."""

    ABSENT = 0
    STARTING = 1
    READY = 2
    DRAINING = 3
    DEAD = 4


class Source(IntEnum):
    """Where a clause's observations come from."""

    PROBE = 0  # ProbeSamples.values[..., column]
    LATENCY = 1  # FleetTelemetry.latency_le[..., column, edge]
    FAILED = 2  # failed / (answered + failed)
    FINGERPRINT = 3  # 1 - fingerprint_match
    TRACE_FIELDS = 4  # 1 - trace_fields_ratio
    KV_USED = 5  # kv_used_ratio
    OFFLINE = 6  # judged by `selvage contract evaluate` only, never online


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeSamples:
    """Probe results that arrived in this tick."""

    replica: NDArray[np.int64]  # [B, P] index in the layout
    slice: NDArray[np.int64]  # [B, P] index in the layout
    prompt: NDArray[np.int64]  # [B, P] id of the measured prompt
    sampled_at_ms: NDArray[np.float64]  # [B, P] when the probe was sent
    values: NDArray[np.float64]  # [B, P, M] in the metric's unit, NaN where not measured
    valid: NDArray[np.bool_]  # [B, P] False: the slot is unused


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCounters:
    """What the engine of a replica counted between its two newest scrapes; all float64 [B, R].

    NaN where nothing is known: no new scrape in this tick, the first scrape of a process (a restart begins
    at zero), or a metric that the server does not export. Unknown is neither bad nor good.
    """

    span_s: NDArray[np.float64]  # time between the two scrapes
    iterations: NDArray[np.float64]  # engine steps (vllm:iteration_tokens_total, its count)
    prompt_tokens: NDArray[np.float64]  # of prompts prefilled, once per request (vllm:prompt_tokens_total)
    generation_tokens: NDArray[np.float64]  # first tokens and later ones (vllm:generation_tokens_total)
    inter_token_s: NDArray[np.float64]  # from each token's forerunner (vllm:inter_token_latency_seconds, sum)
    inter_tokens: NDArray[np.float64]  # tokens that have a forerunner (its count)
    queue_s: NDArray[np.float64]  # waiting before first admission (vllm:request_queue_time_seconds, sum)
    admitted: NDArray[np.float64]  # requests (its count)
    finished: NDArray[np.float64]  # requests answered to the end (vllm:request_success_total)
    preemptions: NDArray[np.float64]  # (vllm:num_preemptions_total)

    @classmethod
    def of(cls, columns: NDArray[np.float64]) -> EngineCounters:
        """The fields in their order from ``columns`` [``ENGINE_COUNTERS``, B, R], as views."""
        return cls(**{entry.name: columns[at] for at, entry in enumerate(fields(cls))})

    @classmethod
    def unknown(cls, batch: int, replicas: int) -> EngineCounters:
        """Nothing known of any replica."""
        return cls.of(np.full((ENGINE_COUNTERS, batch, replicas), np.nan))


#: Fields of ``EngineCounters``.
ENGINE_COUNTERS = len(fields(EngineCounters))


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetTelemetry:
    """All that arrived in one tick. Counts of requests are the gateway's, since the previous scrape."""

    now_ms: NDArray[np.float64]  # [B] the controller's clock
    replica_state: NDArray[np.int8]  # [B, R] a ``ReplicaState``
    scraped_at_ms: NDArray[np.float64]  # [B, R] instant of the newest scrape that has arrived, NaN: none yet
    running: NDArray[np.float64]  # [B, R] requests (vllm:num_requests_running)
    waiting: NDArray[np.float64]  # [B, R] requests (vllm:num_requests_waiting)
    kv_used_ratio: NDArray[np.float64]  # [B, R] 0..1 (vllm:kv_cache_usage_perc, which is a ratio)
    answered: NDArray[np.int64]  # [B, R, S] requests that ended well
    failed: NDArray[np.int64]  # [B, R, S] requests that ended badly (HTTP 5xx, reset, timeout)
    latency_le: NDArray[np.int64]  # [B, R, S, F, E + 1] requests up to each edge (Prometheus le), last all
    consecutive_failed: NDArray[np.int64]  # [B, R] current run of failed answers
    fingerprint_match: NDArray[np.float64]  # [B, R] 1 right, 0 wrong, NaN unknown
    trace_fields_ratio: NDArray[np.float64]  # [B, R] share of answers with every required field, NaN unknown
    offered: NDArray[np.int64]  # [B, S] requests that reached the gateway since the last tick
    engine: EngineCounters
    probes: ProbeSamples


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRates:
    """How often a replica is looked at."""

    probes_per_s: float
    """Probes per second, round robin over the slices."""
    scrape_interval_s: float
    """Time between two scrapes."""
