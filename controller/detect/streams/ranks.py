"""Rank form: no model of the healthy distribution, only samples of it (the reference sample).

Each observation is ranked in the reference sample; its upper-tail share, ties broken at random, becomes a
normal score ``z = Phi^-1(1 - u)`` and is bet on like a standard normal. With ``joins`` the observation then
joins the reference sample: ranks among all earlier exchangeable observations are independent and uniform
(Vovk et al. 2003, online conformal), so z is exactly standard normal and the guaranteed threshold holds.
Without ``joins`` the reference sample is fixed: what is learned about one reference sample stays, the null
holds on average over reference samples only, and the threshold is calibrated; report ARL0 conditional on
the reference sample (``reference_arls``).

No observation says more than half a rank, ``u >= 0.5 / (n + 1)``: with n references nothing is known of rarer
ones, and a tie that happened to be broken near 0 would be an alarm by itself. Observations up to the absolute
``floor`` say no more than the middle one. A larger u only lowers the evidence, so every guarantee stays, and
hosts or drifts within the floor raise nothing. Whether a sample looks exchangeable, ``stickiness`` says.

The reference sample is kept as counts per bin, with edges fixed before the stream: ranking bin numbers with
random ties is as exact as ranking values, and memory and time per observation do not grow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from scipy.special import ndtr, ndtri

from controller.detect.streams.eprocess import SHIFT_WEIGHTS, SHIFTS, Gaussian, Start
from controller.detect.streams.passes import rank, tilt
from controller.detect.streams.protocol import LOWEST, Flags, Floats, StreamState

#: Normal scores at which edges lie, where the sample that gives them reaches that far.
EDGE_SCORES: Floats = np.linspace(-2.2, 2.2, 37)
#: Edges beyond, in distances between the scores 1.2 and 2.2.
TAIL_STEPS: Floats = np.array([0.15, 0.3, 0.5, 0.75, 1.0, 1.4, 2.0, 3.0, 5.0, 10.0])
#: Repeated values that get a bin of their own, the largest ones first.
_MOST_ATOMS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """Null: observations are exchangeable with the reference sample; larger is worse."""

    #: n of them, ascending.
    edges: tuple[float, ...]
    #: n + 1, observations of the reference sample per bin (below the first edge, ...).
    counts: tuple[float, ...]
    #: Observations join the reference sample.
    joins: bool = True
    #: Bets on the score, in standard deviations, and their weights; sum 1.
    shifts: tuple[float, ...] = SHIFTS
    weights: tuple[float, ...] = SHIFT_WEIGHTS
    #: Of the random ties.
    seed: int = 0
    #: Observations up to it are never evidence of a change, in their unit.
    floor: float = -math.inf
    _edge_array: Floats = field(init=False, repr=False, compare=False, hash=False)  # [n], the edges

    def __post_init__(self) -> None:
        if len(self.counts) != len(self.edges) + 1 or min(self.counts) < 0.0:
            raise ValueError(f"expected {len(self.edges) + 1} counts >= 0, got {len(self.counts)}")
        if any(later <= sooner for sooner, later in zip(self.edges, self.edges[1:], strict=False)):
            raise ValueError("expected ascending edges")
        Gaussian(shifts=self.shifts, weights=self.weights)  # refuses what it cannot bet on
        object.__setattr__(self, "_edge_array", np.array(self.edges, dtype=np.float64))

    @property
    def name(self) -> str:
        """Kind, reference sample and bets."""
        kind = "online" if self.joins else "fixed"
        floor = f",floor={self.floor:g}" if self.floor > -math.inf else ""
        shape = f"edges={self.edges},counts={self.counts},shifts={self.shifts},{self.weights}{floor}"
        return f"rank-{kind}({shape})"

    def initial(self, streams: int) -> StreamState:
        """Every stream begins with the reference sample of the settings."""
        return self._state(np.tile(np.array(self.counts), (streams, 1)))

    def with_references(self, references: Floats) -> StreamState:
        """Streams that each begin with a reference sample of their own, ``references`` float64 [N, n]."""
        bins = np.searchsorted(self._edge_array, references, side="right")
        return self._state(
            np.stack([np.bincount(row, minlength=len(self.counts)) for row in bins]).astype(np.float64)
        )

    def _state(self, counts: Floats) -> StreamState:
        streams = counts.shape[0]
        head = np.zeros((streams, len(self.shifts)))
        marks = np.stack(
            [np.arange(streams, dtype=np.float64), np.zeros(streams), counts.sum(axis=1)], axis=1
        )
        return StreamState(
            memory=np.concatenate([head, marks, counts], axis=1), statistic=np.full(streams, LOWEST)
        )

    def advance(self, state: StreamState, value: Floats, present: Flags) -> None:
        """See the protocol."""
        upper = np.full(value.shape, 0.5)
        bins = np.searchsorted(self._edge_array, value, side="right")
        half = 0.5 / (state.memory[:, len(self.shifts) + 2] + 1.0)
        rank(state.memory, upper, bins, present, len(self.shifts), self.seed, self.joins)
        half = np.where(value <= self.floor, 0.5, half)
        score = -ndtri(np.maximum(upper, half))
        shifts, weights = np.array(self.shifts), np.array(self.weights)
        tilt(state.memory, state.statistic, score, present, shifts, weights, int(Start.SUM))


def rank_detector(reference: Floats, *, joins: bool = True, edge_every: int = 5, seed: int = 0) -> Rank:
    """Rank form on ``reference`` float64 [n]: every ``edge_every``-th gives edges, the others are ranked in.

    Edges and reference sample share no observation: edges chosen on the reference sample itself would make
    its ranks unlike a new observation's. Raises ValueError below 20 observations.
    """
    healthy = reference[~np.isnan(reference)]
    if healthy.size < 20:
        raise ValueError(f"expected a reference sample of at least 20 observations, got {healthy.size}")
    scale = np.zeros(healthy.size, dtype=np.bool_)
    scale[::edge_every] = True
    edges = rank_edges(healthy[scale])
    counts = np.bincount(np.searchsorted(edges, healthy[~scale], side="right"), minlength=edges.size + 1)
    return Rank(
        edges=tuple(edges.tolist()), counts=tuple(counts.astype(np.float64).tolist()), joins=joins, seed=seed
    )


def rank_edges(sample: Floats) -> Floats:
    """Ascending edges: quantiles of ``sample`` at ``EDGE_SCORES`` and, above them, a spreading tail.

    A value that ``sample`` holds more than once has a bin of its own: what lies above it is told apart from
    it, however little, and where all values are equal the tail spreads by a tenth of their size.
    """
    inner = np.quantile(sample, ndtr(EDGE_SCORES))
    values, times = np.unique(sample, return_counts=True)
    atoms = values[(times > 1) & (values >= inner[0]) & (values <= inner[-1])]
    top = float(max(inner[-1], values[-1] if times[-1] > 1 else inner[-1]))
    step = float(np.quantile(sample, ndtr(2.2)) - np.quantile(sample, ndtr(1.2)))
    if step <= 0.0:
        step = 0.1 * float(values[-1] - values[0] if values.size > 1 else max(abs(top), 1.0))
    own = np.unique(atoms)[-_MOST_ATOMS:]
    return np.unique(np.concatenate([inner, own, np.nextafter(own, np.inf), top + step * TAIL_STEPS]))
