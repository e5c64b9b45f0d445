"""Servers that end are started again with growing pauses, and given up when they never run."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from live.fleet.server import RestartRule

RULE = RestartRule(first_s=0.5, factor=2.0, longest_s=4.0, steady_s=60.0, most=4)


@given(failures=st.integers(1, 40))
def test_pauses_grow_to_a_longest_one_and_end(failures: int) -> None:
    """Pauses never shrink; after the largest number of consecutive ends there is none."""
    wait_s = RULE.wait_s(failures)
    if failures > RULE.most:
        assert wait_s is None
    else:
        assert wait_s is not None
        assert RULE.first_s <= wait_s <= RULE.longest_s
        assert wait_s >= (RULE.wait_s(failures - 1) or 0.0)


@given(before=st.integers(0, 40), ran_s=st.floats(0.0, 1e6))
def test_a_steady_run_forgives_what_was_before(before: int, ran_s: float) -> None:
    """Only consecutive ends count: after a steady run an end is the first one again."""
    assert RULE.failures(before, ran_s) == (1 if ran_s >= RULE.steady_s else before + 1)
