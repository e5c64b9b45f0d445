"""Quantiles without SciPy equal SciPy's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import bdtr, betainc, betaincinv, stdtrit

from contracts.assess.quantiles import (
    beta_quantile,
    binomial_place,
    binomial_share,
    incomplete_beta,
    student_quantile,
)

SHARES = st.sampled_from([0.01, 0.025, 0.05, 0.1, 0.5, 0.9, 0.95, 0.975, 0.999])


@given(st.floats(0.5, 2000.0), st.floats(0.5, 2000.0), st.floats(0.0, 1.0))
def test_incomplete_beta_is_scipys(a: float, b: float, x: float) -> None:
    """On both sides of the point where the continued fraction is swapped."""
    assert incomplete_beta(a, b, x) == pytest.approx(betainc(a, b, x), rel=1e-7, abs=1e-10)


@given(st.integers(1, 20_000), st.data(), SHARES)
def test_beta_quantiles_are_scipys(n: int, data: st.DataObject, share: float) -> None:
    """For every count among n observations, rarest and commonest included."""
    count = data.draw(st.integers(0, n - 1))
    found = beta_quantile(count + 1, n - count, share)
    assert found == pytest.approx(betaincinv(count + 1, n - count, share), rel=1e-8)


@given(st.integers(1, 5000), SHARES)
def test_student_quantiles_are_scipys(freedom: int, share: float) -> None:
    """Both tails and the middle."""
    assert student_quantile(freedom, share) == pytest.approx(stdtrit(freedom, share), rel=1e-8, abs=1e-12)


@given(st.integers(1, 300), st.floats(0.001, 0.999), st.data())
def test_binomial_shares_are_scipys(n: int, rate: float, data: st.DataObject) -> None:
    """The probability of at most that many events, and the first count that reaches a probability."""
    count = data.draw(st.integers(0, n - 1))
    assert binomial_share(count, n, rate) == pytest.approx(bdtr(count, n, rate), rel=1e-7, abs=1e-12)
    place = binomial_place(n, rate, 0.95)
    assert place == n or bdtr(place, n, rate) >= 0.95 - 1e-9
    assert place == 0 or bdtr(place - 1, n, rate) <= 0.95 + 1e-9
