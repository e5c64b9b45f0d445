"""Classical detectors against their definitions, and Page-Hinkley against river's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.detect.streams.classical import (
    Ewma,
    PageHinkley,
    WindowMean,
    binned_cusum,
    gaussian_cusum,
    rate_cusum,
)
from controller.detect.streams.protocol import LOWEST, StreamDetector

paths = st.lists(st.floats(-5.0, 5.0), min_size=1, max_size=30)


def statistics(detector: StreamDetector, path: list[float]) -> list[float]:
    """The statistic after each unit."""
    state, found = detector.initial(1), []
    for value in path:
        detector.advance(state, np.array([value]), np.ones(1, dtype=np.bool_))
        found.append(float(state.statistic[0]))
    return found


@given(path=paths, length=st.integers(1, 6))
def test_a_window_is_the_mean_of_its_last_units(path: list[float], length: int) -> None:
    """Sliding: the mean of the last units, nothing before the first full window; tumbling: at window ends."""
    expected = [
        float(np.mean(path[n + 1 - length : n + 1])) if n + 1 >= length else LOWEST for n in range(len(path))
    ]
    assert statistics(WindowMean(length=length), path) == pytest.approx(expected)
    held = [expected[(n + 1) // length * length - 1] if n + 1 >= length else LOWEST for n in range(len(path))]
    assert statistics(WindowMean(length=length, tumbling=True), path) == pytest.approx(held)


@given(path=paths)
def test_cusum_is_the_best_log_likelihood_ratio_over_starts(path: list[float]) -> None:
    """The recursion equals the largest sum of log-likelihood ratios over all starts so far."""
    ratios = [value - 0.5 for value in path]
    expected = [max(sum(ratios[start : n + 1]) for start in range(n + 1)) for n in range(len(path))]
    assert statistics(gaussian_cusum(1.0), path) == pytest.approx(expected)


@given(path=paths, gain=st.floats(0.05, 1.0))
def test_ewma_weighs_the_past_geometrically(path: list[float], gain: float) -> None:
    """The recursion equals the weighted sum of its definition."""
    weights = [gain * (1.0 - gain) ** age for age in range(len(path))][::-1]
    assert statistics(Ewma(gain=gain), path)[-1] == pytest.approx(float(np.dot(weights, path)), abs=1e-9)


def test_rate_cusum_adds_the_log_ratio_of_each_outcome() -> None:
    """A one adds log(p1/p0), a zero log((1-p1)/(1-p0))."""
    assert statistics(rate_cusum(0.1, 0.4), [1.0]) == pytest.approx([np.log(4.0)])
    assert statistics(rate_cusum(0.1, 0.4), [0.0]) == pytest.approx([np.log(0.6 / 0.9)])


def test_binned_cusum_rises_under_the_fault_only() -> None:
    """On its own samples the mean ratio is positive after the change and negative before."""
    rng = np.random.default_rng(2)
    before, after = rng.lognormal(size=300), rng.lognormal(mean=0.7, size=300)
    detector = binned_cusum(before, after)
    ratio = np.array(detector.log_ratio)
    for sample, sign in ((before, -1.0), (after, 1.0)):
        bins = np.searchsorted(np.array(detector.edges), sample, side="right")
        assert sign * ratio[bins].mean() > 0.05


def test_page_hinkley_alarms_when_rivers_does() -> None:
    """Same streams, same settings: the same first alarm as river's own code."""
    drift = pytest.importorskip("river.drift", reason="river is not installed: pip install river")
    rng = np.random.default_rng(3)
    for _ in range(5):
        path = rng.normal(size=600)
        path[300:] += 1.0
        theirs = drift.PageHinkley(min_instances=30, delta=0.005, threshold=20.0, alpha=0.9999, mode="up")
        raised = next((n for n, value in enumerate(path) if _fed(theirs, float(value))), None)
        ours = np.array(statistics(PageHinkley(), path.tolist()))
        assert raised == int(np.argmax(ours > 20.0))


def _fed(detector: object, value: float) -> bool:
    detector.update(value)  # type: ignore[attr-defined]
    return bool(detector.drift_detected)  # type: ignore[attr-defined]
