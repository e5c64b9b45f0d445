"""Intervals against textbook values, and their properties."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.rng import stream
from contracts.scoring.intervals import (
    capped_limits,
    clustered_mean,
    paired_difference,
    paired_ratio,
    poisson_rate,
    simultaneous_limits,
)


def test_exact_poisson_limits_match_the_tables() -> None:
    """Garwood's 95 % limits: none seen gives 0..3.689, ten seen 4.795..18.39."""
    none, ten = poisson_rate(0, 1.0), poisson_rate(10, 2.0)
    assert (none.mean, none.ci_low) == (0.0, 0.0)
    assert none.ci_high == pytest.approx(3.6889, abs=1e-4)
    assert (2 * ten.ci_low, 2 * ten.ci_high) == pytest.approx((4.7954, 18.3904), abs=1e-3)
    assert (ten.mean, ten.n) == (5.0, 10)


def test_bootstrap_of_normal_means_has_the_width_of_theory() -> None:
    """For 400 independent normal seeds the half width is near 1.96 / sqrt(400)."""
    found = clustered_mean(stream(3, "test").standard_normal((400, 1)), name="x")
    assert found.ci_high - found.ci_low == pytest.approx(2 * 1.96 / 20, rel=0.15)
    assert found.n == 400


def test_seeds_are_the_clusters() -> None:
    """Repeating every seed's value in ten scenarios adds observations but narrows nothing."""
    values = stream(4, "test").standard_normal((20, 1))
    one, ten = clustered_mean(values, name="x"), clustered_mean(np.repeat(values, 10, axis=1), name="x")
    assert (one.ci_low, one.ci_high) == pytest.approx((ten.ci_low, ten.ci_high))
    assert (one.n, ten.n) == (20, 200)


def test_missing_entries_are_skipped_not_counted_as_zero() -> None:
    """The mean of (1, missing, 3) is 2; no known value gives no estimate; one seed gives no interval."""
    assert clustered_mean(np.array([[1.0], [math.nan], [3.0]]), name="x").mean == 2.0
    empty = clustered_mean(np.full((3, 2), math.nan), name="x")
    assert math.isnan(empty.mean)
    assert empty.n == 0
    single = clustered_mean(np.array([[2.0]]), name="x")
    assert single.mean == 2.0
    assert math.isnan(single.ci_low)


def test_pairing_removes_noise_common_to_the_seeds() -> None:
    """A constant gain on top of large common noise has an interval of width zero."""
    noise = 100 * stream(5, "test").standard_normal((20, 3))
    found = paired_difference(noise + 1.0, noise, name="x")
    assert (found.ci_low, found.mean, found.ci_high) == pytest.approx((1.0, 1.0, 1.0))


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=12))
def test_limits_are_deterministic_and_enclosed_by_the_data(values: list[float]) -> None:
    """Equal arguments give equal limits, within the smallest and largest value."""
    matrix = np.array(values)[:, None]
    found = clustered_mean(matrix, name="x", resamples=200)
    assert found == clustered_mean(matrix, name="x", resamples=200)
    assert min(values) - 1e-9 <= found.ci_low <= found.ci_high <= max(values) + 1e-9


def test_a_paired_ratio_is_exact_where_everything_scales() -> None:
    """Half of every value is a ratio of 0.5 with an interval of width zero, whatever the values share."""
    base = 1.0 + 100 * stream(6, "test").random((20, 3))
    found = paired_ratio(0.5 * base, base, name="x")
    assert (found.ci_low, found.mean, found.ci_high) == pytest.approx((0.5, 0.5, 0.5))


def test_a_paired_ratio_skips_entries_unknown_on_one_side() -> None:
    """An entry unknown on either side counts on neither; a base of zero gives no ratio."""
    values, base = np.array([[1.0, 5.0], [math.nan, 3.0]]), np.array([[2.0, math.nan], [9.0, 6.0]])
    assert paired_ratio(values, base, name="x").mean == pytest.approx((1.0 + 3.0) / (2.0 + 6.0))
    assert math.isnan(paired_ratio(values, np.zeros((2, 2)), name="x").mean)


def test_simultaneous_limits_are_student_s_with_bonferroni() -> None:
    """One column with mean 2, s 1 and n 3 has the lower limit 2 - 2.920 / sqrt(3); with two, t is 4.303."""
    column = np.array([[1.0], [2.0], [3.0]])
    (one,) = simultaneous_limits(column)
    assert (one.mean, one.n) == (2.0, 3)
    assert one.limit == pytest.approx(2.0 - 2.91999 / math.sqrt(3), abs=1e-4)
    both = simultaneous_limits(np.repeat(column, 2, axis=1), upper=True)
    assert [found.limit for found in both] == pytest.approx([2.0 + 4.30265 / math.sqrt(3)] * 2, abs=1e-4)


def test_simultaneous_limits_hold_together() -> None:
    """In 400 runs with ten scenarios of noise, a limit is beyond the truth in about one of twenty."""
    noise = stream(6, "test").standard_normal((400, 5, 10))
    wrong = sum(any(found.limit > 0.0 for found in simultaneous_limits(one)) for one in noise)
    assert 0.02 * 400 < wrong < 0.08 * 400


def test_a_limit_needs_two_observations() -> None:
    """Unknown values are skipped; one observation has a mean and no limit, none has neither."""
    one, none = simultaneous_limits(np.array([[1.0, math.nan], [math.nan, math.nan]]))
    assert (one.mean, one.n, none.n) == (1.0, 1, 0)
    assert math.isnan(one.limit)
    assert math.isnan(none.mean)


def test_without_skew_or_gain_the_limit_of_harm_is_student_s() -> None:
    """Losses symmetric about their mean have the limit of Student's t."""
    losses = np.array([[0.1], [0.2], [0.3], [0.4]])
    (ours,), (student,) = capped_limits(losses, 0.05), simultaneous_limits(losses, upper=True)
    assert (ours.mean, ours.n) == (student.mean, student.n)
    assert ours.limit == pytest.approx(student.limit)


@given(
    gains=st.lists(st.floats(0.0, 1.0), min_size=20, max_size=60),
    columns=st.integers(1, 25),
    cap=st.floats(0.001, 0.1),
)
def test_gains_alone_never_exceed_their_cap(gains: list[float], columns: int, cap: float) -> None:
    """Twenty seeds without a loss have a limit within the cap, however large and rare their gains are."""
    matrix = np.repeat(-np.array(gains)[:, None], columns, axis=1)
    for found in capped_limits(matrix, cap):
        assert found.mean - 1e-12 <= found.limit <= cap


@given(losses=st.lists(st.floats(-1.0, 1.0), min_size=2, max_size=40), cap=st.floats(0.0, 0.1))
def test_the_limit_of_harm_is_above_the_mean_of_all_gains(losses: list[float], cap: float) -> None:
    """Capping gains raises the mean, and the limit lies above it; a column with one seed has none."""
    (found,) = capped_limits(np.array(losses)[:, None], cap)
    assert found.mean == pytest.approx(np.mean(losses))
    assert found.limit >= found.mean - 1e-9
    (alone, none) = capped_limits(np.array([[1.0, math.nan], [math.nan, math.nan]]), cap)
    assert (alone.n, none.n) == (1, 0)
    assert math.isnan(alone.limit)


def test_hall_s_cubic_is_inverted() -> None:
    """For the losses 0, 0 and 0.3 the corrected quantile passes through Hall's cubic back to Student's."""
    losses = np.array([[0.0], [0.0], [0.3]])
    (found,) = capped_limits(losses, 0.05)
    reached = (found.mean - found.limit) / float(losses.std(ddof=1))
    skewness = math.sqrt(3.0)
    cubic = reached + skewness * reached**2 / 3.0 + skewness**2 * reached**3 / 27.0 + skewness / 18.0
    assert cubic == pytest.approx(-2.91999 / math.sqrt(3), abs=1e-4)
