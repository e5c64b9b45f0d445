"""Where simulated streams come from: laws of healthy and changed units, alone or with memory.

``source(rng, streams)`` returns a function that gives the next ``count`` units of every stream, float64
[count, streams]; a law with memory carries on where the last call ended.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from contracts.detect.protocol import Floats

Source = Callable[[int], Floats]


class Law(Protocol):
    """A stationary law of units."""

    @property
    def name(self) -> str:
        """Name with every number that matters: calibrations are stored under it."""

    def source(self, rng: np.random.Generator, streams: int) -> Source:
        """The next units of ``streams`` independent streams."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Normal:
    """Independent normal units."""

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
    """0/1 units with rate ``rate``; ``persistence`` 0: independent, else P(copy of the unit before)."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Autoregressive:
    """Stationary normal units, mean 0 and variance 1, correlation ``correlation`` from one to the next."""

    correlation: float
    mean: float = 0.0

    @property
    def name(self) -> str:
        """Correlation and mean."""
        return f"autoregressive({self.correlation:g},{self.mean:g})"

    def source(self, rng: np.random.Generator, streams: int) -> Source:
        """See the protocol."""
        last = rng.normal(size=streams)
        spread = float(np.sqrt(1.0 - self.correlation**2))

        def more(count: int) -> Floats:
            units = spread * rng.normal(size=(count, streams))
            for row in range(count):
                units[row] += self.correlation * (units[row - 1] if row else last)
            last[:] = units[-1]
            return np.asarray(units + self.mean)

        return more


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Empirical:
    """Independent draws from ``values`` float64 [n], with ``weights`` [n] where given."""

    values: Floats
    weights: Floats | None = None

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
    """Circular block bootstrap of a recorded healthy ``series`` float64 [n]: blocks of ``length`` units.

    Keeps the dependence within a block. Choose ``length`` several times the correlation time and the delay
    of the detector; ``series`` should hold many blocks.
    """

    series: Floats
    length: int

    def __post_init__(self) -> None:
        if not 1 <= self.length <= self.series.size:
            raise ValueError(f"expected blocks of 1 to {self.series.size} units, got {self.length}")

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
            units = np.empty((count, streams))
            for row in range(count):
                over = left == 0
                place[over] = rng.integers(size, size=int(over.sum()))
                left[over] = self.length
                units[row] = self.series[place]
                place[:] = (place + 1) % size
                left[:] -= 1
            return units

        return more


def window_means(series: Floats, length: int) -> Floats:
    """Means of consecutive windows of ``length`` units, the rest dropped: one unit per window.

    The other way to deal with dependence: windows longer than the correlation time are nearly independent,
    and the mean of bounded units is bounded as they are.
    """
    windows = series.size // length
    return np.asarray(series[: windows * length].reshape(windows, length).mean(axis=1))


def _digest(values: Floats, weights: Floats | None) -> str:
    content = values.tobytes() + (b"" if weights is None else weights.tobytes())
    return hashlib.sha256(content).hexdigest()[:16]
