"""A server with known step times, which scatters, drifts and shares its machine."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from contracts.documents.step_time import StepPoint
from contracts.rng import stream
from live.measure.backend import StepPlan
from live.measure.steps.timed_requests import PassingTime, time_requests

#: base, prefill token, decoding sequence, context token, request, sequence: ms.
TRUTH = (4.0, 0.05, 0.6, 0.001, 5.0, 0.8)
NAMES = ("base_ms", "per_prefill_token_ms", "per_decode_sequence_ms", "per_context_token_ms")


@dataclass(frozen=True, kw_only=True)
class Restless:
    """noise: standard deviation of a request's log time. drift, drift_s: of the server's level, and the time
    constant of its drift. Other processes run for ``busy_share`` of the time, on average ``busy_s`` each,
    and slow everything up to threefold.
    """

    noise: float = 0.05
    drift: float = 0.03
    drift_s: float = 20.0
    busy_share: float = 0.0
    busy_s: float = 3.0


class MadeServer:
    """Takes the time of ``TRUTH`` with noise; it has its own clock."""

    def __init__(self, seed: int, ways: Restless, truth: tuple[float, ...] = TRUTH) -> None:
        self._rng = stream(seed, "made-server")
        self._ways, self._truth = ways, np.array(truth)
        self._level = ways.drift * float(self._rng.normal())
        self._slow = 1.0
        self._changes_s = self._free_s()
        self.now_s = 0.0
        self.requests = 0
        self.tokens = 0
        self.most_at_once = 0
        self.pace = PassingTime(now=lambda: self.now_s, sleep=self._pass)

    def send(self, prompts: list[list[int]], tokens: int) -> None:
        """One request."""
        self.requests += 1
        self.most_at_once = max(self.most_at_once, len(prompts))
        self.tokens += sum(len(prompt) + tokens for prompt in prompts)
        decoded = (tokens - 1) * len(prompts)
        attended = sum(len(prompt) + step for prompt in prompts for step in range(1, tokens))
        work = (tokens, sum(map(len, prompts)), decoded, attended, 1, len(prompts))
        scattered = self._level + self._ways.noise * float(self._rng.normal())
        self._pass(float(self._truth @ work) / 1000.0 * self._slow * math.exp(scattered))

    def time_steps(self, plan: StepPlan) -> list[StepPoint]:
        """Its points by ``plan``."""
        return time_requests(self.send, plan, 0, lambda: self.now_s, self.pace, self.requests)

    def _pass(self, seconds: float) -> None:
        self.now_s += seconds
        kept = math.exp(-seconds / self._ways.drift_s)
        news = math.sqrt(1.0 - kept * kept) * self._ways.drift * float(self._rng.normal())
        self._level = kept * self._level + news
        while self.now_s >= self._changes_s:
            busy = self._slow == 1.0
            self._slow = float(self._rng.uniform(1.3, 3.0)) if busy else 1.0
            self._changes_s += self._rng.exponential(self._ways.busy_s) if busy else self._free_s()

    def _free_s(self) -> float:
        """Time without another running process."""
        share = self._ways.busy_share
        return float(self._rng.exponential(self._ways.busy_s * (1.0 - share) / share)) if share else math.inf
