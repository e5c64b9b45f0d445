"""The oracle: the fleet engine's semantics again, in plain Python, one event per engine step.

Nothing is skipped, shared or lazy: every step of every replica is
an event, blocks are counted by looking at every sequence, excess TV is added token by token. Names follow
``simulator.engine``; only the arithmetic of uniforms is the same on
purpose, because the two must route alike.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from simulator.engine.requests import RequestArrivals, RequestStatus
from simulator.engine.spec import EngineEffect
from tests.reference.engine_gateway import Gateway
from tests.reference.engine_requests import Exported, ReferenceRequest


class Oracle(Gateway):
    """One fleet; the same calls as ``FleetEngine`` without the fleet argument."""

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

    def settle(self) -> None:
        """Process everything due at this instant."""
        for r in self.replicas:
            while r.end <= self.now:
                self.finish_step(r)

    def feed(self, arrivals: RequestArrivals) -> None:
        """Append arrivals."""
        for j in range(len(arrivals)):
            x = ReferenceRequest(
                id=len(self.requests) + len(self.ahead),
                arrived=float(arrivals.arrived_at_s[j]),
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

    def set_effect(self, replica: int, effect: EngineEffect) -> None:
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
        """Kill one replica; retry requests that had not streamed."""
        r = self.replicas[replica]
        r.alive_at = math.inf
        r.cache_epoch += 1
        r.exported = Exported()
        self.reset_streams(replica)

    def reset_streams(self, replica: int) -> None:
        """End one replica's requests; retry those that had not streamed."""
        r = self.replicas[replica]
        lost = r.run + r.queue
        r.run, r.queue, r.chunks = [], [], {}
        r.stepping, r.end = False, math.inf
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

    def may_retry(self, x: ReferenceRequest) -> bool:
        """No token streamed, attempts and time left."""
        in_time = self.now < x.arrived + self.spec.timeout_s[x.slice]
        return math.isnan(x.first) and len(x.tried) < self.spec.max_attempts and bool(in_time)
