"""Laws of the confidence limits on sums."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from contracts.compiled.contract import CompiledContract
from controller.detect.sums import beyond_limit, excess_of_sums
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


def test_at_least_clauses_count_the_other_way() -> None:
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
