"""The health number: laws of the compiled function, which must agree with its plain twin."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.compiled.contract import CompiledContract, Level
from contracts.compiled.health import bounded_excess, excess_of, health_of, relative_excess
from tests.reference.plain_health import health
from tests.support.fleets.builders import Clause, make_contract, make_layout

LEVELS = (1, 1, 2, 2, 3, 3)
FAMILIES = ("N", "R", "N", "S", "R", "O")


def contract(
    weight: tuple[float, ...] = (1.0,) * 6, tau1: float = 0.5, tau2: float = 2.0
) -> CompiledContract:
    """Six clauses, two per level, on one slice."""
    rows = zip(FAMILIES, LEVELS, weight, strict=True)
    clauses = [Clause(family=family, level=level, weight=each) for family, level, each in rows]
    layout = make_layout(kernels=1, slices=1, per_kernel=1)
    return make_contract(layout, tuple(clauses), guard_threshold=tau1, fallback_threshold=tau2)


alarms = st.lists(st.booleans(), min_size=6, max_size=6)
excesses = st.lists(st.floats(-2.0, 1e12), min_size=6, max_size=6)


def judge(alarm: list[bool], excess: list[float], terms: CompiledContract) -> tuple[float, int]:
    """H and level of one (kernel, slice) by the compiled function."""
    sums, severest = np.zeros(3), 0
    for clause, severity in enumerate(LEVELS):
        if alarm[clause] and terms.applies[clause, 0]:
            severest = max(severest, severity)
            sums[severity - 1] += terms.weight[clause] * bounded_excess(excess[clause])
    value, level = health_of(sums, severest, terms.guard_threshold, terms.fallback_threshold)
    return float(value), int(level)


@given(alarms, excesses, st.floats(1e-3, 10.0), st.floats(1e-3, 10.0))
def test_compiled_law_is_the_plain_one(
    alarm: list[bool], excess: list[float], tau1: float, gap: float
) -> None:
    """The compiled function gives H and level of its plain twin, bit for bit."""
    terms = contract(tau1=tau1, tau2=tau1 + gap)
    value, level = health(np.array([alarm]), np.array([excess]), terms)
    assert judge(alarm, excess, terms) == (float(value[0]), int(level[0]))


@given(alarms, excesses, st.floats(1e-3, 10.0), st.floats(1e-3, 10.0))
def test_most_severe_alarm_decides(alarm: list[bool], excess: list[float], tau1: float, gap: float) -> None:
    """H >= tau2 exactly when an L3 clause is in alarm, >= tau1 exactly when an L2 or L3 clause is."""
    terms = contract(tau1=tau1, tau2=tau1 + gap)
    value, level = judge(alarm, excess, terms)
    worst = max((severity for severity, on in zip(LEVELS, alarm, strict=True) if on), default=0)
    assert (value >= tau1 + gap) == (worst == 3)
    assert (value >= tau1) == (worst >= 2)
    assert level == {0: Level.NORMAL, 1: Level.NORMAL, 2: Level.GUARD, 3: Level.FALLBACK}[worst]
    assert np.isfinite(value)


@given(alarms, excesses)
def test_without_an_alarm_health_is_zero(alarm: list[bool], excess: list[float]) -> None:
    """Without an alarm H is 0 whatever the excess, and it is never negative."""
    assert judge([False] * 6, excess, contract()) == (0.0, Level.NORMAL)
    assert judge(alarm, excess, contract())[0] >= 0.0


@given(alarms, excesses, st.integers(0, 5), st.floats(0.0, 1e6))
def test_monotone_in_alarms_and_excess(
    alarm: list[bool], excess: list[float], clause: int, more: float
) -> None:
    """Raising one excess or adding one alarm never lowers H."""
    base = judge(alarm, excess, contract())[0]
    worse = [value + more * (i == clause) for i, value in enumerate(excess)]
    assert judge(alarm, worse, contract())[0] >= base
    louder = [on or i == clause for i, on in enumerate(alarm)]
    assert judge(louder, excess, contract())[0] >= base


@given(st.floats(0.0, 0.2), st.floats(0.0, 0.2))
def test_small_sums_are_the_weighted_sum(first: float, second: float) -> None:
    """Up to half the headroom below a threshold H is sum omega phi itself."""
    value, _ = judge(
        [True, True, *[False] * 4], [first, second, 0, 0, 0, 0], contract((1.0, 0.25, 1, 1, 1, 1))
    )
    assert value == pytest.approx(first + 0.25 * second, abs=1e-12)


@given(st.floats(0.01, 1e4), st.floats(1.01, 10.0), st.sampled_from([0, 2, 4]))
def test_health_ranks_kernels_within_a_level(excess: float, factor: float, clause: int) -> None:
    """Of two kernels at the same level the one with the larger excess has the larger H."""
    alarm = [i == clause for i in range(6)]
    near = judge(alarm, [excess] * 6, contract())[0]
    assert judge(alarm, [excess * factor] * 6, contract())[0] > near


@given(st.floats(0.01, 10.0), st.sampled_from([0, 2, 4]), st.data())
def test_every_alarmed_clause_counts(excess: float, clause: int, data: st.DataObject) -> None:
    """At any level, one more alarmed clause of that level or below raises H."""
    alarm = [i == clause for i in range(6)]
    more = data.draw(st.integers(0, clause + 1).filter(lambda i: i != clause))
    louder = [on or i == more for i, on in enumerate(alarm)]
    assert judge(louder, [excess] * 6, contract())[0] > judge(alarm, [excess] * 6, contract())[0]


@given(st.floats(0.0, 2.0), st.floats(0.0, 1.0))
def test_bending_is_continuous_and_below_the_sum(excess: float, step: float) -> None:
    """Below a threshold H is at most the sum; a step of the sum raises H by no more than the step."""
    alarm = [True, *[False] * 5]
    near, far = (judge(alarm, [value] * 6, contract())[0] for value in (excess, excess + step))
    assert near <= excess + 1e-12
    assert -1e-12 <= far - near <= step + 1e-12


def test_clauses_off_the_slice_do_not_count() -> None:
    """An alarm of a clause that does not name the slice leaves H at 0."""
    terms = contract()
    terms.applies[:] = False
    assert judge([True] * 6, [1.0] * 6, terms) == (0.0, Level.NORMAL)


def test_relative_excess_is_the_overshoot_as_a_share_of_the_limit() -> None:
    """Positive beyond the limit on the bad side, negative inside, absolute where the limit is 0."""
    value = np.array([0.3, 0.1, 0.7, np.nan, 0.3])
    limit = np.array([0.2, 0.2, 0.8, 0.2, 0.0])
    sense = np.array([1.0, 1.0, -1.0, 1.0, 1.0])
    found = relative_excess(value, limit, sense)
    np.testing.assert_allclose(found, [0.5, -0.5, 0.125, np.nan, 0.3])
    alone = [excess_of(*each) for each in zip(value, limit, sense, strict=True)]
    assert np.array(alone).tobytes() == found.tobytes()


@pytest.mark.parametrize(("excess", "counted"), [(np.nan, 0.0), (-1.0, 0.0), (0.5, 0.5), (np.inf, 1e9)])
def test_counted_excess_is_finite_and_never_negative(excess: float, counted: float) -> None:
    """Unmeasured values and those inside the limit count as 0, and no excess counts more than 1e9."""
    assert bounded_excess(excess) == counted
