"""Confidence limits: exact where stated, and with the stated coverage elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, t

from contracts.assess.limits import (
    absolute_mean_limits,
    bootstrap_limits,
    mean_limits,
    observations_needed,
    quantile_place,
    rate_limits,
)
from contracts.rng import stream


@given(st.integers(1, 300), st.data())
def test_rate_limits_are_clopper_pearson(n: int, data: st.DataObject) -> None:
    """At either limit the observed count has exactly the allowed tail probability."""
    count = data.draw(st.integers(0, n))
    found = rate_limits(count, n, 0.95)
    assert found.low <= count / n <= found.high
    if count > 0:
        assert binom.sf(count - 1, n, found.low) == pytest.approx(0.05, rel=1e-6)
    if count < n:
        assert binom.cdf(count, n, found.high) == pytest.approx(0.05, rel=1e-6)


@given(st.integers(0, 2000), st.sampled_from([0.5, 0.9, 0.99]), st.sampled_from([0.95, 0.975]))
def test_quantile_place_is_the_first_that_covers(n: int, quantile: float, confidence: float) -> None:
    """At most that many values lie below the quantile with that confidence; one fewer is not enough."""
    place = quantile_place(n, quantile, confidence)
    assert place == (binom.ppf(confidence, n, quantile) if n else 0)


@given(st.floats(1e-3, 0.9), st.sampled_from([0.9, 0.95, 0.999]))
def test_observations_needed_is_the_fewest(rate: float, confidence: float) -> None:
    """That many clean observations show the rate, one fewer does not."""
    needed = observations_needed(rate, confidence)
    assert rate_limits(0, needed, confidence).high <= rate + 1e-12
    assert needed == 1 or rate_limits(0, needed - 1, confidence).high > rate - 1e-12


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=50))
def test_mean_limits_enclose_and_mirror(values: list[float]) -> None:
    """Limits are in order, and mirroring the values mirrors them."""
    data = np.array(values)
    found, mirrored = mean_limits(data, 0.95), mean_limits(-data, 0.95)
    assert found.low <= found.high
    assert mirrored.low == pytest.approx(-found.high, rel=1e-6, abs=1e-6)


@given(st.lists(st.floats(-100.0, 100.0), min_size=5, max_size=40, unique=True))
def test_limits_solve_halls_equation(values: list[float]) -> None:
    """At both limits Hall's transformed statistic equals the t quantile over root n."""
    data = np.array(values)
    found, n, spread = mean_limits(data, 0.95), len(values), data.std(ddof=1)
    skew = float((((data - data.mean()) / spread) ** 3).mean())
    reach = float(t.ppf(0.95, n - 1)) / np.sqrt(n)
    for limit, expected in ((found.low, reach), (found.high, -reach)):
        ratio = (data.mean() - limit) / spread
        moved = ratio + skew * ratio**2 / 3 + skew**2 * ratio**3 / 27 + skew / (6 * n)
        assert moved == pytest.approx(expected, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize(("kind", "least"), [("normal", 0.93), ("exponential", 0.92), ("lognormal", 0.89)])
def test_upper_limit_covers_the_mean_of_skewed_drifts(kind: str, least: float) -> None:
    """The 95 % upper limit of 40 values covers the true mean as often as its docstring states."""
    truth = {"normal": 0.0, "exponential": 1.0, "lognormal": float(np.exp(0.5))}[kind]
    rng = stream(5, "coverage", kind)
    drawn = getattr(rng, kind)(size=(2000, 40))
    covered = np.mean([mean_limits(row, 0.95).high >= truth for row in drawn])
    assert covered >= least


def test_limits_of_equal_values_and_of_one_value() -> None:
    """Equal values have no spread; one value has no limits."""
    assert mean_limits(np.full(5, 0.2), 0.95).high == pytest.approx(0.2)
    assert mean_limits(np.array([0.2]), 0.95).high == np.inf


def test_absolute_mean_limits_without_differences_are_those_of_the_share() -> None:
    """Without a differing pair the upper limit is that of the share; else |mean| lies inside."""
    silent = absolute_mean_limits(np.zeros(59), 0.95)
    assert (silent.value, silent.low) == (0.0, 0.0)
    assert silent.high == pytest.approx(1 - 0.05 ** (1 / 59))
    found = absolute_mean_limits(np.array([-1.0] * 30 + [0.0] * 30), 0.95)
    assert 0.0 < found.low < found.value == 0.5 < found.high


def test_bootstrap_is_repeatable() -> None:
    """Equal rows and names give equal limits, another name other ones."""
    rows = stream(1, "rows").random((30, 2))

    def mean_of(drawn: np.ndarray) -> float:
        return float(drawn.mean())

    assert bootstrap_limits(mean_of, rows, 0.95, "a") == bootstrap_limits(mean_of, rows, 0.95, "a")
    assert bootstrap_limits(mean_of, rows, 0.95, "a") != bootstrap_limits(mean_of, rows, 0.95, "b")
