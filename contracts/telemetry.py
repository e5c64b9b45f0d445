"""Telemetry records: what a controller observes of its fleet in one control tick, as arrays.

Telemetry is finite, delayed and sometimes missing; it is never the ground truth of the simulator. One
``FleetTelemetry`` holds what *arrived* since the last tick, for a batch of B fleets; a live fleet or a
cluster has B = 1. The other axes are those of ``contracts.compiled.contract``: R replicas, K kernels, S
slices, M probe metrics, F latency families, E histogram edges; and P slots for probes.

Each array has the axes that its source can tell apart. A server does not know slices, so metrics scraped from
a replica have no slice axis; a gateway routes slices to kernels and counts by both, and counts attempts by
host; only a prober knows both slice and replica. The names in comments are those of vLLM's and Envoy's
metrics.
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

#: Latency families of a histogram, in array order. A server measures from the reception of a request:
#: vllm:e2e_request_latency_seconds, vllm:time_to_first_token_seconds and, as the mean of a request,
#: vllm:request_time_per_output_token_seconds. A gateway includes retries and the network: Envoy's
#: upstream_rq_time and the times of its access log, or gen_ai.server.request.duration,
#: .time_to_first_token and .time_per_output_token of its AI gateway.
LATENCY_FAMILIES: tuple[str, ...] = ("latency_ms", "ttft_ms", "inter_token_ms")


class ReplicaState(IntEnum):
    """Lifecycle state of a replica as discovery (Kubernetes endpoints, process table) reports it."""

    ABSENT = 0
    STARTING = 1
    READY = 2
    DRAINING = 3
    DEAD = 4


class Source(IntEnum):
    """Where a clause's observations come from."""

    PROBE = 0  # ProbeSamples.values[..., column]
    LATENCY = 1  # latency_le[..., column, edge], of GatewayCounts or FleetTelemetry
    FAILED = 2  # failed / (answered + failed), likewise
    FINGERPRINT = 3  # 1 - fingerprint_match
    TRACE_FIELDS = 4  # 1 - trace_fields_ratio
    KV_USED = 5  # kv_used_ratio
    OFFLINE = 6  # judged by `selvage contract evaluate` only, never online
    STEP_TIME = 7  # measured over certified time of engine steps, from ``engine``


class ProbeOutcome(IntEnum):
    """How a probe ended."""

    NONE = 0  # the slot is unused, or the outcome is unknown
    ANSWERED = 1
    REFUSED = 2  # no connection
    FAILED = 3  # an error instead of an answer
    TIMED_OUT = 4  # no answer in time
    UNREADABLE = 5  # answered in time, but not the question: no JSON, other tokens, tokens missing


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeSamples:
    """Probes that ended in this tick, in up to P slots per fleet."""

    replica: NDArray[np.int64]  # [B, P] index in the layout
    slice: NDArray[np.int64]  # [B, P] index in the layout
    prompt: NDArray[np.int64]  # [B, P] id of the measured prompt
    sampled_at_ms: NDArray[np.float64]  # [B, P] when the probe was sent
    values: NDArray[np.float64]  # [B, P, M] in the metric's unit, NaN where not measured
    valid: NDArray[np.bool_]  # [B, P] answered: ``values`` are a result
    outcome: NDArray[np.int8]  # [B, P] a ``ProbeOutcome``
    latency_ms: NDArray[np.float64]  # [B, P] from sending to the whole answer, NaN: unanswered or unknown

    @classmethod
    def of_results(
        cls,
        *,
        replica: NDArray[np.int64],
        slice: NDArray[np.int64],  # noqa: A002 - the field's name
        prompt: NDArray[np.int64],
        sampled_at_ms: NDArray[np.float64],
        values: NDArray[np.float64],
        valid: NDArray[np.bool_],
    ) -> ProbeSamples:
        """Samples from a prober that reports results only: other outcomes and latencies are unknown."""
        return cls(
            replica=replica,
            slice=slice,
            prompt=prompt,
            sampled_at_ms=sampled_at_ms,
            values=values,
            valid=valid,
            outcome=np.where(valid, int(ProbeOutcome.ANSWERED), int(ProbeOutcome.NONE)).astype(np.int8),
            latency_ms=np.full(valid.shape, np.nan),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCounters:
    """Increments of each replica's engine counters between its two newest scrapes.

    NaN means unknown: no new scrape in this tick, the first scrape of a process (counters restart at zero),
    or a metric that the server does not export. Unknown counts neither for nor against a replica.
    """

    span_s: NDArray[np.float64]  # [B, R], time between the two scrapes
    iterations: NDArray[np.float64]  # [B, R], engine steps (vllm:iteration_tokens_total, its count)
    prompt_tokens: NDArray[np.float64]  # [B, R], of prompts prefilled, once each (vllm:prompt_tokens_total)
    generation_tokens: NDArray[np.float64]  # [B, R], first and later ones (vllm:generation_tokens_total)
    inter_token_s: NDArray[np.float64]  # [B, R], between tokens (vllm:inter_token_latency_seconds, sum)
    inter_tokens: NDArray[np.float64]  # [B, R], tokens that have a forerunner (its count)
    queue_s: NDArray[np.float64]  # [B, R], before first admission (vllm:request_queue_time_seconds, sum)
    admitted: NDArray[np.float64]  # [B, R], requests (its count)
    finished: NDArray[np.float64]  # [B, R], requests answered to the end (vllm:request_success_total)
    preemptions: NDArray[np.float64]  # [B, R], (vllm:num_preemptions_total)

    @classmethod
    def of(cls, columns: NDArray[np.float64]) -> EngineCounters:
        """Counters whose fields are views of ``columns`` [``ENGINE_COUNTERS``, B, R], in field order."""
        return cls(**{entry.name: columns[at] for at, entry in enumerate(fields(cls))})

    @classmethod
    def unknown(cls, batch: int, replicas: int) -> EngineCounters:
        """Counters of ``batch`` fleets of ``replicas`` with every value unknown (NaN)."""
        return cls.of(np.full((ENGINE_COUNTERS, batch, replicas), np.nan))


#: Number of fields of ``EngineCounters``.
ENGINE_COUNTERS = len(fields(EngineCounters))


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayCounts:
    """Attempts of each slice on each kernel as the gateway counts them, retries included.

    The source is one Envoy cluster per slice and kernel, or the access log (route and cluster). Counters are
    increments since the last tick. Envoy merges histograms when it flushes statistics (every 5 s by default):
    a tick with a flush has everything since the last flush, any other tick nothing.
    """

    answered: NDArray[np.int64]  # [B, S, K] attempts that ended well (cluster.*.upstream_rq_2xx)
    failed: NDArray[np.int64]  # [B, S, K] 5xx, reset or timeout (.upstream_rq_5xx, .upstream_rq_timeout)
    timed_out: NDArray[np.int64]  # [B, S, K] those of ``failed`` that timed out; 0 where not reported
    latency_le: NDArray[np.int64]  # [B, S, K, F, E + 1] answers up to each edge, the last all

    @classmethod
    def nothing(cls, batch: int, slices: int, kernels: int) -> GatewayCounts:
        """Counts of ``batch`` fleets in which no attempt ended."""
        each = (batch, slices, kernels)
        buckets = (len(LATENCY_FAMILIES), len(HISTOGRAM_EDGES_MS) + 1)
        return cls(
            answered=np.zeros(each, dtype=np.int64),
            failed=np.zeros(each, dtype=np.int64),
            timed_out=np.zeros(each, dtype=np.int64),
            latency_le=np.zeros((*each, *buckets), dtype=np.int64),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetTelemetry:
    """All telemetry that arrived in one control tick, for B fleets."""

    now_ms: NDArray[np.float64]  # [B] the controller's clock
    replica_state: NDArray[np.int8]  # [B, R] a ``ReplicaState``

    # Scrapes of the servers.
    scraped_at_ms: NDArray[np.float64]  # [B, R] instant of the newest scrape that has arrived, NaN: none yet
    running: NDArray[np.float64]  # [B, R] requests (vllm:num_requests_running)
    waiting: NDArray[np.float64]  # [B, R] requests (vllm:num_requests_waiting)
    kv_used_ratio: NDArray[np.float64]  # [B, R] 0..1 (vllm:kv_cache_usage_perc, which is a ratio)
    latency_le: NDArray[
        np.int64
    ]  # [B, R, F, E + 1] answers up to each edge since the scrape before, last all
    engine: EngineCounters
    #: [B, R] requests that the gateway had under way to the replica at that scrape (Envoy's /clusters:
    #: rq_active of a host) beyond those running or waiting there, NaN where not reported
    outside: NDArray[np.float64]
    fingerprint_match: NDArray[np.float64]  # [B, R] 1 right, 0 wrong, NaN unknown
    trace_fields_ratio: NDArray[np.float64]  # [B, R] share of answers with every required field, NaN unknown

    # The gateway's counts since the last tick.
    offered: NDArray[np.int64]  # [B, S] requests that reached it
    gateway: GatewayCounts
    answered: NDArray[np.int64]  # [B, R] attempts that ended well (Envoy's /clusters: rq_success of a host)
    failed: NDArray[np.int64]  # [B, R] attempts that ended badly (rq_error)
    consecutive_failed: NDArray[np.int64]  # [B, R] failed attempts since the last answered one

    probes: ProbeSamples


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRates:
    """How often each replica and the gateway are sampled."""

    probes_per_s: float
    """Probes per second, round robin over the slices."""
    scrape_interval_s: float
    """Time between two scrapes, and between two flushes of the gateway's histograms."""
    gateway_interval_s: float = 1.0
    """Time between two readings of the gateway's counters: the control tick."""
