"""Confidence limits on window sums."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from contracts.compiled.contract import CompiledContract
from contracts.rng import stream
from contracts.telemetry import Source
from controller.detect.sums import BURST_S, beyond_limit, excess_of_sums, ticks_of_failures
from tests.reference.plain_windows import inside_limit
from tests.support.fleets.builders import Clause, make_contract, make_layout

LAYOUT = make_layout(kernels=1, slices=1, per_kernel=1)
ALWAYS = np.array([True])


def contract(clause: Clause, **changes: object) -> CompiledContract:
    """Contract of one clause."""
    return make_contract(LAYOUT, (clause,), **changes)


def cell(count: float, total: float = 0.0, squares: float = 0.0, over: float = 0.0) -> np.ndarray:
    """Sums of one cell."""
    return np.array([count, total, squares, over]).reshape(1, 1, 1, 1, 4)


@given(st.integers(5, 400), st.data(), st.sampled_from([0.01, 0.05, 0.2]))
def test_rate_alarm_is_the_clopper_pearson_limit(count: int, data: st.DataObject, limit: float) -> None:
    """A rate is beyond its limit exactly when its exact lower confidence limit is above it."""
    over = data.draw(st.integers(0, count))
    judged_by = contract(Clause(rate_limit=limit, hard=False))
    beyond, _ = beyond_limit(cell(count, over=over), np.ones((1, 1, 1, 1), dtype=np.bool_), judged_by)
    lower = 0.0 if over == 0 else stats.beta.ppf(1.0 - judged_by.alarm_confidence, over, count - over + 1)
    assert bool(beyond.item()) == (lower > limit)


@given(st.integers(5, 400), st.data(), st.sampled_from([0.01, 0.05, 0.2]))
def test_rate_inside_is_the_clopper_pearson_limit(count: int, data: st.DataObject, limit: float) -> None:
    """A rate is inside its limit exactly when its exact upper confidence limit is below it."""
    over = data.draw(st.integers(0, count))
    judged_by = contract(Clause(rate_limit=limit, hard=False))
    inside = inside_limit(cell(count, over=over), np.ones((1, 1, 1, 1), dtype=np.bool_), judged_by, 0.95)
    upper = 1.0 if over == count else stats.beta.ppf(0.95, over + 1, count - over)
    assert bool(inside.item()) == (upper < limit)


@given(st.lists(st.floats(0.0, 1.0), min_size=5, max_size=60))
def test_mean_alarm_is_the_t_limit(values: list[float]) -> None:
    """A mean is beyond its limit exactly when its one-sided t limit is above it."""
    judged_by = contract(Clause(threshold=0.5))
    sample = np.array(values)
    sums = cell(len(sample), sample.sum(), (sample * sample).sum())
    beyond, _ = beyond_limit(sums, np.ones((1, 1, 1, 1), dtype=np.bool_), judged_by)
    error = sample.std(ddof=1) / np.sqrt(len(sample))
    lower = sample.mean() - stats.t.ppf(judged_by.alarm_confidence, len(sample) - 1) * error
    if abs(lower - 0.5) > 1e-6:
        assert bool(beyond.item()) == (lower > 0.5)


def test_at_least_clauses_are_mirrored() -> None:
    """With sense -1 a mean below the threshold is beyond, one above it is not."""
    judged_by = contract(Clause(threshold=0.9, sense=-1.0))
    assert excess_of_sums(cell(10, 8.0), judged_by).item() == pytest.approx(1.0 / 9.0)
    assert excess_of_sums(cell(10, 9.5), judged_by).item() < 0.0


def test_false_alarms_under_the_null_stay_below_the_declared_rate() -> None:
    """At a true rate equal to the limit, windows alarm no more often than 1 - confidence."""
    judged_by = contract(Clause(rate_limit=0.05, hard=False))
    over = np.random.Generator(np.random.PCG64(3)).binomial(60, 0.05, 20000).astype(float)
    sums = np.zeros((20000, 1, 1, 1, 4))
    sums[:, 0, 0, 0, 0], sums[:, 0, 0, 0, 3] = 60.0, over
    beyond, _ = beyond_limit(sums, np.ones((20000, 1, 1, 1), dtype=np.bool_), judged_by)
    declared = 1.0 - judged_by.alarm_confidence
    assert beyond.mean() <= declared + 3.0 * np.sqrt(declared / 20000)


def failing(*, rate: bool, confidence: float = 0.999) -> CompiledContract:
    """Contract of one clause on failures, judged as a rate or as a mean of 0 and 1."""
    source = Source.FAILED
    judged = (
        Clause(source=source, hard=False, rate_limit=0.02) if rate else Clause(source=source, threshold=0.02)
    )
    return contract(judged, alarm_confidence=confidence)


def windows(attempts: np.ndarray, failed: np.ndarray) -> np.ndarray:
    """Sums float64 [W, 1, 1, 1, 4] of windows, of attempts and failures by tick [W, ticks]."""
    over = failed.sum(axis=1)
    sums = [attempts.sum(axis=1), over, (failed**2).sum(axis=1), over]
    return np.stack(sums, axis=-1).astype(np.float64).reshape(-1, 1, 1, 1, 4)


def share_beyond(sums: np.ndarray, judged_by: CompiledContract) -> float:
    """Share of the windows that are in alarm."""
    beyond, _ = beyond_limit(sums, np.ones(sums.shape[:-1], dtype=np.bool_), judged_by)
    return float(beyond.mean())


@given(
    st.integers(1, 100),
    st.integers(1, 40),
    st.sampled_from([0.95, 0.99, 0.999]),
    st.booleans(),
    st.integers(0, 10_000),
)
def test_bursts_of_a_healthy_server_alarm_no_more_often_than_declared(
    size: int, per_tick: int, confidence: float, rate: bool, seed: int
) -> None:
    """One burst per ``BURST_S``, of any size up to twice the given one, at any volume."""
    judged_by, rng, draws = failing(rate=rate, confidence=confidence), stream(seed, "bursts"), 4000
    ticks = int(judged_by.window_s)
    failed = (rng.uniform(size=(draws, ticks)) < 1.0 / BURST_S) * rng.integers(
        1, 2 * size + 1, (draws, ticks)
    )
    declared = 1.0 - confidence
    found = share_beyond(windows(np.maximum(failed, per_tick), failed), judged_by)
    assert found <= declared + 4.0 * np.sqrt(declared / draws)


@given(st.integers(1, 40), st.floats(0.06, 0.9), st.booleans(), st.integers(0, 10_000))
def test_failures_that_come_alone_are_found_as_if_there_were_no_bursts(
    per_tick: int, share: float, rate: bool, seed: int
) -> None:
    """A window judges independent failures, however many, as if each had a tick of its own."""
    judged_by, rng, draws = failing(rate=rate), stream(seed, "alone"), 500
    failed = rng.binomial(per_tick, share, (draws, int(judged_by.window_s)))
    sums = windows(np.full_like(failed, per_tick), failed)
    alone = sums.copy()
    alone[..., 2] = alone[..., 3]
    assert share_beyond(sums, judged_by) >= share_beyond(alone, judged_by) - 0.01


@given(st.integers(1, 60), st.integers(1, 200))
def test_the_number_of_ticks_with_failures_is_recovered(ticks: int, size: int) -> None:
    """Equal bursts are counted; with one failure per tick, every failure is."""
    failed = np.full((1, ticks), size)
    assert ticks_of_failures(windows(failed, failed)).item() == pytest.approx(ticks)
