"""Healthy laws recorded at public endpoints: exact vectors that repeat, stay, drift or renew each day.

None of them has a fault. Each gives the answers to one probe prompt, a vector of
log-probabilities, for many streams in their order of time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: Components of an answer.
TOKENS = 6
#: Effect of one host's rounding, in nats, standard deviation of a component.
HOST_NATS = 0.02


def _middle(rng: np.random.Generator) -> Floats:
    return -rng.exponential(1.0, TOKENS) - 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosts:
    """``count`` hosts with an exact answer each; the same host answers again with probability ``stay``."""

    count: int
    stay: float
    #: Share of the first host (None: all alike).
    first: float | None = None

    def draw(self, rng: np.random.Generator, streams: int, length: int) -> Floats:
        """Answers [length, streams, TOKENS]."""
        answers = _middle(rng) + HOST_NATS * rng.normal(size=(self.count, TOKENS))
        shares = np.full(self.count, 1.0 / self.count)
        if self.first is not None:
            shares = np.r_[self.first, np.full(self.count - 1, (1.0 - self.first) / (self.count - 1))]
        host, out = rng.choice(self.count, streams, p=shares), np.empty((length, streams), dtype=np.int64)
        for row in range(length):
            moves = rng.random(streams) >= self.stay
            host = np.where(moves, rng.choice(self.count, streams, p=shares), host)
            out[row] = host
        return answers[out]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drifting:
    """A slow drift with the load, per observation at most ``nats``, and independent rounding."""

    nats: float
    period: int

    def draw(self, rng: np.random.Generator, streams: int, length: int) -> Floats:
        """Answers [length, streams, TOKENS]."""
        phase = rng.random(streams) * 2.0 * np.pi
        time = np.arange(length)[:, None] * (2.0 * np.pi / self.period)
        way = self.nats * self.period / (2.0 * np.pi) * np.sin(time + phase)
        noise = 0.5 * HOST_NATS * rng.normal(size=(length, streams, TOKENS))
        return _middle(rng) + way[..., None] + noise


@dataclass(frozen=True, slots=True, kw_only=True)
class Daily:
    """A new exact answer every ``day`` observations, because the template holds the date."""

    day: int

    def draw(self, rng: np.random.Generator, streams: int, length: int) -> Floats:
        """Answers [length, streams, TOKENS]."""
        days = length // self.day + 2
        answers = HOST_NATS * rng.normal(size=(days, streams, TOKENS))
        begin = rng.integers(self.day, size=streams)
        which = (np.arange(length)[:, None] + begin) // self.day
        return np.asarray(_middle(rng) + answers[which, np.arange(streams)])


#: Every null by name.
NULLS: dict[str, Hosts | Drifting | Daily] = {
    "one host": Hosts(count=1, stay=1.0),
    "near-constant": Hosts(count=3, stay=0.0, first=0.95),
    "three hosts at random": Hosts(count=3, stay=0.0),
    "two hosts for hours": Hosts(count=2, stay=0.95),
    "two hosts for days": Hosts(count=2, stay=0.998),
    "drift": Drifting(nats=0.0002, period=600),
    "slow drift": Drifting(nats=0.00004, period=3000),
    "date in the template": Daily(day=24),
}
