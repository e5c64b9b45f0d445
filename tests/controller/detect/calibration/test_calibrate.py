"""Calibrated thresholds keep the declared ARL0, also far beyond what direct simulation can reach."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from contracts.rng import stream
from controller.detect.calibration.calibrate import block_threshold, calibrated_threshold
from controller.detect.calibration.laws import Empirical, Normal, ObservationLaw, Ones, Source
from controller.detect.calibration.simulate import arl_curve, false_alarms
from controller.detect.streams.classical import Ewma, WindowMean, gaussian_cusum
from controller.detect.streams.eprocess import Betting, Gaussian, exceedances
from controller.detect.streams.protocol import Floats, StreamDetector, guaranteed_threshold
from tests.support.run_lengths import arl_at_least, arl_at_most


@dataclass(frozen=True, slots=True, kw_only=True)
class Autoregressive:
    """Stationary normal observations of variance 1, each correlated with the one before."""

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
            observations = spread * rng.normal(size=(count, streams))
            for row in range(count):
                observations[row] += self.correlation * (observations[row - 1] if row else last)
            last[:] = observations[-1]
            return np.asarray(observations + self.mean)

        return more


CASES: tuple[tuple[StreamDetector, ObservationLaw], ...] = (
    (Gaussian(), Normal()),
    (Gaussian(mean=2.0, deviation=3.0), Normal(mean=2.0, deviation=3.0)),
    (exceedances(0.05), Ones(rate=0.05)),
    (Betting(null_mean=1.0), Empirical(values=np.array([0.4, 0.8, 1.0, 1.8]))),
    (gaussian_cusum(1.0), Normal()),
    (Ewma(gain=0.1), Normal()),
    (WindowMean(length=20), Normal()),
)


@pytest.mark.parametrize("detector, law", CASES, ids=[case[0].name[:24] for case in CASES])
def test_calibrated_thresholds_keep_their_arl0(detector: StreamDetector, law: ObservationLaw) -> None:
    """Measured over fresh healthy streams, the mean run length agrees with the declared one."""
    found = calibrated_threshold(detector, law, 1000.0, runs=2000)
    measured = false_alarms(detector, found.threshold, law, streams=1000, samples=3000, seed=31)
    assert arl_at_most(measured, 0.999) >= 0.95 * 1000.0
    assert arl_at_least(measured, 0.999) <= 1.25 * 1000.0


def test_change_of_measure_agrees_with_simulation() -> None:
    """Where both methods reach, change of measure gives the mean run length that direct simulation counts."""
    for detector, law in ((Gaussian(), Normal()), (exceedances(0.02), Ones(rate=0.02))):
        found = calibrated_threshold(detector, law, 5000.0, runs=2000)
        curve = arl_curve(detector, law, streams=2000, samples=2500, seed=8)
        at = float(np.exp(np.interp(found.threshold, curve.threshold, np.log(curve.arl))))
        assert at == pytest.approx(5000.0, rel=4.0 * (curve.error_at(5000.0) + found.error))
        assert found.method == "change of measure"


def test_calibration_saves_a_constant_at_any_arl0() -> None:
    """The calibrated threshold lies a constant below the guaranteed one, the same at 1e7 and 1e9."""
    gaps = []
    for arl0 in (1e5, 1e7, 1e9):
        found = calibrated_threshold(Gaussian(), Normal(), arl0, runs=1000)
        gaps.append(guaranteed_threshold(arl0) - found.threshold)
    assert min(gaps) > 0.6
    assert max(gaps) - min(gaps) < 0.08


def test_extrapolation_is_checked_where_it_can_be() -> None:
    """Beyond simulation the threshold is extrapolated; the misfit at the overlap is small for CUSUM."""
    found = calibrated_threshold(gaussian_cusum(1.0), Normal(), 1e7, runs=1500)
    assert found.method == "extrapolation"
    assert found.overlap_error < 0.2
    # Siegmund's approximation of CUSUM's run length, 2 (e^x - x - 1) / a^2 at x = a (h / a + 1.166)
    x = found.threshold + 1.166
    assert 2.0 * (np.exp(x) - x - 1.0) == pytest.approx(1e7, rel=0.35)


def test_the_same_arguments_give_the_same_threshold() -> None:
    """The same seed gives the same threshold, another seed another one."""
    first = calibrated_threshold(Gaussian(), Normal(), 200.0, seed=4, runs=200)
    assert calibrated_threshold(Gaussian(), Normal(), 200.0, seed=4, runs=200) == first
    assert calibrated_threshold(Gaussian(), Normal(), 200.0, seed=5, runs=200) != first


DEPENDENT: tuple[tuple[str, StreamDetector, ObservationLaw, ObservationLaw], ...] = (
    ("normal", Gaussian(), Autoregressive(correlation=0.6), Normal()),
    ("ones", exceedances(0.05), Ones(rate=0.05, persistence=0.4), Ones(rate=0.05)),
)


@pytest.mark.parametrize("detector, law, wrong", [c[1:] for c in DEPENDENT], ids=[c[0] for c in DEPENDENT])
def test_blocks_keep_arl0_where_units_depend_on_each_other(
    detector: StreamDetector, law: ObservationLaw, wrong: ObservationLaw
) -> None:
    """Calibrated on blocks of a recorded series: at least 0.9 of nominal; as if independent: half or less."""
    series = law.source(stream(1, "recorded"), 1)(40_000)[:, 0]
    uncorrected = calibrated_threshold(detector, wrong, 1000.0, runs=1000).threshold
    corrected = block_threshold(detector, series, 1000.0, length=200, runs=3000).threshold
    naive = false_alarms(detector, uncorrected, law, streams=1000, samples=3000, seed=6)
    blocked = false_alarms(detector, corrected, law, streams=1000, samples=3000, seed=6)
    assert naive.arl < 500.0
    assert blocked.arl >= 900.0


def test_blocks_of_a_calm_window_take_nothing_from_the_guarantee() -> None:
    """A short series without long excursions gives no threshold of log-evidence below ``log ARL0``."""
    calm = np.tile([-0.5, 0.5], 100)
    found = block_threshold(Gaussian(), calm + 0.9, 1000.0, length=50, runs=500)
    assert found.threshold >= guaranteed_threshold(1000.0)
