"""Failures that some members gather are theirs; one common rate is the kernel's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.special import comb

from contracts.rng import stream
from contracts.telemetry import Source
from controller.judge.failing_members import failing_members, gathered_by_chance
from tests.support.builders import make_contract, make_layout

LAYOUT = make_layout(kernels=1, slices=1, per_kernel=6)
CONTRACT = make_contract(LAYOUT)
FAILED = int(np.flatnonzero(CONTRACT.source == Source.FAILED)[0])
CHANCE = 1.0 - CONTRACT.alarm_confidence
DRAWS = 600


def found(count: np.ndarray[Any, Any], over: np.ndarray[Any, Any]) -> list[int]:
    """Members found of a kernel that is beyond its limit, after so many attempts and failures each."""
    sums = np.zeros((1, count.size, 1, len(CONTRACT.clause_ids), 4))
    sums[0, :, 0, FAILED] = np.stack([count, over, over, over], axis=-1)
    beyond = np.zeros((1, 1, 1, len(CONTRACT.clause_ids)), dtype=np.bool_)
    beyond[..., FAILED] = True
    case: Any = SimpleNamespace(setup=SimpleNamespace(contract=CONTRACT), owner=LAYOUT.replica_kernel)
    flags = failing_members(sums, np.ones((1, count.size), dtype=np.bool_), beyond, case)
    return [int(r) for r in np.flatnonzero(flags.any(axis=(0, 2, 3)))]


@pytest.mark.parametrize("rate", [0.03, 0.1, 0.3])
def test_one_common_rate_is_seldom_divided(rate: float) -> None:
    """Members were chosen by what they showed, and yet chance is kept: at most 1 in 100 draws, and noise."""
    rng, count = stream(5, "common"), np.full(6, 150)
    divided = sum(bool(found(count, rng.binomial(count, rate))) for _ in range(DRAWS))
    assert divided <= DRAWS * CHANCE + 4.0 * np.sqrt(DRAWS * CHANCE)


def test_members_that_fail_are_told_from_those_that_do_not() -> None:
    """Three of six fail a sixth of 100 attempts: in 19 of 20 draws at least exactly they are found."""
    rng, rates = stream(6, "two rates"), np.array([0.17, 0.0, 0.17, 0.0, 0.17, 0.0])
    right = sum(found(np.full(6, 100), rng.binomial(100, rates)) == [0, 2, 4] for _ in range(200))
    assert right >= 190


def test_all_alike_and_nobody_shown_divide_nothing() -> None:
    """Where everybody fails, or the others showed nothing, the failures are the kernel's."""
    assert found(np.full(6, 200), np.full(6, 40)) == []
    assert found(np.array([200, 200, 0, 0, 0, 0]), np.array([40, 40, 0, 0, 0, 0])) == []


@given(st.lists(st.tuples(st.integers(1, 60), st.floats(0.0, 1.0)), min_size=2, max_size=7), st.data())
def test_the_bound_is_fishers_tail_times_the_choices(drawn: list[tuple[int, float]], data: Any) -> None:
    """Against scipy's hypergeometric law."""
    count = np.array([n for n, _ in drawn], dtype=np.float64)
    over = np.floor(count * [share for _, share in drawn])
    fails = np.zeros(count.size, dtype=np.bool_)
    fails[: data.draw(st.integers(1, count.size - 1))] = True
    sums = np.stack([count, over, over, over], axis=-1)
    tail = stats.hypergeom.sf(over[fails].sum() - 1, count.sum(), over.sum(), count[fails].sum())
    expected = min(tail * comb(fails.size, fails.sum()) * (fails.size - 1), 1.0)
    np.testing.assert_allclose(gathered_by_chance(sums, fails), expected, rtol=1e-6, atol=1e-12)
