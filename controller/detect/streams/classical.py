"""The baselines behind the same protocol: window mean, EWMA, CUSUM with known laws, Page-Hinkley.

None of them has a guaranteed threshold; ``calibrate.calibrated_threshold`` finds one by simulation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from controller.detect.streams.passes import cumulate, page_hinkley, slide, smooth
from controller.detect.streams.protocol import LOWEST, Flags, Floats, StreamState


def _blank(streams: int, row: list[float]) -> StreamState:
    return StreamState(memory=np.tile(np.array(row), (streams, 1)), statistic=np.full(streams, LOWEST))


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowMean:
    """Mean of the last ``length`` observations; ``tumbling``: looked at once per window only."""

    length: int
    tumbling: bool = False

    def __post_init__(self) -> None:
        if self.length < 1:
            raise ValueError(f"expected a window of at least one observation, got {self.length}")

    @property
    def name(self) -> str:
        """Kind and length."""
        return f"{'tumbling' if self.tumbling else 'sliding'}-window({self.length})"

    def initial(self, streams: int) -> StreamState:
        """An empty window."""
        return _blank(streams, [0.0] * (self.length + 2))

    def advance(self, state: StreamState, value: Floats, present: Flags) -> None:
        """See the protocol."""
        slide(state.memory, state.statistic, value, present, self.length, self.tumbling)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ewma:
    """Exponentially weighted mean with weight ``gain`` on the newest observation, begun at ``mean``."""

    gain: float
    mean: float = 0.0

    def __post_init__(self) -> None:
        if not 0.0 < self.gain <= 1.0:
            raise ValueError(f"expected a gain in (0, 1], got {self.gain}")

    @property
    def name(self) -> str:
        """Gain and beginning."""
        return f"ewma({self.gain:g},{self.mean:g})"

    def initial(self, streams: int) -> StreamState:
        """At the healthy mean."""
        return _blank(streams, [self.mean])

    def advance(self, state: StreamState, value: Floats, present: Flags) -> None:
        """See the protocol."""
        smooth(state.memory, state.statistic, value, present, self.gain)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cusum:
    """CUSUM of the log-likelihood ratio ``slope * x + intercept`` (Page 1954; optimal, Moustakides 1986)."""

    slope: float
    intercept: float

    @property
    def name(self) -> str:
        """The ratio's two numbers."""
        return f"cusum({self.slope:g},{self.intercept:g})"

    def initial(self, streams: int) -> StreamState:
        """At zero."""
        return _blank(streams, [0.0])

    def advance(self, state: StreamState, value: Floats, present: Flags) -> None:
        """See the protocol."""
        cumulate(state.memory, state.statistic, value, present, self.slope, self.intercept)


def gaussian_cusum(shift: float, mean: float = 0.0, deviation: float = 1.0) -> Cusum:
    """Known law: the mean moves up by ``shift`` standard deviations."""
    return Cusum(slope=shift / deviation, intercept=-shift * mean / deviation - shift * shift / 2.0)


def rate_cusum(before: float, after: float) -> Cusum:
    """Known law: the rate of ones moves from ``before`` to ``after``."""
    one, zero = math.log(after / before), math.log((1.0 - after) / (1.0 - before))
    return Cusum(slope=one - zero, intercept=zero)


@dataclass(frozen=True, slots=True, kw_only=True)
class BinnedCusum:
    """CUSUM on a declared binning: the yardstick for measured laws, known up to smoothing.

    edges: ascending, B - 1 of them. log_ratio: B values, log of (share after / share before) per bin.
    """

    edges: tuple[float, ...]
    log_ratio: tuple[float, ...]

    @property
    def name(self) -> str:
        """The binning and the ratios."""
        return f"binned-cusum({self.edges},{self.log_ratio})"

    def initial(self, streams: int) -> StreamState:
        """At zero."""
        return _blank(streams, [0.0])

    def advance(self, state: StreamState, value: Floats, present: Flags) -> None:
        """See the protocol."""
        ratio = np.array(self.log_ratio)[np.searchsorted(np.array(self.edges), value, side="right")]
        cumulate(state.memory, state.statistic, ratio, present, 1.0, 0.0)


def binned_cusum(before: Floats, after: Floats, bins: int = 12, smoothing: float = 0.5) -> BinnedCusum:
    """CUSUM of the laws that ``binned_shares`` finds."""
    edges, was, is_now = binned_shares(before, after, bins, smoothing)
    return BinnedCusum(edges=tuple(edges.tolist()), log_ratio=tuple(np.log(is_now / was).tolist()))


def binned_shares(
    before: Floats, after: Floats, bins: int = 12, smoothing: float = 0.5
) -> tuple[Floats, Floats, Floats]:
    """``(edges, shares before, shares after)``: bins at quantiles of both samples together.

    ``smoothing`` observations are added to every bin, so that no share is 0.
    """
    both = np.concatenate([before, after])
    edges = np.unique(np.quantile(both, np.linspace(0.0, 1.0, bins + 1)[1:-1]))
    return edges, _smoothed(before, edges, smoothing), _smoothed(after, edges, smoothing)


def _smoothed(values: Floats, edges: Floats, smoothing: float) -> Floats:
    counts = np.bincount(np.searchsorted(edges, values, side="right"), minlength=edges.size + 1) + smoothing
    return np.asarray(counts / counts.sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class PageHinkley:
    """Page-Hinkley for increases, as ``river.drift.PageHinkley(mode="up")`` computes it."""

    slack: float = 0.005
    keep: float = 0.9999
    least: int = 30

    @property
    def name(self) -> str:
        """Its three settings."""
        return f"page-hinkley({self.slack:g},{self.keep:g},{self.least})"

    def initial(self, streams: int) -> StreamState:
        """Nothing seen."""
        return _blank(streams, [0.0, 0.0, 0.0, math.inf])

    def advance(self, state: StreamState, value: Floats, present: Flags) -> None:
        """See the protocol."""
        page_hinkley(state.memory, state.statistic, value, present, self.slack, self.keep, self.least)
