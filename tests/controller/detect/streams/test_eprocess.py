"""e-detectors: e-values have mean at most 1, evidence minus time is a martingale, ARL0 is kept."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from controller.detect.calibration.laws import Empirical, Normal, ObservationLaw, Ones
from controller.detect.calibration.simulate import false_alarms
from controller.detect.streams.eprocess import Betting, Gaussian, Start, exceedances
from controller.detect.streams.protocol import StreamDetector, guaranteed_threshold
from tests.support.run_lengths import arl_at_least


def evidence(detector: StreamDetector, path: tuple[float, ...]) -> float:
    """Evidence (not its logarithm) after ``path``."""
    state = detector.initial(1)
    for value in path:
        detector.advance(state, np.array([value]), np.ones(1, dtype=np.bool_))
    return math.exp(float(state.statistic[0]))


@given(rate=st.floats(0.05, 0.6), steps=st.integers(1, 6), start=st.sampled_from([Start.SUM, Start.FIRST]))
def test_evidence_on_ones_is_a_martingale(rate: float, steps: int, start: Start) -> None:
    """Over all 0/1 paths at the null rate, evidence is t on average (one start: 1), by enumeration."""
    detector = exceedances(rate, start)
    mean = sum(
        rate ** sum(path) * (1.0 - rate) ** (steps - sum(path)) * evidence(detector, path)
        for path in itertools.product((0.0, 1.0), repeat=steps)
    )
    assert mean == pytest.approx(steps if start is Start.SUM else 1.0, rel=1e-9)


@given(
    values=st.lists(st.floats(0.0, 5.0), min_size=2, max_size=4),
    shares=st.lists(st.floats(0.05, 1.0), min_size=4, max_size=4),
    slack=st.floats(1.0, 2.0),
    clip=st.sampled_from([math.inf, 2.5]),
)
def test_evidence_on_means_is_a_supermartingale(
    values: list[float], shares: list[float], slack: float, clip: float
) -> None:
    """For any law on a few values >= 0 whose mean is at most m, evidence averages at most t."""
    law = np.array(shares[: len(values)]) / sum(shares[: len(values)])
    mean = float(law @ np.array(values))
    if mean * slack <= 1e-3 or clip <= mean * slack:
        return
    detector = Betting(null_mean=mean * slack, clip=clip)
    average = sum(
        float(np.prod(law[list(path)])) * evidence(detector, tuple(values[i] for i in path))
        for path in itertools.product(range(len(values)), repeat=3)
    )
    assert average <= 3.0 + 1e-9


@pytest.mark.parametrize("shift", (-0.5, 0.0))
def test_gaussian_e_values_average_at_most_one(shift: float) -> None:
    """The mixture's e-value integrates to 1 at mean 0 and to less below."""
    detector = Gaussian(start=Start.FIRST)
    mean, _ = quad(lambda z: evidence(detector, (z,)) * norm.pdf(z - shift), -12, 14)
    assert mean == pytest.approx(1.0, abs=1e-6) if shift == 0.0 else mean < 1.0


@given(path=st.lists(st.floats(0.0, 3.0), min_size=1, max_size=12))
def test_the_best_start_is_below_the_sum_over_starts(path: list[float]) -> None:
    """CUSUM-style evidence never exceeds the Shiryaev-Roberts one, so it keeps the same guarantee."""
    best, sums = (evidence(Betting(null_mean=1.0, start=s), tuple(path)) for s in (Start.BEST, Start.SUM))
    assert best <= sums * (1.0 + 1e-12)


@given(path=st.lists(st.floats(0.0, 3.0), min_size=1, max_size=8), place=st.integers(0, 7))
def test_worse_units_never_weaken_evidence(path: list[float], place: int) -> None:
    """Raising one unit of a path never lowers the evidence after it."""
    worse = list(path)
    worse[place % len(path)] += 0.5
    detector = Betting(null_mean=1.0)
    assert evidence(detector, tuple(worse)) >= evidence(detector, tuple(path)) * (1.0 - 1e-12)


GUARANTEED: tuple[tuple[str, StreamDetector, ObservationLaw], ...] = (
    ("normal", Gaussian(), Normal()),
    ("normal two-sided", Gaussian(two_sided=True), Normal()),
    ("normal, best start", Gaussian(start=Start.BEST), Normal()),
    ("rate 0.01", exceedances(0.01), Ones(rate=0.01)),
    ("rate 0.3", exceedances(0.3), Ones(rate=0.3)),
    ("skewed mean", Betting(null_mean=1.0), Empirical(values=np.array([0.2] * 9 + [8.2]))),
    ("mean below the null", Betting(null_mean=1.0), Empirical(values=np.array([0.2] * 9 + [4.0]))),
)


@pytest.mark.parametrize("detector, law", [case[1:] for case in GUARANTEED], ids=[c[0] for c in GUARANTEED])
@pytest.mark.parametrize("arl0", (100.0, 1000.0))
def test_guaranteed_thresholds_keep_their_arl0(
    detector: StreamDetector, law: ObservationLaw, arl0: float
) -> None:
    """The 99 % lower limit of the measured mean run length is not below the declared one."""
    found = false_alarms(detector, guaranteed_threshold(arl0), law, streams=1000, samples=4000, seed=11)
    assert arl_at_least(found, 0.99) >= arl0


def test_bad_bets_are_refused() -> None:
    """Settings under which no guarantee holds are refused with the expected range."""
    for wrong in (
        {"null_mean": 0.0},
        {"null_mean": 1.0, "clip": 0.5},
        {"null_mean": 1.0, "weights": (0.5, 0.5, 0.5)},
        {"null_mean": 1.0, "bets": (0.5, 1.0, 0.2)},
        {"null_mean": 1.0, "bets": (-0.5, 0.1, 0.2)},
    ):
        with pytest.raises(ValueError, match="expected"):
            Betting(**wrong)
    for rate in (0.0, 1.0, math.nan):
        with pytest.raises(ValueError, match="rate"):
            exceedances(rate)
    with pytest.raises(ValueError, match="ARL0"):
        guaranteed_threshold(1.0)
