"""Operating characteristics of our detectors: the streams, the detectors, and the measurements.

All detectors are measured in the same way: threshold (calibrated to ARL0 of 10,000 or guaranteed for it),
measured mean run length, and its mean delay for a change after 1,000 healthy observations and at the worst
of several places. The yardstick of a stream is CUSUM with both laws known, at the same ARL0.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from contracts.rng import stream
from controller.detect.calibration.calibrate import calibrated_threshold
from controller.detect.calibration.laws import Normal, ObservationLaw, Ones
from controller.detect.calibration.simulate import LawChange, arl_curve, delays, false_alarms
from controller.detect.streams.classical import (
    Ewma,
    PageHinkley,
    WindowMean,
    gaussian_cusum,
    rate_cusum,
)
from controller.detect.streams.eprocess import Gaussian, Start, exceedances
from controller.detect.streams.protocol import StreamDetector, StreamState
from controller.detect.streams.ranks import Rank, rank_edges

SEED = 3
ARL0 = 1e4
CHANGE = 1000
RUNS = 4000
PLACES = (0, 50)  # further places of the change, for the worst case
BANK = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeCase:
    """A stream: its name, its laws before and after, and the CUSUM that knows both."""

    name: str
    before: ObservationLaw
    after: ObservationLaw
    known: StreamDetector


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Measurements of one detector on one stream; delays in observations, ratio to the yardstick.

    missed_rate: share of runs that did not find the change within the observed part.
    """

    detector: str
    stream: str
    arl0_declared: float
    arl0_measured: float
    threshold: float
    delay: float
    delay_error: float
    delay_worst: float
    ratio: float
    missed_rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialDetector:
    """A detector with its threshold; ``begin``: the initial state of runs, if it is not empty."""

    name: str
    detector: StreamDetector
    threshold: float
    begin: StreamState | None = None


def changes(family: str) -> tuple[ChangeCase, ...]:
    """Streams of the family: ``normal`` (0.5, 1, 2 deviations) or ``ones`` (0.01 to 0.05 and to 0.2)."""
    if family == "normal":
        return tuple(
            ChangeCase(name=f"N{a:g}", before=Normal(), after=Normal(mean=a), known=gaussian_cusum(a))
            for a in (0.5, 1.0, 2.0)
        )
    return tuple(
        ChangeCase(name=f"B{p:g}", before=Ones(rate=0.01), after=Ones(rate=p), known=rate_cusum(0.01, p))
        for p in (0.05, 0.2)
    )


def candidates(family: str) -> Iterator[TrialDetector]:
    """Every detector of the family, with one threshold for all its streams."""
    law = changes(family)[0].before
    recommended: StreamDetector = Gaussian() if family == "normal" else exceedances(0.01)
    best: StreamDetector = Gaussian(start=Start.BEST) if family == "normal" else exceedances(0.01, Start.BEST)
    yield _calibrated("e-SR calibrated", recommended, law)
    yield TrialDetector(name="e-SR guaranteed", detector=recommended, threshold=math.log(ARL0))
    yield _calibrated("e-CUSUM calibrated", best, law)
    yield TrialDetector(name="e-CUSUM guaranteed", detector=best, threshold=math.log(ARL0))
    if family == "normal":
        yield from _ranks()
    mean = 0.0 if family == "normal" else 0.01
    slack = 0.25 if family == "normal" else 0.015
    yield _calibrated("sliding mean 50", WindowMean(length=50), law)
    yield _calibrated("sliding mean 200", WindowMean(length=200), law)
    yield _calibrated("tumbling mean 50", WindowMean(length=50, tumbling=True), law)
    yield _calibrated("EWMA 0.05", Ewma(gain=0.05, mean=mean), law)
    yield _calibrated("EWMA 0.2", Ewma(gain=0.2, mean=mean), law)
    yield _matched("Page-Hinkley", PageHinkley(), law)
    yield _matched("Page-Hinkley tuned", PageHinkley(slack=slack), law)


def _calibrated(name: str, detector: StreamDetector, law: ObservationLaw) -> TrialDetector:
    found = calibrated_threshold(detector, law, ARL0, seed=SEED, runs=RUNS)
    return TrialDetector(name=name, detector=detector, threshold=found.threshold)


def _matched(name: str, detector: StreamDetector, law: ObservationLaw) -> TrialDetector:
    """Threshold found on counted alarms: Page-Hinkley learns its baseline anew after each, so it is not
    stationary. Equal to river's, alarm for alarm (tested).
    """
    low, high = 0.1, 400.0
    for _ in range(10):
        middle = math.sqrt(low * high)
        one = TrialDetector(name=name, detector=detector, threshold=middle)
        low, high = (middle, high) if measured_arl(one, law) < ARL0 else (low, middle)
    return TrialDetector(name=name, detector=detector, threshold=math.sqrt(low * high))


def _ranks() -> Iterator[TrialDetector]:
    """Online ranks from a reference of 1,000 observations per stream, and ranks in fixed references."""
    rng = stream(SEED, "rank_banks")
    edges = rank_edges(rng.normal(size=BANK // 5))
    for joins in (True, False):
        detector = Rank(edges=tuple(edges.tolist()), counts=(0.0,) * (edges.size + 1), joins=joins)
        begin = detector.with_references(rng.normal(size=(RUNS, BANK)))
        curve = arl_curve(detector, Normal(), streams=RUNS, samples=int(ARL0 / 2), seed=SEED, begin=begin)
        kind = "online" if joins else "fixed reference"
        level = curve.threshold_at(ARL0)
        yield TrialDetector(name=f"rank {kind} calibrated", detector=detector, threshold=level, begin=begin)
        if joins:
            top = math.log(ARL0)
            yield TrialDetector(name="rank online guaranteed", detector=detector, threshold=top, begin=begin)


def yardstick(change: ChangeCase) -> Figures:
    """CUSUM with both laws known."""
    found = calibrated_threshold(change.known, change.before, ARL0, seed=SEED, runs=RUNS)
    one = TrialDetector(name="CUSUM known", detector=change.known, threshold=found.threshold)
    return measured(one, change, None)


def measured(candidate: TrialDetector, change: ChangeCase, known: Figures | None) -> Figures:
    """Mean run length and delays of one candidate on one stream."""
    arl = measured_arl(candidate, change.before)
    at_change = _delay(candidate, change, CHANGE)
    worst = max(_delay(candidate, change, place)[0] for place in PLACES)
    return Figures(
        detector=candidate.name,
        stream=change.name,
        arl0_declared=ARL0,
        arl0_measured=arl,
        threshold=candidate.threshold,
        delay=at_change[0],
        delay_error=at_change[1],
        delay_worst=max(worst, at_change[0]),
        ratio=at_change[0] / known.delay if known else 1.0,
        missed_rate=at_change[2],
    )


def measured_arl(candidate: TrialDetector, law: ObservationLaw) -> float:
    """Observations per false alarm, over 2e7 observations (about 2,000 alarms)."""
    begin = candidate.begin
    streams = 1000 if begin is None else begin.statistic.size
    samples = int(2000 * ARL0 / streams)
    return false_alarms(
        candidate.detector,
        candidate.threshold,
        law,
        streams=streams,
        samples=samples,
        seed=SEED + 1,
        begin=begin,
    ).arl


def _delay(candidate: TrialDetector, change: ChangeCase, place: int) -> tuple[float, float, float]:
    """Mean delay of a change after ``place`` observations, its standard error, and the share of runs missed.

    A tumbling window has a phase: its delay is averaged over ten of them.
    """
    detector = candidate.detector
    tumbling = isinstance(detector, WindowMean) and detector.tumbling
    phases = [int(50 * k / 10) for k in range(10)] if tumbling else [0]
    runs = RUNS // len(phases) if candidate.begin is None else candidate.begin.statistic.size
    found = [
        delays(
            detector,
            candidate.threshold,
            LawChange(change.before, change.after, place + phase),
            runs=runs,
            seed=SEED + 2,
            most=20_000,
            begin=candidate.begin,
        )
        for phase in phases
    ]
    mean = float(np.mean([one.mean for one in found]))
    missed = float(np.mean([one.missed / max(one.missed + one.delays.size, 1) for one in found]))
    return mean, float(np.mean([one.standard_error for one in found]) / math.sqrt(len(found))), missed


def all_figures(family: str) -> list[Figures]:
    """Every candidate on every stream of the family, the yardstick first."""
    streams = changes(family)
    known = [yardstick(change) for change in streams]
    rows = list(known)
    for candidate in candidates(family):
        rows += [measured(candidate, change, one) for change, one in zip(streams, known, strict=True)]
    return rows
