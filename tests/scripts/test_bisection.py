"""The search for the highest rate, on known limits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from scripts.bisection import TOLERANCE, bisect_highest


@given(limit=st.floats(0.11, 4000.0), guess=st.floats(0.1, 1000.0))
def test_the_search_finds_the_limit_from_any_guess(limit: float, guess: float) -> None:
    """The found rate is good, and a little more is not."""
    found = bisect_highest(lambda rate: rate <= limit, guess)
    assert found <= limit <= found * (1.0 + TOLERANCE) * (1.0 + 1e-9)


def test_a_kernel_that_keeps_nothing_has_no_capacity() -> None:
    """If no rate is good the capacity is 0."""
    assert bisect_highest(lambda _: False, 4.0) == 0.0
