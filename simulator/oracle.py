"""The oracle: the fleet engine's semantics again, in plain Python, one event per engine step.

For tests and the benchmark only. Nothing is jumped over, shared or lazy: every step of every replica is
an event, blocks are counted by looking at every sequence, excess TV is added token by token. Names follow
``simulator.engine`` and ``simulator.engine_kernels``; only the arithmetic of uniforms is the same on
purpose, because the two must route alike.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from simulator.engine_records import Arrivals, EngineSpec, ReplicaEffect, RequestStatus

TURN = 0.6180339887498949
TURN_ERROR = 0.4142135623730951


@dataclass(slots=True, kw_only=True)
class Request:
    """One request and all that happened to it."""

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
    finished: float = math.nan
    deadline: float = math.inf
    lag: float = 0.0
    excess_tv: float = 0.0
    kernel: int = -1
    replica: int = -1
    poison: int = 0
    exposed: bool = False
    tried: list[int] = field(default_factory=list)

    @property
    def prefilled(self) -> bool:
        """It decodes now."""
        return self.done == self.need


@dataclass(slots=True, kw_only=True)
class Replica:
    """One server: its running batch in order of admission, its queue, and the step under way."""

    kernel: int
    coefficients: tuple[float, float, float, float]
    blocks: int
    effect: ReplicaEffect = field(default_factory=ReplicaEffect)
    end: float = math.inf
    stepping: bool = False
    step_condition: int = 0
    chunks: dict[int, int] = field(default_factory=dict)
    run: list[Request] = field(default_factory=list)
    queue: list[Request] = field(default_factory=list)
    in_rotation: bool = True
    alive_at: float = 0.0
    cache_epoch: int = 0
    consecutive_failed: int = 0
    busy: float = 0.0

    @property
    def outstanding(self) -> int:
        """Requests it has."""
        return len(self.run) + len(self.queue)


class Oracle:
    """One fleet; the same calls as ``FleetEngine`` without the fleet argument."""

    def __init__(self, spec: EngineSpec) -> None:
        self.spec = spec
        self.now = 0.0
        self.steps = 0
        self.requests: list[Request] = []
        self.ahead: list[Request] = []
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

    # ------------------------------------------------------------ what goes in

    def feed(self, arrivals: Arrivals) -> None:
        """Append arrivals."""
        for j in range(len(arrivals)):
            x = Request(
                id=len(self.requests) + len(self.ahead),
                arrived=float(arrivals.arrived_s[j]),
                slice=int(arrivals.slice[j]),
                prompt_tokens=int(arrivals.prompt_tokens[j]),
                output_tokens=int(arrivals.output_tokens[j]),
                session=int(arrivals.session[j]),
                prompt=int(arrivals.prompt[j]),
                uniforms=tuple((np.floor(arrivals.uniforms[j] * 2.0**32) / 2.0**32).tolist()),
            )
            x.need = x.prompt_tokens
            self.ahead.append(x)

    def set_table(self, table: NDArray[np.float64]) -> None:
        """Route by ``table`` [S, K + 1] from now on."""
        self.row_changed[(table != self.table).any(axis=1)] = self.now
        self.table = table.copy()

    def set_rotation(self, in_rotation: NDArray[np.bool_]) -> None:
        """Balance only over these replicas."""
        for r, wanted in zip(self.replicas, in_rotation, strict=True):
            if r.in_rotation != wanted:
                r.in_rotation = bool(wanted)
                self.row_changed[self.table[:, r.kernel] > 0.0] = self.now

    def set_violating(self, violating: NDArray[np.bool_]) -> None:
        """Ground truth [R, S]."""
        self.violating = violating.copy()

    def set_effect(self, replica: int, effect: ReplicaEffect) -> None:
        """Change one replica from its next step on."""
        r = self.replicas[replica]
        r.effect = effect
        model = self.spec.step_model[r.kernel] * effect.step_time_factor
        r.coefficients = (model[0] + effect.step_extra_s, model[1], model[2], model[3])
        r.blocks = int(self.spec.kv_blocks[r.kernel] * (1.0 - effect.kv_held_ratio))
        if not r.stepping:
            self.plan(r)

    def flush_cache(self, replica: int) -> None:
        """Forget cached prefixes."""
        self.replicas[replica].cache_epoch += 1

    def start(self, replica: int, delay_s: float = 0.0) -> None:
        """Accept connections again."""
        self.replicas[replica].alive_at = self.now + delay_s

    def crash(self, replica: int) -> None:
        """Kill one replica; retry what had not streamed."""
        r = self.replicas[replica]
        lost = r.run + r.queue
        r.run, r.queue, r.chunks = [], [], {}
        r.stepping, r.end, r.alive_at = False, math.inf, math.inf
        r.cache_epoch += 1
        retried = [x for x in lost if self.may_retry(x)]
        for x in lost:
            r.consecutive_failed += 1
            self.attempts_failed[replica, x.slice] += 1
            if x not in retried:
                self.fail(x, RequestStatus.RESET, self.now)
        for x in retried:
            x.need, x.done, x.context, x.generated, x.excess_tv = x.prompt_tokens, 0, 0, 0, 0.0
            x.started = math.nan
            self.settle()
            self.route(x, self.now)

    def settle(self) -> None:
        """Run what is due at this very instant."""
        for r in self.replicas:
            while r.end <= self.now:
                self.finish_step(r)

    def may_retry(self, x: Request) -> bool:
        """No token streamed, attempts and time left."""
        in_time = self.now < x.arrived + self.spec.timeout_s[x.slice]
        return math.isnan(x.first) and len(x.tried) < self.spec.max_attempts and bool(in_time)

    # ------------------------------------------------------------ time

    def advance(self, until: float) -> None:
        """Run every event up to ``until``, step ends before arrivals of the same instant."""
        while True:
            r = min(self.replicas, key=lambda replica: replica.end)
            arrival = self.ahead[0].arrived if self.ahead else math.inf
            if min(r.end, arrival) > until:
                break
            assert min(r.end, arrival) >= self.now
            self.now = min(r.end, arrival)
            if r.end <= arrival:
                self.finish_step(r)
            else:
                x = self.ahead.pop(0)
                self.requests.append(x)
                self.route(x, arrival)
        self.now = until

    # ------------------------------------------------------------ one replica

    def blocks_of(self, tokens: int) -> int:
        """Blocks that hold ``tokens``."""
        return -(-tokens // self.spec.block_tokens)

    def blocks_used(self, r: Replica) -> int:
        """Blocks of all running sequences; a prefilling one has all its blocks from the start."""
        return sum(self.blocks_of(x.context if x.prefilled else x.need) for x in r.run)

    def blocks_next(self, r: Replica) -> int:
        """Blocks that the decoding sequences need for their next token."""
        return sum(1 for x in r.run if x.prefilled and x.context % self.spec.block_tokens == 0)

    def plan(self, r: Replica) -> None:
        """Choose the next step or wait."""
        if r.effect.hang:
            self.stall(r)
            return
        preempted = False
        while r.run and self.blocks_next(r) > r.blocks - self.blocks_used(r):
            preempted = True
            x = r.run.pop()
            x.need, x.done = x.prompt_tokens + x.generated, 0
            x.preemptions += 1
            r.queue.insert(0, x)
        decoding = [x for x in r.run if x.prefilled]
        budget = self.spec.token_budget - len(decoding)
        r.chunks = {}
        for x in r.run:
            if not x.prefilled:
                r.chunks[x.id] = min(x.need - x.done, budget)
                budget -= r.chunks[x.id]
        if not preempted:
            budget = self.admit(r, budget)
        if not r.run:
            self.stall(r)
            return
        c0, c1, c2, c3 = r.coefficients
        context = sum(x.context for x in decoding)
        r.stepping = True
        r.step_condition = r.effect.condition
        duration = c0 + c1 * sum(r.chunks.values()) + c2 * len(decoding) + c3 * context
        r.end = self.now + duration
        r.busy += duration

    def admit(self, r: Replica, budget: int) -> int:
        """Admit from the queue, first come first served, while batch, budget and blocks allow."""
        reserved = self.blocks_next(r)
        while r.queue and len(r.run) < self.spec.max_batch and budget > 0:
            x = r.queue[0]
            room = r.blocks - self.blocks_used(r) - reserved - self.blocks_of(x.need)
            if room < self.spec.watermark_blocks:
                break
            r.run.append(r.queue.pop(0))
            if math.isnan(x.started):
                x.started = self.now
            r.chunks[x.id] = min(x.need, budget)
            budget -= r.chunks[x.id]
        return budget

    def stall(self, r: Replica) -> None:
        """No step possible: wake at the next deadline."""
        r.stepping = False
        r.end = min((x.deadline for x in r.run + r.queue), default=math.inf)

    def finish_step(self, r: Replica) -> None:
        """One token per decoding sequence, prefill progress, completions, cancellations."""
        if r.stepping:
            for x in r.run:
                if x.id in r.chunks:
                    x.done += r.chunks[x.id]
                    if x.prefilled:
                        x.context = x.need
                        self.make_token(r, x)
                else:
                    x.context += 1
                    self.make_token(r, x)
            r.chunks = {}
            for x in [x for x in r.run if x.prefilled and x.generated == x.output_tokens]:
                r.run.remove(x)
                self.complete(r, x)
        for group in (r.run, r.queue):
            for x in [x for x in group if x.deadline <= self.now]:
                group.remove(x)
                self.count_failed_attempt(r, x)
                self.fail(x, RequestStatus.TIMEOUT, self.now)
        self.steps += 1
        self.plan(r)

    def make_token(self, r: Replica, x: Request) -> None:
        """One more output token, with the quality of the condition under which its step began."""
        x.generated += 1
        if math.isnan(x.first):
            x.first = self.now
        condition = r.step_condition if r.step_condition != 0 else x.poison
        x.excess_tv += float(self.spec.quality[r.kernel, condition, x.prompt])

    def complete(self, r: Replica, x: Request) -> None:
        """Answered, unless its deadline has passed."""
        if self.now > x.deadline:
            self.count_failed_attempt(r, x)
            self.fail(x, RequestStatus.TIMEOUT, self.now)
            return
        x.status, x.finished = RequestStatus.ANSWERED, self.now
        r.consecutive_failed = 0
        self.answered[x.replica, x.slice] += 1
        values = self.latencies_ms(x)
        self.slo_missed[x.slice] += any(
            v > slo for v, slo in zip(values, self.spec.slo_ms[x.slice], strict=True)
        )
        self.exposed[x.slice] += x.exposed
        self.exposed_in_flight[x.slice] += x.exposed and x.routed < self.row_changed[x.slice]

    def latencies_ms(self, x: Request) -> tuple[float, float, float]:
        """End to end, first token, mean gap between tokens."""
        gap = (x.finished - x.first) / max(x.output_tokens - 1, 1)
        return (x.finished + x.lag - x.arrived) * 1e3, (x.first + x.lag - x.arrived) * 1e3, gap * 1e3

    def count_failed_attempt(self, r: Replica, x: Request) -> None:
        """The gateway saw this replica fail."""
        r.consecutive_failed += 1
        self.attempts_failed[x.replica, x.slice] += 1

    def fail(self, x: Request, status: RequestStatus, now: float) -> None:
        """The request is over."""
        x.status, x.finished = status, now
        if x.replica >= 0:
            self.failed[x.replica, x.slice] += 1

    # ------------------------------------------------------------ the gateway

    def members(self, kernel: int, x: Request) -> list[int]:
        """Untried replicas of a kernel in rotation."""
        return [
            a
            for a, r in enumerate(self.replicas)
            if r.kernel == kernel and r.in_rotation and a not in x.tried
        ]

    def pick_kernel(self, x: Request) -> int:
        """By the row's weights; K means shed, -1 nobody left."""
        row = self.table[x.slice]
        u = (x.uniforms[0] + len(x.tried) * TURN) % 1.0
        if not x.tried:
            edges = np.concatenate([[0.0], np.cumsum(row)])
            drawn = next((k for k in range(len(row)) if row[k] > 0.0 and u < edges[k + 1]), -1)
            if drawn < 0:
                drawn = int(np.nonzero(row > 0.0)[0][-1])
            if drawn == self.spec.kernels or self.members(drawn, x):
                return drawn
            u = min(max((u - edges[drawn]) / row[drawn], 0.0), 1.0)
        able = [k for k in range(self.spec.kernels) if row[k] > 0.0 and self.members(k, x)]
        if not able:
            return -1
        total = np.cumsum([row[k] for k in able])
        return next((k for k, upper in zip(able, total, strict=True) if u * total[-1] < upper), able[-1])

    def candidate(self, x: Request, u: float, kernel: int) -> int:
        """Untried member at or after the one that ``u`` points to, in the ring of all members."""
        ring = [a for a, r in enumerate(self.replicas) if r.kernel == kernel and r.in_rotation]
        at = int((u % 1.0) * len(ring))
        while ring[at % len(ring)] in x.tried:
            at += 1
        return ring[at % len(ring)]

    def pick_replica(self, x: Request, kernel: int) -> int:
        """The session's replica, or the less loaded of two random ones."""
        if x.session >= 0 and self.spec.sticky:
            tag, a = self.sessions.get((self.slot(x), kernel), (-1, -1, 0, 0))[:2]
            if tag == self.tag(x) and self.replicas[a].in_rotation and a not in x.tried:
                return a
        a = self.candidate(x, x.uniforms[1] + len(x.tried) * TURN, kernel)
        b = self.candidate(x, x.uniforms[2] + len(x.tried) * TURN, kernel)
        return b if self.replicas[a].outstanding > self.replicas[b].outstanding else a

    def slot(self, x: Request) -> int:
        """Where this session is remembered."""
        return x.session % self.spec.session_slots

    def tag(self, x: Request) -> int:
        """Tells sessions of one slot apart."""
        return x.session // self.spec.session_slots

    def route(self, x: Request, now: float) -> None:
        """Try replicas until one accepts."""
        status = RequestStatus.NO_REPLICA
        while len(x.tried) < self.spec.max_attempts:
            kernel = self.pick_kernel(x)
            if kernel == self.spec.kernels:
                x.status, x.finished = RequestStatus.SHED, now
                return
            if kernel < 0:
                break
            a = self.pick_replica(x, kernel)
            r = self.replicas[a]
            self.dispatched[a, x.slice] += 1
            status = self.offer(r, x, now)
            x.tried.append(a)
            x.replica, x.kernel, x.routed = a, kernel, now
            if status is RequestStatus.IN_FLIGHT:
                self.accept(r, a, x)
                return
            if status is RequestStatus.REJECTED:
                self.attempts_rejected[a, x.slice] += 1
            else:
                self.count_failed_attempt(r, x)
        self.fail(x, status, now)

    def offer(self, r: Replica, x: Request, now: float) -> RequestStatus:
        """Accept, or why not."""
        if now < r.alive_at:
            return RequestStatus.RESET
        if (x.uniforms[3] + len(x.tried) * TURN_ERROR) % 1.0 < r.effect.http_error_ratio:
            return RequestStatus.HTTP_ERROR
        if len(r.queue) >= self.spec.queue_limit:
            return RequestStatus.REJECTED
        return RequestStatus.IN_FLIGHT

    def accept(self, r: Replica, a: int, x: Request) -> None:
        """Queue it; an idle replica starts at once, a stalled one minds the new deadline."""
        x.lag = r.effect.http_latency_s
        x.deadline = max(x.arrived + float(self.spec.timeout_s[x.slice]) - x.lag, self.now)
        x.exposed = bool(self.violating[a, x.slice] and self.spec.hard_slices[x.slice])
        if x.session >= 0:
            self.remember_session(r, a, x)
        r.queue.append(x)
        if not r.stepping:
            self.plan(r)

    def remember_session(self, r: Replica, a: int, x: Request) -> None:
        """Where its prefix lives, and how it was computed."""
        place = (self.slot(x), r.kernel)
        tag, replica, epoch, condition = self.sessions.get(place, (-1, -1, -1, 0))
        known = (tag, replica, epoch) == (self.tag(x), a, r.cache_epoch)
        x.poison = condition if known else 0
        condition = r.effect.condition if r.effect.condition != 0 or not known else condition
        self.sessions[place] = (self.tag(x), a, r.cache_epoch, condition)
