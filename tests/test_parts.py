"""The test command runs every test once, and fails where either of its runs does."""

from __future__ import annotations

import pytest

from tests import parts
from tests.conftest import ALONE, PARTS


@pytest.mark.parametrize(
    ("codes", "joined"),
    [((0, 0), 0), ((0, 5), 0), ((5, 0), 0), ((5, 5), 5), ((1, 0), 1), ((0, 1), 1), ((5, 1), 1), ((2,), 2)],
)
def test_one_bad_run_is_a_bad_result(codes: tuple[int, ...], joined: int) -> None:
    """No tests in one of the runs is no failure; none in both is."""
    assert parts.joined(codes) == joined


def test_the_two_runs_leave_nothing_out() -> None:
    """One selects what the other leaves."""
    assert parts.SHARED[:2] == ("-m", "not alone")
    assert parts.OWN == ("-m", "alone")
    assert set(PARTS) >= ALONE
