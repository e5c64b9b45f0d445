"""Arrival times and lengths of requests: pure sampling, used by every world.

All arrival processes work the same way: gaps of mean 1 are drawn in *operational time* (the expected number
of requests so far) and mapped to the clock through the rate profile. A surge therefore moves arrivals in
time, but changes neither their number per unit of expectation nor any other random draw.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contracts.workload.azure_trace import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class RateProfile:
    """A piecewise constant arrival rate of n pieces."""

    starts_at_s: NDArray[np.float64]  # [n] rising, the first 0
    rate_rps: NDArray[np.float64]  # [n] > 0, each in force until the next start, the last one for ever

    def __post_init__(self) -> None:
        if self.starts_at_s.shape != self.rate_rps.shape or self.starts_at_s[0] != 0.0:
            raise ValueError("rate profile: expected one start per rate, the first at 0 s")
        if not (np.diff(self.starts_at_s) > 0.0).all() or not (self.rate_rps > 0.0).all():
            raise ValueError("rate profile: expected rising starts and rates > 0")

    def at(self, at_s: float) -> float:
        """Rate in force at ``at_s``, requests per second."""
        return float(self.rate_rps[np.searchsorted(self.starts_at_s, at_s, side="right") - 1])

    def expected(self, at_s: float) -> float:
        """Expected number of requests in ``[0, at_s]``."""
        piece = int(np.searchsorted(self.starts_at_s, at_s, side="right")) - 1
        return float(self._counts()[piece] + (at_s - self.starts_at_s[piece]) * self.rate_rps[piece])

    def clock_s(self, expected: NDArray[np.float64]) -> NDArray[np.float64]:
        """Inverse of ``expected``: times in s at which these request counts are expected."""
        if self.starts_at_s.shape[0] == 1:
            return np.asarray(expected / self.rate_rps[0], np.float64)
        counts = self._counts()
        piece = np.searchsorted(counts, expected, side="right") - 1
        late = (expected - counts[piece]) / self.rate_rps[piece]
        return np.asarray(self.starts_at_s[piece] + late, np.float64)

    def scaled(self, start_at_s: float, end_at_s: float, factor: float) -> RateProfile:
        """The profile with rates multiplied by ``factor`` in ``[start_at_s, end_at_s)``."""
        inner = [at_s for at_s in (start_at_s, end_at_s) if 0.0 < at_s < math.inf]
        starts = np.unique(np.concatenate([self.starts_at_s, inner]))
        rates = self.rate_rps[np.searchsorted(self.starts_at_s, starts, side="right") - 1].copy()
        rates[(starts >= start_at_s) & (starts < end_at_s)] *= factor
        return RateProfile(starts_at_s=starts, rate_rps=rates)

    def _counts(self) -> NDArray[np.float64]:
        passed = np.diff(self.starts_at_s) * self.rate_rps[:-1]
        return np.concatenate([[0.0], np.cumsum(passed)])


def constant_rate(rate_rps: float) -> RateProfile:
    """A profile with one rate for all times."""
    return RateProfile(starts_at_s=np.zeros(1), rate_rps=np.array([rate_rps]))


def diurnal_rate(
    rate_rps: float,
    *,
    amplitude_ratio: float,
    period_s: float,
    phase_s: float = 0.0,
    horizon_s: float,
    pieces_per_period: int = 96,
) -> RateProfile:
    """``rate_rps (1 + amplitude_ratio sin(2 pi (t - phase_s) / period_s))`` in pieces, each its mean rate.

    Rates are at least a thousandth of the mean, so that the profile can be inverted at amplitude 1.
    """
    step_s = period_s / pieces_per_period
    starts = step_s * np.arange(max(math.ceil(horizon_s / step_s), 1), dtype=np.float64)
    middle = 2.0 * np.pi * (starts + 0.5 * step_s - phase_s) / period_s
    wave = np.sin(middle) * np.sinc(1.0 / pieces_per_period)
    return RateProfile(starts_at_s=starts, rate_rps=rate_rps * np.maximum(1.0 + amplitude_ratio * wave, 1e-3))


class GapProcess:
    """A renewal process in operational time: gamma gaps of mean 1, exponential when ``gap_cv`` is 1."""

    def __init__(self, rng: np.random.Generator, *, gap_cv: float = 1.0) -> None:
        if not 0.0 < gap_cv < math.inf:
            raise ValueError(f"gap_cv: expected a number > 0, got {gap_cv}")
        self._rng = rng
        self._shape = 1.0 / gap_cv**2
        self._last = 0.0

    def take(self, n: int) -> NDArray[np.float64]:
        """The next ``n`` arrivals as expected counts, float64 [n]."""
        if self._shape == 1.0:
            gaps = self._rng.standard_exponential(n)
        else:
            gaps = self._rng.standard_gamma(self._shape, n)
            gaps /= self._shape
        gaps[0] += self._last
        times = np.cumsum(gaps, out=gaps)
        self._last = float(times[-1])
        return times


class TraceProcess:
    """A recorded trace in operational time, repeated without end."""

    def __init__(self, trace: Trace) -> None:
        self._counts = trace.arrived_at_s * trace.mean_rate_rps
        self._period = float(len(trace))
        self._next = 0

    def take(self, n: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """The next ``n`` arrivals as expected counts, float64 [n], and their rows in the trace, int64 [n]."""
        index = np.arange(self._next, self._next + n)
        self._next += n
        row = index % int(self._period)
        return self._counts[row] + self._period * (index // int(self._period)), row


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthLaw:
    """Distribution of token counts: log-normal, rounded down and clipped."""

    mean: float  # tokens
    sigma: float = 0.0  # standard deviation of the logarithm; 0: always ``mean``
    low: int = 1  # fewest tokens
    high: int = 32768  # most tokens

    def __post_init__(self) -> None:
        if not (self.mean > 0.0 and self.sigma >= 0.0 and 1 <= self.low <= self.high):
            raise ValueError(f"length law: expected mean > 0, sigma >= 0, 1 <= low <= high, got {self}")

    @property
    def log_median(self) -> float:
        """Logarithm of the median at which the mean is ``mean``."""
        return math.log(self.mean) - 0.5 * self.sigma**2

    def sample(self, rng: np.random.Generator, n: int) -> NDArray[np.int64]:
        """``n`` token counts, int64 [n]; the number of random draws does not depend on ``sigma``."""
        return self.from_normal(rng.standard_normal(n))

    def from_normal(self, normal: NDArray[np.float64]) -> NDArray[np.int64]:
        """Token counts from standard normal numbers; overwrites ``normal``."""
        if self.sigma == 0.0:
            value = min(max(int(self.mean), self.low), self.high)
            return np.full(normal.shape, value, np.int64)
        normal *= self.sigma
        normal += self.log_median
        np.exp(normal, out=normal)
        np.clip(normal, self.low, self.high, out=normal)
        return normal.astype(np.int64)
