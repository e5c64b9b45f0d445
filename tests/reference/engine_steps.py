"""The oracle's replicas at work: planning a step, and its results."""

from __future__ import annotations

import math

from simulator.engine.requests import RequestStatus
from tests.reference.engine_requests import Accounts, ReferenceRequest, Replica


class Steps(Accounts):
    """One engine step of one replica: blocks, preemption, chunks, admission, tokens, cancellations."""

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
            r.exported.preemptions += 1
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
        r.step_effect = r.effect
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
            x.found_batch = len(r.run)
            if math.isnan(x.started):
                x.started = self.now
                r.exported.admission(x, self.now)
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
            r.exported.iterations += 1
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

    def make_token(self, r: Replica, x: ReferenceRequest) -> None:
        """One more output token, with the quality of the condition under which its step began."""
        x.generated += 1
        r.exported.token(x, self.now)
        if math.isnan(x.first):
            x.first = self.now
        effect = r.step_effect
        struck = effect.only_slice in (-1, x.slice) and x.found_batch >= effect.min_batch
        struck = struck and x.generated > effect.after_tokens and effect.condition != 0
        condition = effect.condition if struck else x.prefix_condition
        x.excess_tv += float(self.spec.quality[r.kernel, condition, x.prompt])
