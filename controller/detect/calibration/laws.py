"""Where simulated streams come from: laws of healthy and changed observations, alone or with memory.

``source(rng, streams)`` returns a function that gives the next ``count`` observations of every stream,
float64 [count, streams]; a law with memory carries on where the last call ended.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from controller.detect.streams.protocol import Floats

Source = Callable[[int], Floats]


class ObservationLaw(Protocol):
    """A stationary law of observations."""

    @property
    def name(self) -> str:
        """Name with every number that matters: calibrations are stored under it."""

    def source(self, rng: np.random.Generator, streams: int) -> Source:
        """The next observations of ``streams`` independent streams."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Normal:
    """Independent normal observations."""

    mean: float = 0.0
    deviation: float = 1.0

    @property
    def name(self) -> str:
        """Mean and deviation."""
        return f"normal({self.mean:g},{self.deviation:g})"

    def source(self, rng: np.random.Generator, streams: int) -> Source:
        """See the protocol."""
        return lambda count: rng.normal(self.mean, self.deviation, (count, streams))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ones:
    """0/1 observations with rate ``rate``; ``persistence``: P(copy of the one before), 0: independent."""

    rate: float
    persistence: float = 0.0

    @property
    def name(self) -> str:
        """Rate and persistence."""
        return f"ones({self.rate:g},{self.persistence:g})"

    def source(self, rng: np.random.Generator, streams: int) -> Source:
        """See the protocol."""
        last = (rng.random(streams) < self.rate).astype(np.float64)

        def more(count: int) -> Floats:
            drawn = (rng.random((count, streams)) < self.rate).astype(np.float64)
            if self.persistence > 0.0:
                kept = rng.random((count, streams)) < self.persistence
                for row in range(count):
                    drawn[row] = np.where(kept[row], drawn[row - 1] if row else last, drawn[row])
                last[:] = drawn[-1]
            return drawn

        return more


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Empirical:
    """Independent draws from ``values`` float64 [n], with ``weights`` [n] where given."""

    values: Floats  # [n]
    weights: Floats | None = None  # [n]; None: all alike

    @property
    def name(self) -> str:
        """Digest of the values."""
        return f"empirical({_digest(self.values, self.weights)})"

    def source(self, rng: np.random.Generator, streams: int) -> Source:
        """See the protocol."""
        if self.weights is None:
            return lambda count: self.values[rng.integers(self.values.size, size=(count, streams))]
        cumulated = np.cumsum(self.weights / self.weights.sum())
        cumulated[-1] = 1.0
        return lambda count: self.values[
            np.searchsorted(cumulated, rng.random((count, streams)), side="right")
        ]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Blocks:
    """Circular block bootstrap of a recorded healthy ``series`` [n]: blocks of ``length`` observations.

    Keeps the dependence within a block. Choose ``length`` several times the correlation time and the delay
    of the detector; ``series`` should hold many blocks.
    """

    series: Floats  # [n], in order
    length: int

    def __post_init__(self) -> None:
        if not 1 <= self.length <= self.series.size:
            raise ValueError(f"expected blocks of 1 to {self.series.size} observations, got {self.length}")

    @property
    def name(self) -> str:
        """Digest of the series, and the length."""
        return f"blocks({_digest(self.series, None)},{self.length})"

    def source(self, rng: np.random.Generator, streams: int) -> Source:
        """See the protocol; every stream begins at a random place of its first block."""
        size = self.series.size
        place = rng.integers(size, size=streams)
        left = rng.integers(1, self.length + 1, size=streams)

        def more(count: int) -> Floats:
            drawn = np.empty((count, streams))
            for row in range(count):
                over = left == 0
                place[over] = rng.integers(size, size=int(over.sum()))
                left[over] = self.length
                drawn[row] = self.series[place]
                place[:] = (place + 1) % size
                left[:] -= 1
            return drawn

        return more


def _digest(values: Floats, weights: Floats | None) -> str:
    content = values.tobytes() + (b"" if weights is None else weights.tobytes())
    return hashlib.sha256(content).hexdigest()[:16]
