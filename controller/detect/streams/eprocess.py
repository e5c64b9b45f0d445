"""e-detectors: sums over starts of products of e-values (Shin, Ramdas, Rinaldo 2022, e-detectors).

For a null under which ``E[e_t | past] <= 1``, evidence ``R_t = (R_{t-1} + 1) e_t`` has ``R_t - t`` as a
supermartingale, so a stop at ``R >= A`` has mean run length at least ``A``: the guaranteed threshold of
the logarithm is ``log A``, whatever the law. The best start (CUSUM) is never above the sum over starts and
keeps the same guarantee. Several bets are mixed with weights that sum to 1, which keeps it too.

* ``Betting``: values >= 0 with mean <= m; ``e = 1 + bet (x / m - 1)``, 0 <= bet < 1. No upper bound is
  needed; clipping from above only lowers the mean, so a clipped mean clause fits as it is. On 0/1 values
  with rate <= rho this is the likelihood ratio of rate ``rho + bet (1 - rho)`` to rho.
* ``Gaussian``: standard normal z (or sub-Gaussian with variance 1 and mean <= 0);
  ``e = exp(a z - a^2 / 2)``, a > 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from controller.detect.streams.passes import bet, tilt
from controller.detect.streams.protocol import LOWEST, Flags, Floats, StreamState


class Start(IntEnum):
    """Which starts of the evidence count: all (the recommended one), the best, or only the first."""

    SUM = 0  # Shiryaev-Roberts
    BEST = 1  # CUSUM
    FIRST = 2  # one e-process: a test, not a detector


#: Shifts in standard deviations and their weights: one setting for shifts from 0.5 to 2 and beyond.
SHIFTS: tuple[float, ...] = (0.5, 1.0, 2.0)
SHIFT_WEIGHTS: tuple[float, ...] = (0.22, 0.33, 0.45)
#: Rates after the change that a rate detector bets on, as multiples of the null's odds.
ODDS_FACTORS: tuple[float, ...] = (4.0, 8.0, 25.0)
ODDS_WEIGHTS: tuple[float, ...] = (0.3, 0.45, 0.25)
#: Bets on a mean: small ones for rare large values, large ones for values that hardly vary.
MEAN_BETS: tuple[float, ...] = (0.12, 0.4, 0.85)
MEAN_WEIGHTS: tuple[float, ...] = (0.3, 0.35, 0.35)


def _check(points: tuple[float, ...], weights: tuple[float, ...], most: float) -> None:
    if not points or len(points) != len(weights):
        raise ValueError(f"expected one weight per bet, got {len(weights)} for {len(points)}")
    if not all(0.0 < abs(point) < most for point in points):
        raise ValueError(f"expected bets other than 0 within {most}, got {points}")
    if min(weights) <= 0.0 or not math.isclose(sum(weights), 1.0, rel_tol=1e-9):
        raise ValueError(f"expected positive weights that sum to 1, got {weights}")


def _blank(streams: int, bets: int, start: Start) -> StreamState:
    first = 1.0 if start is Start.FIRST else 0.0
    level = 0.0 if start is Start.FIRST else LOWEST
    return StreamState(memory=np.full((streams, bets), first), statistic=np.full(streams, level))


@dataclass(frozen=True, slots=True, kw_only=True)
class Betting:
    """Null: values >= 0 with ``E[x | past] <= null_mean``; values below 0 read as 0, above ``clip`` as it."""

    null_mean: float
    bets: tuple[float, ...] = MEAN_BETS
    weights: tuple[float, ...] = MEAN_WEIGHTS
    clip: float = math.inf
    start: Start = Start.SUM

    def __post_init__(self) -> None:
        if not (0.0 < self.null_mean < math.inf and self.clip > self.null_mean):
            raise ValueError(f"expected 0 < null mean < clip, got {self.null_mean} and {self.clip}")
        _check(self.bets, self.weights, 1.0)
        if min(self.bets) < 0.0:
            raise ValueError(f"expected bets above 0, got {self.bets}")

    @property
    def name(self) -> str:
        """Family, null and bets."""
        shape = f"m={self.null_mean:g},clip={self.clip:g},bets={self.bets},weights={self.weights}"
        return f"betting-{self.start.name.lower()}({shape})"

    def initial(self, streams: int) -> StreamState:
        """No evidence."""
        return _blank(streams, len(self.bets), self.start)

    def advance(self, state: StreamState, value: Floats, present: Flags) -> None:
        """See the protocol."""
        ratio = np.minimum(value, self.clip) / self.null_mean
        bet(
            state.memory,
            state.statistic,
            ratio,
            present,
            np.array(self.bets),
            np.array(self.weights),
            int(self.start),
        )

    def e_values(self, value: Floats) -> Floats:
        """One e-value per value [n] and bet [G], float64 [n, G]."""
        ratio = np.clip(value, 0.0, self.clip) / self.null_mean
        return np.asarray(1.0 + np.array(self.bets) * (ratio[:, None] - 1.0))


def exceedances(rate: float, start: Start = Start.SUM) -> Betting:
    """StreamDetector of 0/1 values against ``P(x = 1 | past) <= rate``, 0 < rate < 1."""
    if not 0.0 < rate < 1.0:
        raise ValueError(f"expected a rate between 0 and 1, got {rate}")
    after = [factor * rate / (1.0 - rate + factor * rate) for factor in ODDS_FACTORS]
    bets = tuple((alternative - rate) / (1.0 - rate) for alternative in after)
    return Betting(null_mean=rate, bets=bets, weights=ODDS_WEIGHTS, start=start)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gaussian:
    """Null: ``(x - mean) / deviation`` is standard normal, or sub-Gaussian with mean <= 0.

    With ``two_sided`` the mixture also holds the mirrored shifts, at half the weight each.
    """

    mean: float = 0.0
    deviation: float = 1.0
    shifts: tuple[float, ...] = SHIFTS
    weights: tuple[float, ...] = SHIFT_WEIGHTS
    two_sided: bool = False
    start: Start = Start.SUM

    def __post_init__(self) -> None:
        if not (self.deviation > 0.0 and math.isfinite(self.mean)):
            raise ValueError(f"expected a finite mean, deviation > 0, got {self.mean}, {self.deviation}")
        _check(self.shifts, self.weights, 40.0)

    @property
    def name(self) -> str:
        """Family, null and shifts."""
        sides = 2 if self.two_sided else 1
        shape = f"{self.mean:g},{self.deviation:g},shifts={self.shifts},weights={self.weights},sides={sides}"
        return f"gaussian-{self.start.name.lower()}({shape})"

    @property
    def grid(self) -> tuple[Floats, Floats]:
        """Shifts and weights, both float64 [G], with the mirrored ones where two-sided."""
        shifts, weights = np.array(self.shifts), np.array(self.weights)
        if not self.two_sided:
            return shifts, weights
        return np.concatenate([shifts, -shifts]), np.concatenate([weights, weights]) / 2.0

    def initial(self, streams: int) -> StreamState:
        """No evidence."""
        return _blank(streams, self.grid[0].size, self.start)

    def advance(self, state: StreamState, value: Floats, present: Flags) -> None:
        """See the protocol."""
        score = (value - self.mean) / self.deviation
        tilt(state.memory, state.statistic, score, present, *self.grid, int(self.start))
