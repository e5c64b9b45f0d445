"""Laws of every stream detector: streams are independent, and absent units change nothing.

Thresholds of log-evidence: what is guaranteed, and that compiled code tests for exactly that.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.detect.certified_drift import drift_detector
from controller.detect.streams.classical import BinnedCusum, Ewma, PageHinkley, WindowMean, gaussian_cusum
from controller.detect.streams.eprocess import Betting, Gaussian, Start
from controller.detect.streams.protocol import (
    StreamDetector,
    StreamState,
    alarms,
    guaranteed_threshold,
    guaranteed_thresholds,
    log_threshold,
    reaches,
    reset,
    update,
)
from controller.detect.streams.ranks import rank_detector
from tests.reference.recovery_laws import MatchRecovery, MeanRecovery, ShiftRecovery

BANK = np.random.default_rng(1).normal(size=60)
DETECTORS: tuple[StreamDetector, ...] = (
    Betting(null_mean=0.5),
    Betting(null_mean=0.5, start=Start.BEST, clip=2.0),
    Gaussian(),
    drift_detector(),
    rank_detector(BANK),
    rank_detector(BANK, joins=False),
    WindowMean(length=3),
    ShiftRecovery(shift=2.0),
    WindowMean(length=3, tumbling=True),
    Ewma(gain=0.2),
    gaussian_cusum(1.0),
    PageHinkley(least=2),
    BinnedCusum(edges=(0.0, 1.0), log_ratio=(-0.5, 0.1, 0.7)),
    MeanRecovery(null_mean=0.5, upper=1.0),
    MeanRecovery(null_mean=0.5, upper=1.0, start=Start.SUM),
    MatchRecovery(share=0.3),
)
NAMES = [detector.name[:40] for detector in DETECTORS]
each = pytest.mark.parametrize("detector", DETECTORS, ids=NAMES)


def run(detector: StreamDetector, values: np.ndarray, begin: StreamState | None = None) -> StreamState:
    """State after the rows of ``values`` [T, N]; NaN is absent."""
    state = detector.initial(values.shape[1]) if begin is None else begin
    for row in values:
        state, _ = update(detector, state, row, np.ones(row.size, dtype=np.bool_))
    return state


def same(one: StreamState, other: StreamState) -> bool:
    """Whether both states are equal bit for bit."""
    return bool(np.array_equal(one.memory, other.memory) and np.array_equal(one.statistic, other.statistic))


def part(state: StreamState, rows: slice) -> StreamState:
    """Some streams of a state."""
    return StreamState(memory=state.memory[rows], statistic=state.statistic[rows])


@each
@given(seed=st.integers(0, 999), cut=st.integers(1, 4))
def test_streams_do_not_depend_on_their_batch(detector: StreamDetector, seed: int, cut: int) -> None:
    """Streams advanced together or in two batches have the same state, bit for bit."""
    values = np.random.default_rng(seed).normal(0.5, 1.0, (12, 5))
    begin = detector.initial(5)
    whole = run(detector, values, begin)
    for rows in (slice(0, cut), slice(cut, 5)):
        assert same(part(whole, rows), run(detector, values[:, rows], part(begin, rows)))


@each
def test_absent_units_change_nothing(detector: StreamDetector) -> None:
    """A stream whose unit is absent or NaN keeps its state; the others are updated as without it."""
    values = np.random.default_rng(3).normal(0.5, 1.0, (9, 4))
    sparse = np.repeat(values, 2, axis=0)
    sparse[1::2] = np.nan
    assert same(run(detector, sparse), run(detector, values))
    state, _ = update(detector, run(detector, values), values[0], np.zeros(4, dtype=np.bool_))
    assert same(state, run(detector, values))


@each
def test_update_is_pure_and_reset_forgets(detector: StreamDetector) -> None:
    """Update leaves its input state alone; reset makes exactly the masked streams new."""
    values = np.random.default_rng(4).normal(0.5, 1.0, (9, 4))
    state = run(detector, values)
    kept = state.copy()
    update(detector, state, values[0], np.ones(4, dtype=np.bool_))
    assert same(state, kept)
    mask = np.array([True, False, False, True])
    after, fresh = reset(detector, state, mask), detector.initial(4)
    assert same(part(after, slice(1, 3)), part(state, slice(1, 3)))
    assert same(part(after, slice(3, 4)), part(fresh, slice(3, 4)))


@each
@given(value=st.sampled_from([-np.inf, -1e300, 0.0, 1e300, np.inf]))
def test_no_value_breaks_a_stream(detector: StreamDetector, value: float) -> None:
    """Extreme values leave a statistic that compares, and no NaN in the evidence."""
    if isinstance(detector, WindowMean | Ewma | PageHinkley) or "cusum(" in detector.name:
        return  # plain averages of infinite values are infinite or undefined: the controller bounds them
    with np.errstate(over="ignore", invalid="ignore"):
        state = run(detector, np.array([[0.3, 0.4], [value, value], [0.5, 0.1], [value, value], [0.2, 0.1]]))
    assert not np.isnan(state.statistic).any()
    assert not np.isnan(state.memory).any()
    assert alarms(state, np.array([-1e3, 1e3])).tolist() == [True, False]


@given(log=st.floats(0.01, 500.0), share=st.floats(0.999_999, 1.000_001))
def test_a_threshold_is_reached_where_the_logarithm_reaches_it(log: float, share: float) -> None:
    """The quick check of the evidence itself never changes the answer, however near the threshold is."""
    level = math.exp(log) * share
    assert reaches(level, log_threshold(np.array([log]))[0]) == (math.log(level) >= log)


def test_an_infinite_threshold_is_never_reached() -> None:
    """An infinite threshold marks a missing stream; no evidence reaches it."""
    assert not reaches(1e250, log_threshold(np.array([np.inf]))[0])


def test_guaranteed_thresholds_are_logarithms_and_inf_stays() -> None:
    """Each ARL0 has its own threshold, inf stays inf, and an ARL0 of 1 is refused."""
    found = guaranteed_thresholds(np.array([[10.0, np.inf], [1e9, 2.0]]))
    assert found.tolist() == [[math.log(10.0), math.inf], [math.log(1e9), math.log(2.0)]]
    with pytest.raises(ValueError, match="ARL0"):
        guaranteed_threshold(1.0)
