"""What goes into the fleet engine and what comes out: spec, arrivals, effects, counters, gauges.

Axes as in ``contracts.layout``: ``B`` fleets, ``R`` replicas, ``S`` slices, ``K`` kernels, ``F`` latency
families, ``E`` histogram edges. Times are seconds on the fleet's clock, which starts at 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from contracts.layout import HISTOGRAM_EDGES_MS, LATENCY_FAMILIES
from simulator.engine_columns import (
    ANSWERED,
    ATTEMPTS_FAILED,
    ATTEMPTS_REJECTED,
    DISPATCHED,
    EXPOSED,
    EXPOSED_IN_FLIGHT,
    FAILED,
    FIRST_REASON,
    OFFERED,
    OFFERED_TOKENS,
    SHED_COUNT,
    SLO_MISSED,
    TOKENS,
    UNROUTED,
)

#: Most sequences that one replica may run at once (a fixed field length keeps the compiled record flat).
MAX_BATCH = 256
#: Most attempts of one request, for the same reason.
MAX_ATTEMPTS = 5


class RequestStatus(IntEnum):
    """How a request ended. From ``TIMEOUT`` to ``NO_REPLICA`` it counts as failed."""

    IN_FLIGHT = 0
    ANSWERED = 1
    TIMEOUT = 2  # not finished timeout_s after its arrival
    RESET = 3  # its replica crashed, or refused the connection because it was dead
    HTTP_ERROR = 4  # 5xx at admission on the last attempt
    REJECTED = 5  # 429 (queue limit) on the last attempt
    NO_REPLICA = 6  # no replica in rotation for any kernel of its row
    SHED = 7  # by the routing table, never reached a replica


#: The failed statuses, in the order of ``Counters.failed_by_reason``.
FAILURE_REASONS: tuple[RequestStatus, ...] = (
    RequestStatus.TIMEOUT,
    RequestStatus.RESET,
    RequestStatus.HTTP_ERROR,
    RequestStatus.REJECTED,
    RequestStatus.NO_REPLICA,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec:
    """What all fleets of one engine share.

    replica_kernel: int64 [R]. step_model: float64 [K, 4] seconds: one engine step lasts
        ``c0 + c1 * prefill_tokens + c2 * decoding_sequences + c3 * sum_of_their_contexts``.
    kv_blocks: int64 [K], KV-cache blocks of ``block_tokens`` tokens per replica; ``watermark_blocks``
        stay free at admission. max_batch: sequences at once (at most ``MAX_BATCH``); token_budget:
        tokens per step, prefill chunks and decodes together.
    queue_limit: waiting requests per replica; above it the replica answers 429 and the gateway tries
        another. timeout_s: float64 [S], from arrival. max_attempts: per request, first one included.
    sticky: a session keeps its replica of each kernel while that replica is in rotation.
    slo_ms: float64 [S, F], inf where there is none. hard_slices: bool [S].
    quality: float64 [K, Q, N], excess total variation to the reference of kernel k under condition q
        (0 is healthy) on traffic prompt n, in 0..1.
    session_slots: sessions remembered at once per fleet (a power of two).
    """

    replica_kernel: NDArray[np.int64]
    step_model: NDArray[np.float64]
    kv_blocks: NDArray[np.int64]
    timeout_s: NDArray[np.float64]
    slo_ms: NDArray[np.float64]
    quality: NDArray[np.float64]
    hard_slices: NDArray[np.bool_]
    max_batch: int = 64
    token_budget: int = 2048
    block_tokens: int = 16
    watermark_blocks: int = 8
    queue_limit: int = 256
    max_attempts: int = 3
    sticky: bool = True
    session_slots: int = 4096
    histogram_edges_ms: tuple[float, ...] = HISTOGRAM_EDGES_MS

    @property
    def kernels(self) -> int:
        """K."""
        return int(self.step_model.shape[0])

    @property
    def slices(self) -> int:
        """S."""
        return int(self.timeout_s.shape[0])

    @property
    def replicas(self) -> int:
        """R."""
        return int(self.replica_kernel.shape[0])

    @property
    def families(self) -> int:
        """F."""
        return len(LATENCY_FAMILIES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """Requests of one fleet in order of arrival, with every random number they will ever need.

    arrived_s: float64 [n], not decreasing. slice, prompt_tokens, output_tokens, prompt: int64 [n];
    ``prompt`` indexes the last axis of ``EngineSpec.quality``. session: int64 [n], -1 for none.
    uniforms: float64 [n, 4] in [0, 1): kernel choice, first and second replica candidate, HTTP error.
    The engine keeps 32 bits of each. Because they travel with the request, a fault or another policy
    never shifts anybody else's draws.
    """

    arrived_s: NDArray[np.float64]
    slice: NDArray[np.int64]
    prompt_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    session: NDArray[np.int64]
    prompt: NDArray[np.int64]
    uniforms: NDArray[np.float64]

    def __len__(self) -> int:
        return int(self.arrived_s.shape[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaEffect:
    """What a fault does to one replica; the default does nothing.

    condition: index into ``EngineSpec.quality``'s condition axis. step_time_factor multiplies the whole
    step, ``step_extra_s`` is added to it. hang: accepts requests, makes no progress. kv_held_ratio:
    share of the KV blocks taken away. http_error_ratio: share of attempts answered 5xx at admission.
    http_latency_s: added on the way back, so the client sees every token that much later and its
    timeout leaves the replica that much less; the replica's own steps do not change.
    """

    condition: int = 0
    step_time_factor: float = 1.0
    step_extra_s: float = 0.0
    hang: bool = False
    kv_held_ratio: float = 0.0
    http_error_ratio: float = 0.0
    http_latency_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """What happened since the previous ``take_counters``.

    cells: int64 [B, R, S, columns] and per_slice: int64 [B, S, columns] are the raw counts that the
    named properties pick from. excess_tv_tokens: float64 [B, S], sum over answered tokens of the excess
    TV. busy_s: float64 [B, R], time spent in engine steps.
    """

    cells: NDArray[np.int64]
    per_slice: NDArray[np.int64]
    excess_tv_tokens: NDArray[np.float64]
    busy_s: NDArray[np.float64]

    @property
    def offered(self) -> NDArray[np.int64]:
        """Requests that reached the gateway, [B, S]."""
        return self.per_slice[..., OFFERED]

    @property
    def shed(self) -> NDArray[np.int64]:
        """Requests shed by the table, [B, S]."""
        return self.per_slice[..., SHED_COUNT]

    @property
    def unrouted(self) -> NDArray[np.int64]:
        """Failures that reached no replica, [B, S]; not in ``failed``."""
        return self.per_slice[..., UNROUTED]

    @property
    def offered_tokens(self) -> NDArray[np.float64]:
        """Output tokens of the offered requests, float64 [B, S]."""
        return self.per_slice[..., OFFERED_TOKENS].astype(np.float64)

    @property
    def failed_by_reason(self) -> NDArray[np.int64]:
        """Failed requests, unrouted included, [B, S, 5] in the order of ``FAILURE_REASONS``."""
        return self.per_slice[..., FIRST_REASON:]

    @property
    def dispatched(self) -> NDArray[np.int64]:
        """Attempts sent to a replica, [B, R, S], refused ones included."""
        return self.cells[..., DISPATCHED]

    @property
    def answered(self) -> NDArray[np.int64]:
        """Requests answered, [B, R, S]."""
        return self.cells[..., ANSWERED]

    @property
    def failed(self) -> NDArray[np.int64]:
        """Requests failed for good, [B, R, S] by the replica of the last attempt."""
        return self.cells[..., FAILED]

    @property
    def attempts_failed(self) -> NDArray[np.int64]:
        """Attempts that ended badly (5xx, reset, timeout) as a gateway counts them, [B, R, S]."""
        return self.cells[..., ATTEMPTS_FAILED]

    @property
    def attempts_rejected(self) -> NDArray[np.int64]:
        """Attempts answered 429, [B, R, S]."""
        return self.cells[..., ATTEMPTS_REJECTED]

    @property
    def slo_missed(self) -> NDArray[np.int64]:
        """Answered requests over an objective of their slice, [B, S]."""
        return self._over_replicas(SLO_MISSED)

    @property
    def exposed(self) -> NDArray[np.int64]:
        """Answers on hard slices whose replica was violating when they were routed, [B, S]."""
        return self._over_replicas(EXPOSED)

    @property
    def exposed_in_flight(self) -> NDArray[np.int64]:
        """Of these, routed before the last change of their row or of its replicas, [B, S]."""
        return self._over_replicas(EXPOSED_IN_FLIGHT)

    @property
    def answered_tokens(self) -> NDArray[np.float64]:
        """Output tokens of the answered requests, float64 [B, S]."""
        return self._over_replicas(TOKENS).astype(np.float64)

    def _over_replicas(self, column: int) -> NDArray[np.int64]:
        total: NDArray[np.int64] = self.cells[..., column].sum(axis=1)
        return total


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauges:
    """State at the fleets' current time; everything [B, R].

    counts: int64 [5, B, R], what the named properties pick from. kv_used_ratio: float64, blocks in use
    or held by a fault over all blocks.
    """

    counts: NDArray[np.int64]
    kv_used_ratio: NDArray[np.float64]

    @property
    def running(self) -> NDArray[np.int64]:
        """Requests in the running batch."""
        return self.counts[0]

    @property
    def waiting(self) -> NDArray[np.int64]:
        """Requests in the queue."""
        return self.counts[1]

    @property
    def outstanding(self) -> NDArray[np.int64]:
        """Running and waiting."""
        return self.counts[2]

    @property
    def consecutive_failed(self) -> NDArray[np.int64]:
        """Attempts failed since the last answer; a 429 neither counts nor resets."""
        return self.counts[3]

    @property
    def alive(self) -> NDArray[np.bool_]:
        """The process accepts connections."""
        return self.counts[4] != 0


#: One row of ``FleetEngine.requests``. ``routed_s`` is the last routing, ``started_s`` the first admission
#: to a running batch, NaN where it never happened; ``replica`` and ``kernel`` are -1 if it reached none.
REQUEST_RECORD = np.dtype(
    [
        ("id", np.int64),
        ("arrived_s", np.float64),
        ("routed_s", np.float64),
        ("started_s", np.float64),
        ("first_token_s", np.float64),
        ("finished_s", np.float64),
        ("replica", np.int64),
        ("kernel", np.int64),
        ("slice", np.int64),
        ("status", np.int64),
        ("attempts", np.int64),
        ("preemptions", np.int64),
        ("prompt_tokens", np.int64),
        ("output_tokens", np.int64),
        ("excess_tv_tokens", np.float64),
    ]
)

__all__ = [
    "FAILURE_REASONS",
    "MAX_ATTEMPTS",
    "MAX_BATCH",
    "REQUEST_RECORD",
    "Arrivals",
    "Counters",
    "EngineSpec",
    "Gauges",
    "ReplicaEffect",
    "RequestStatus",
]
