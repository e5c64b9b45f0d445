"""Detection delay against CUSUM with the known law at the same ARL0, with one setting for all shifts."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest

from controller.detect.calibration.calibrate import calibrated_threshold
from controller.detect.calibration.laws import Normal, ObservationLaw, Ones
from controller.detect.calibration.simulate import LawChange, delays
from controller.detect.streams.classical import gaussian_cusum, rate_cusum
from controller.detect.streams.eprocess import Gaussian, exceedances
from controller.detect.streams.protocol import StreamDetector, StreamState, guaranteed_threshold
from controller.detect.streams.ranks import Rank, rank_edges

ARL0 = 1e4
BEFORE: dict[str, ObservationLaw] = {"normal": Normal(), "ones": Ones(rate=0.01)}
CASES = (("normal", 0.5), ("normal", 1.0), ("normal", 2.0), ("ones", 0.05), ("ones", 0.2))
cases = pytest.mark.parametrize("kind, size", CASES)


def after(kind: str, size: float) -> ObservationLaw:
    """The law after the change."""
    return Normal(mean=size) if kind == "normal" else Ones(rate=size)


def mean_delay(
    detector: StreamDetector, threshold: float, kind: str, size: float, begin: StreamState | None = None
) -> float:
    """Mean delay of a change after 1,000 units."""
    runs = 3000 if begin is None else begin.statistic.size
    found = delays(
        detector, threshold, LawChange(BEFORE[kind], after(kind, size), 1000), runs=runs, seed=21, begin=begin
    )
    assert not found.missed
    return found.mean


@cache
def yardstick(kind: str, size: float) -> float:
    """Delay of CUSUM with the known law, calibrated to the same ARL0."""
    known = gaussian_cusum(size) if kind == "normal" else rate_cusum(0.01, size)
    threshold = calibrated_threshold(known, BEFORE[kind], ARL0, runs=3000).threshold
    return mean_delay(known, threshold, kind, size)


@cases
def test_calibrated_delay_is_within_a_tenth_of_the_optimum(kind: str, size: float) -> None:
    """The recommended detector of each family, calibrated: at most 1.10 of the optimum, at every shift."""
    detector = Gaussian() if kind == "normal" else exceedances(0.01)
    threshold = calibrated_threshold(detector, BEFORE[kind], ARL0, runs=2000).threshold
    assert mean_delay(detector, threshold, kind, size) <= 1.10 * yardstick(kind, size)


@cases
def test_guaranteed_delay_is_within_a_quarter_of_the_optimum(kind: str, size: float) -> None:
    """With the guaranteed threshold: at most 1.26 of the optimum, at every shift."""
    detector = Gaussian() if kind == "normal" else exceedances(0.01)
    threshold = guaranteed_threshold(ARL0)
    assert mean_delay(detector, threshold, kind, size) <= 1.26 * yardstick(kind, size)


@pytest.mark.parametrize("size", (0.5, 1.0, 2.0))
def test_rank_delay_needs_no_model(size: float) -> None:
    """Online ranks with 1,000 healthy units, guaranteed: at most 1.35 of the known-law optimum."""
    rng = np.random.default_rng(5)
    edges = rank_edges(rng.normal(size=250))
    detector = Rank(edges=tuple(edges.tolist()), counts=(0.0,) * (edges.size + 1))
    begin = detector.with_references(rng.normal(size=(2000, 1000)))
    delay = mean_delay(detector, math.log(ARL0), "normal", size, begin)
    assert delay <= 1.35 * yardstick("normal", size)
