"""The oracle's gateway: which kernel and replica a request is offered to, and whether it is accepted."""

from __future__ import annotations

import numpy as np

from simulator.engine.requests import RequestStatus
from tests.reference.engine_requests import ReferenceRequest, Replica
from tests.reference.engine_steps import Steps

TURN = 0.6180339887498949
MASK = 2**64 - 1


def error_uniform(first: float, attempts: int) -> float:
    """The request's own number at its first attempt, later ones by splitmix64 in whole numbers."""
    seed = int(first * 2**32)
    if attempts == 0:
        return seed / 2**32
    x = seed * 0x9E3779B97F4A7C15 & MASK
    x = x * 0xD1342543DE82EF95 & MASK
    x ^= (attempts * 0x2545F4914F6CDD1D & MASK) ^ (x >> 32)
    x = x + 0x9E3779B97F4A7C15 & MASK
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ (x >> 30)) * 0x94D049BB133111EB & MASK
    return ((x ^ (x >> 31)) >> 11) / 2**53 + 2.0**-54


class Gateway(Steps):
    """Weights, rings of members, sessions and retries."""

    def members(self, kernel: int, x: ReferenceRequest) -> list[int]:
        """Untried replicas of a kernel in rotation."""
        return [
            a
            for a, r in enumerate(self.replicas)
            if r.kernel == kernel and r.in_rotation and a not in x.tried
        ]

    def pick_kernel(self, x: ReferenceRequest) -> int:
        """By the row's weights; K means shed, -1 no kernel left."""
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

    def candidate(self, x: ReferenceRequest, u: float, kernel: int) -> int:
        """Untried member at or after the member that ``u`` points to, in the ring of all members."""
        ring = [a for a, r in enumerate(self.replicas) if r.kernel == kernel and r.in_rotation]
        at = int((u % 1.0) * len(ring))
        while ring[at % len(ring)] in x.tried:
            at += 1
        return ring[at % len(ring)]

    def pick_replica(self, x: ReferenceRequest, kernel: int) -> int:
        """The session's replica, or the less loaded of two random ones."""
        if x.session >= 0 and self.spec.sticky:
            tag, a = self.sessions.get((self.slot(x), kernel), (-1, -1, 0, 0))[:2]
            if tag == self.tag(x) and self.replicas[a].in_rotation and a not in x.tried:
                return a
        a = self.candidate(x, x.uniforms[1] + len(x.tried) * TURN, kernel)
        b = self.candidate(x, x.uniforms[2] + len(x.tried) * TURN, kernel)
        return b if self.replicas[a].outstanding > self.replicas[b].outstanding else a

    def slot(self, x: ReferenceRequest) -> int:
        """Slot of this session."""
        return x.session % self.spec.session_slots

    def tag(self, x: ReferenceRequest) -> int:
        """Distinguishes sessions of one slot."""
        return x.session // self.spec.session_slots

    def route(self, x: ReferenceRequest, now: float) -> None:
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

    def offer(self, r: Replica, x: ReferenceRequest, now: float) -> RequestStatus:
        """Accept, or return the reason."""
        if now < r.alive_at:
            return RequestStatus.RESET
        if error_uniform(float(x.uniforms[3]), len(x.tried)) < r.effect.http_error_ratio:
            return RequestStatus.HTTP_ERROR
        if len(r.queue) >= self.spec.queue_limit:
            return RequestStatus.REJECTED
        return RequestStatus.IN_FLIGHT

    def accept(self, r: Replica, a: int, x: ReferenceRequest) -> None:
        """Queue it; an idle replica starts at once, a stalled one takes the new deadline into account."""
        x.lag = r.effect.http_latency_s
        x.deadline = max(x.arrived + float(self.spec.timeout_s[x.slice]) - x.lag, self.now)
        x.exposed = bool(self.violating[a, x.slice] and self.spec.hard_slices[x.slice])
        if x.session >= 0:
            self.remember_session(r, a, x)
        r.queue.append(x)
        if not r.stepping:
            self.plan(r)

    def remember_session(self, r: Replica, a: int, x: ReferenceRequest) -> None:
        """The replica of its prefix, and how it was computed."""
        place = (self.slot(x), r.kernel)
        tag, replica, epoch, condition = self.sessions.get(place, (-1, -1, -1, 0))
        known = (tag, replica, epoch) == (self.tag(x), a, r.cache_epoch)
        x.prefix_condition = condition if known else 0
        effect = r.effect
        spares = effect.after_tokens > 0 or effect.min_batch > 1 or effect.only_slice not in (-1, x.slice)
        left = 0 if spares else effect.condition
        condition = left if left != 0 or not known else condition
        self.sessions[place] = (self.tag(x), a, r.cache_epoch, condition)
