"""The spec that an engine's fleets share, and a fault's effect on one replica.

Axes: K kernels, R replicas, S slices, F latency families, Q conditions, N traffic prompts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contracts.telemetry import HISTOGRAM_EDGES_MS, LATENCY_FAMILIES


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec:
    """Settings that all fleets of one engine share."""

    replica_kernel: NDArray[np.int64]
    """[R], kernel of each replica."""
    step_model: NDArray[np.float64]
    """[K, 4] seconds: an engine step lasts ``c0 + c1 * prefill_tokens + c2 * decoding_sequences + c3 *
    sum_of_their_contexts``."""
    kv_blocks: NDArray[np.int64]
    """[K], KV-cache blocks per replica."""
    timeout_s: NDArray[np.float64]
    """[S], from arrival."""
    slo_ms: NDArray[np.float64]
    """[S, F], inf: no SLO."""
    quality: NDArray[np.float64]
    """[K, Q, N] in 0..1, excess total variation to the reference on a traffic prompt; Q = 0 is healthy."""
    hard_slices: NDArray[np.bool_]
    """[S]"""
    max_batch: int = 64
    """Sequences at once, at most ``layout.MAX_BATCH``."""
    token_budget: int = 2048
    """Tokens per step, prefill chunks and decodes together."""
    block_tokens: int = 16
    """Tokens of a KV block, a power of two."""
    watermark_blocks: int = 8
    """Blocks that stay free at admission."""
    queue_limit: int = 256
    """Waiting requests per replica; above it the replica answers 429 and the gateway tries another."""
    max_attempts: int = 3
    """Per request, first one included."""
    sticky: bool = True
    """A session keeps its replica of each kernel while that replica is in rotation."""
    session_slots: int = 4096
    """Sessions remembered at once per fleet, a power of two."""
    histogram_edges_ms: tuple[float, ...] = HISTOGRAM_EDGES_MS
    """Rising upper edges of the latency buckets."""
    request_delay_s: tuple[float, ...] = ()
    """[K], delay that serving adds to first and last token of every request; empty: none. Servers' own
    counters do not include it.
    """

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

    def delay_s(self, kernel: int) -> float:
        """Seconds by which serving delays the requests of ``kernel``."""
        return self.request_delay_s[kernel] if self.request_delay_s else 0.0

    @property
    def prompt_and_output_tokens(self) -> int:
        """Longest request, prompt and output together, that fits the KV cache of every kernel."""
        return (int(self.kv_blocks.min()) - self.watermark_blocks) * self.block_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineEffect:
    """What a fault does to one replica's requests; the default does nothing."""

    condition: int = 0
    """Index on the condition axis of ``EngineSpec.quality``."""
    only_slice: int = -1
    """The condition strikes only requests of this slice; -1: all requests."""
    after_tokens: int = 0
    """The condition strikes only the tokens of an answer after this many."""
    min_batch: int = 0
    """The condition strikes only requests admitted into a batch of at least this size, themselves
    included.
    """
    step_time_factor: float = 1.0
    """Multiplies the whole step."""
    step_extra_s: float = 0.0
    """Added to every step."""
    hang: bool = False
    """Accepts requests but makes no progress."""
    kv_held_ratio: float = 0.0
    """Share of the KV blocks that is taken away."""
    http_error_ratio: float = 0.0
    """Share of attempts answered 5xx at admission."""
    http_latency_s: float = 0.0
    """Added to every answer: the client sees every token that much later, and its timeout leaves the replica
    that much less time; the replica's own steps do not change."""

    @property
    def numbers(self) -> tuple[int, int, int, int]:
        """The part that changes the quality of tokens."""
        return self.condition, self.only_slice, self.after_tokens, self.min_batch

    @property
    def speed(self) -> tuple[float, float, bool, float]:
        """The part that changes when engine steps end."""
        return self.step_time_factor, self.step_extra_s, self.hang, self.kv_held_ratio
