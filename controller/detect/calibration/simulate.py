"""Monte-Carlo operating characteristics of a detector: run length to a false alarm, delay after a change.

One pass gives alarms at one threshold (``false_alarms``, ``delays``) or the whole curve of ARL0 against the
threshold (``arl_curve``); ``reference_arls`` measures ARL0 with fixed reference samples. Everything is drawn
from named streams of one seed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.rng import stream
from controller.detect.calibration.laws import ObservationLaw
from controller.detect.streams.protocol import Floats, StreamDetector, StreamState
from controller.detect.streams.ranks import Rank

_CHUNK = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class FalseAlarms:
    """Alarms counted over ``samples`` observations of healthy streams that start anew after each alarm."""

    alarms: int
    samples: int

    @property
    def arl(self) -> float:
        """Observations per alarm (inf: none)."""
        return self.samples / self.alarms if self.alarms else math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Delays:
    """Delays of runs that raised an alarm after the change."""

    #: float64 [n], observations counted from the change (the first one is 1).
    delays: Floats
    #: Runs with an alarm before it, which are left out.
    false: int
    #: Runs without an alarm at the end.
    missed: int

    @property
    def mean(self) -> float:
        """Mean delay, missed runs counted at the largest one seen: a lower limit where any are missed."""
        top = float(self.delays.max(initial=0.0))
        return (float(self.delays.sum()) + self.missed * top) / max(self.delays.size + self.missed, 1)

    @property
    def standard_error(self) -> float:
        """Of the mean."""
        return float(self.delays.std() / math.sqrt(max(self.delays.size, 1)))


def _observations(
    law: ObservationLaw, rng: np.random.Generator, streams: int, samples: int
) -> Iterator[Floats]:
    """``samples`` rows of ``streams`` observations."""
    more, left = law.source(rng, streams), samples
    while left > 0:
        yield from more(min(_CHUNK, left))
        left -= _CHUNK


def false_alarms(
    detector: StreamDetector,
    threshold: float,
    law: ObservationLaw,
    *,
    streams: int,
    samples: int,
    seed: int,
    begin: StreamState | None = None,
) -> FalseAlarms:
    """Count alarms of ``streams`` healthy streams over ``samples`` observations; each resets its stream."""
    fresh = detector.initial(streams) if begin is None else begin
    raised = alarm_counts(detector, threshold, law, samples=samples, seed=seed, begin=fresh)
    return FalseAlarms(alarms=int(raised.sum()), samples=streams * samples)


def alarm_counts(
    detector: StreamDetector,
    threshold: float,
    law: ObservationLaw,
    *,
    samples: int,
    seed: int,
    begin: StreamState,
) -> NDArray[np.int64]:
    """Alarms of each stream of ``begin`` over ``samples`` healthy observations, int64 [N]."""
    state, streams = begin.copy(), begin.statistic.size
    present, count = np.ones(streams, dtype=np.bool_), np.zeros(streams, dtype=np.int64)
    for row in _observations(law, stream(seed, "false_alarms"), streams, samples):
        detector.advance(state, row, present)
        raised = np.flatnonzero(state.statistic >= threshold)
        if raised.size:
            count[raised] += 1
            state.memory[raised], state.statistic[raised] = begin.memory[raised], begin.statistic[raised]
    return count


class LawChange(NamedTuple):
    """A stream that changes its law."""

    before: ObservationLaw
    after: ObservationLaw
    place: int  # healthy observations before the change


def delays(
    detector: StreamDetector,
    threshold: float,
    change: LawChange,
    *,
    runs: int,
    seed: int,
    most: int = 100_000,
    begin: StreamState | None = None,
) -> Delays:
    """Delay of ``runs`` streams that ``change``, followed for ``most`` observations more."""
    state = (detector.initial(runs) if begin is None else begin).copy()
    present, rng = np.ones(runs, dtype=np.bool_), stream(seed, "delays")
    for row in _observations(change.before, rng, runs, change.place):
        detector.advance(state, row, present)
        present &= state.statistic < threshold
    healthy, found = int(present.sum()), np.zeros(runs)
    for index, row in enumerate(_observations(change.after, rng, runs, most)):
        detector.advance(state, row, present)
        raised = present & (state.statistic >= threshold)
        found[raised] = index + 1
        present &= ~raised
        if not present.any():
            break
    return Delays(delays=found[found > 0.0], false=runs - healthy, missed=int(present.sum()))


@dataclass(frozen=True, slots=True, kw_only=True)
class ArlCurve:
    """Mean run length against the threshold."""

    #: float64 [n], ascending.
    threshold: Floats
    #: float64 [n], ascending, in observations.
    arl: Floats
    #: float64 [n], relative standard error of ``arl``.
    error: Floats

    def threshold_at(self, arl0: float) -> float:
        """Threshold whose mean run length is ``arl0``, log-linear between the points; ValueError outside."""
        if not (self.arl.size and self.arl[0] <= arl0 <= self.arl[-1]):
            span = f"from {self.arl[0]:.4g} to {self.arl[-1]:.4g}" if self.arl.size else "none at all"
            raise ValueError(f"expected an ARL0 that some threshold has ({span}), got {arl0:.4g}")
        return float(np.interp(math.log(arl0), np.log(self.arl), self.threshold))

    def error_at(self, arl0: float) -> float:
        """Relative standard error of the mean run length there."""
        return float(np.interp(math.log(arl0), np.log(self.arl), self.error))


def arl_curve(
    detector: StreamDetector,
    law: ObservationLaw,
    *,
    streams: int,
    samples: int,
    seed: int,
    begin: StreamState | None = None,
) -> ArlCurve:
    """ARL0 of every threshold that ``streams`` healthy streams passed within ``samples`` observations.

    Alarms of a stationary stream are rare and forget their past, so the share of streams whose largest
    statistic stays below h is ``exp(-samples / ARL0(h))``. Thresholds that fewer than 30 streams passed or
    fewer than 5 % did not are left out: the former are noise, the latter the beginning of the stream.
    """
    state = (detector.initial(streams) if begin is None else begin).copy()
    present = np.ones(streams, dtype=np.bool_)
    top = np.full(streams, -np.inf)
    for row in _observations(law, stream(seed, "arl_curve"), streams, samples):
        detector.advance(state, row, present)
        np.maximum(top, state.statistic, out=top)
    level, above = np.unique(top, return_counts=True)
    passed = np.cumsum(above[::-1])[::-1]  # streams at or above each level: the alarm is >=
    use = (passed >= 30) & (streams - passed >= 0.05 * streams)
    quiet = 1.0 - passed[use] / streams
    arl = samples / -np.log(quiet)
    error = np.sqrt((1.0 - quiet) / (quiet * streams)) / -np.log(quiet)
    return ArlCurve(threshold=level[use], arl=arl, error=error)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceArls:
    """ARL0 in observations, over reference samples."""

    #: float64 [samples].
    arl: Floats
    #: 5 % quantile.
    low: float
    median: float
    #: Observations per alarm of a fleet whose replicas each have a reference sample of their own.
    harmonic_mean: float


def reference_arls(
    edges: Floats,
    references: Floats,
    law: ObservationLaw,
    threshold: float,
    *,
    streams: int,
    samples: int,
    seed: int,
) -> ReferenceArls:
    """Measure each of ``references`` float64 [samples, n] as a fixed one against healthy ``law``.

    edges: ascending, from observations of no reference sample (``rank_edges``). streams: of each,
    of ``samples`` observations each. One without an alarm counts one at the end: its ARL0 is known from below
    only.
    """
    detector = Rank(edges=tuple(edges.tolist()), counts=(0.0,) * (edges.size + 1), joins=False)
    begin = detector.with_references(np.repeat(references, streams, axis=0))
    raised = alarm_counts(detector, threshold, law, samples=samples, seed=seed, begin=begin)
    arl = streams * samples / np.maximum(raised.reshape(len(references), streams).sum(axis=1), 1)
    return ReferenceArls(
        arl=arl,
        low=float(np.quantile(arl, 0.05)),
        median=float(np.median(arl)),
        harmonic_mean=float(1.0 / np.mean(1.0 / arl)),
    )
