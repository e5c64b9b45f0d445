"""The oracle's requests and replicas, and the counts at a request's end."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from simulator.engine.requests import RequestStatus
from simulator.engine.spec import EngineEffect, EngineSpec


@dataclass(slots=True, kw_only=True)
class ReferenceRequest:
    """One request and its history."""

    id: int
    arrived: float
    slice: int
    prompt_tokens: int
    output_tokens: int
    session: int
    prompt: int
    uniforms: tuple[float, float, float, float]
    status: RequestStatus = RequestStatus.IN_FLIGHT
    need: int = 0
    done: int = 0
    context: int = 0
    generated: int = 0
    preemptions: int = 0
    routed: float = math.nan
    started: float = math.nan
    first: float = math.nan
    last: float = math.nan
    finished: float = math.nan
    deadline: float = math.inf
    lag: float = 0.0
    excess_tv: float = 0.0
    kernel: int = -1
    replica: int = -1
    prefix_condition: int = 0
    found_batch: int = 0
    exposed: bool = False
    tried: list[int] = field(default_factory=list)

    @property
    def prefilled(self) -> bool:
        """Prefill is done; it decodes now."""
        return self.done == self.need


@dataclass(slots=True, kw_only=True)
class Exported:
    """The server process's own counters, as in vLLM."""

    iterations: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0
    inter_token_s: float = 0.0
    inter_tokens: int = 0
    queue_s: float = 0.0
    admitted: int = 0
    finished: int = 0
    preemptions: int = 0

    def token(self, x: ReferenceRequest, now: float) -> None:
        """The first one brings the prompt with it, each later one the time since the one before."""
        self.generation_tokens += 1
        if math.isnan(x.last):
            self.prompt_tokens += x.prompt_tokens
        else:
            self.inter_tokens += 1
            self.inter_token_s += now - x.last
        x.last = now

    def admission(self, x: ReferenceRequest, now: float) -> None:
        """The first one of a request at this replica."""
        self.admitted += 1
        self.queue_s += now - x.routed


@dataclass(slots=True, kw_only=True)
class Replica:
    """One server: its running batch in order of admission, its queue, and the step under way."""

    kernel: int
    coefficients: tuple[float, float, float, float]
    blocks: int
    effect: EngineEffect = field(default_factory=EngineEffect)
    end: float = math.inf
    stepping: bool = False
    step_effect: EngineEffect = field(default_factory=EngineEffect)
    chunks: dict[int, int] = field(default_factory=dict)
    run: list[ReferenceRequest] = field(default_factory=list)
    queue: list[ReferenceRequest] = field(default_factory=list)
    in_rotation: bool = True
    alive_at: float = 0.0
    cache_epoch: int = 0
    consecutive_failed: int = 0
    busy: float = 0.0
    exported: Exported = field(default_factory=Exported)

    @property
    def outstanding(self) -> int:
        """Number of its requests."""
        return len(self.run) + len(self.queue)


class Accounts:
    """One fleet's requests, and counts of their results."""

    def __init__(self, spec: EngineSpec) -> None:
        self.spec = spec
        self.now = 0.0
        self.steps = 0
        self.requests: list[ReferenceRequest] = []
        self.ahead: list[ReferenceRequest] = []
        self.table = np.zeros((spec.slices, spec.kernels + 1))
        self.table[:, 0] = 1.0
        self.row_changed = np.zeros(spec.slices)
        self.violating = np.zeros((spec.replicas, spec.slices), np.bool_)
        self.sessions: dict[tuple[int, int], tuple[int, int, int, int]] = {}
        self.replicas = [
            Replica(kernel=int(k), coefficients=tuple(spec.step_model[k]), blocks=int(spec.kv_blocks[k]))
            for k in spec.replica_kernel
        ]
        self.answered = np.zeros((spec.replicas, spec.slices), np.int64)
        self.failed = np.zeros_like(self.answered)
        self.attempts_failed = np.zeros_like(self.answered)
        self.dispatched = np.zeros_like(self.answered)
        self.attempts_rejected = np.zeros_like(self.answered)
        self.exposed = np.zeros(spec.slices, np.int64)
        self.exposed_in_flight = np.zeros(spec.slices, np.int64)
        self.slo_missed = np.zeros(spec.slices, np.int64)
        self.useful_tokens = np.zeros(spec.slices)

    def complete(self, r: Replica, x: ReferenceRequest) -> None:
        """Answered, unless its deadline has passed."""
        if self.now > x.deadline:
            self.count_failed_attempt(r, x)
            self.fail(x, RequestStatus.TIMEOUT, self.now)
            return
        x.status, x.finished = RequestStatus.ANSWERED, self.now
        r.consecutive_failed = 0
        r.exported.finished += 1
        self.answered[x.replica, x.slice] += 1
        values = self.latencies_ms(x)
        late = any(v > slo for v, slo in zip(values, self.spec.slo_ms[x.slice], strict=True))
        self.slo_missed[x.slice] += late
        self.useful_tokens[x.slice] += 0.0 if late or x.exposed else x.output_tokens - x.excess_tv
        self.exposed[x.slice] += x.exposed
        self.exposed_in_flight[x.slice] += x.exposed and x.routed < self.row_changed[x.slice]

    def latencies_ms(self, x: ReferenceRequest) -> tuple[float, float, float]:
        """End to end, first token, mean gap between tokens."""
        gap = (x.finished - x.first) / max(x.output_tokens - 1, 1)
        return (x.finished + x.lag - x.arrived) * 1e3, (x.first + x.lag - x.arrived) * 1e3, gap * 1e3

    def count_failed_attempt(self, r: Replica, x: ReferenceRequest) -> None:
        """The gateway saw this replica fail."""
        r.consecutive_failed += 1
        self.attempts_failed[x.replica, x.slice] += 1

    def fail(self, x: ReferenceRequest, status: RequestStatus, now: float) -> None:
        """The request is over."""
        x.status, x.finished = status, now
        if x.replica >= 0:
            self.failed[x.replica, x.slice] += 1
