"""Laws of the health number and of the escalation policy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.compiled import CompiledContract, Level
from contracts.documents.contract import Refinement
from contracts.health import health, recommend, relative_excess

LEVELS = (1, 1, 2, 2, 3, 3)
FAMILIES = ("N", "R", "N", "S", "R", "O")


def contract(
    weight: tuple[float, ...] = (1.0,) * 6, tau1: float = 0.5, tau2: float = 2.0
) -> CompiledContract:
    """Six clauses, two per level, on one slice."""
    clauses = len(LEVELS)
    whole, real = np.zeros(clauses, dtype=np.int64), np.zeros(clauses)
    return CompiledContract(
        name="six",
        sha256="",
        slices=("all",),
        clause_ids=tuple(f"c{i}" for i in range(clauses)),
        family=FAMILIES,
        source=whole,
        column=whole,
        edge=whole,
        threshold=real,
        sense=real + 1.0,
        is_rate=np.zeros(clauses, dtype=np.bool_),
        rate_limit=real,
        clip=real + np.inf,
        budget=real,
        hard=np.zeros(clauses, dtype=np.bool_),
        level=np.array(LEVELS, dtype=np.int64),
        weight=np.array(weight),
        applies=np.ones((clauses, 1), dtype=np.bool_),
        guard_threshold=tau1,
        fallback_threshold=tau2,
        window_s=60.0,
        min_samples=30,
        alarm_confidence=0.999,
        shed_when_uncertified=True,
        ejection_cap_ratio=0.5,
        stale_after_s=30.0,
        slo_ms=np.full((1, 3), np.inf),
        priority=np.zeros(1, dtype=np.int64),
    )


alarms = st.lists(st.booleans(), min_size=6, max_size=6)
excesses = st.lists(st.floats(-2.0, 1e12), min_size=6, max_size=6)


def judge(alarm: list[bool], excess: list[float], terms: CompiledContract) -> tuple[float, int]:
    """H and level of one (kernel, slice)."""
    value, level = health(np.array([alarm]), np.array([excess]), terms)
    return float(value[0]), int(level[0])


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
def test_no_alarm_no_health(alarm: list[bool], excess: list[float]) -> None:
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
    """Up to half the room below a threshold H is sum omega phi itself."""
    value, _ = judge(
        [True, True, *[False] * 4], [first, second, 0, 0, 0, 0], contract((1.0, 0.25, 1, 1, 1, 1))
    )
    assert value == pytest.approx(first + 0.25 * second, abs=1e-12)


@given(st.floats(0.01, 1e4), st.floats(1.01, 10.0), st.sampled_from([0, 2, 4]))
def test_ranks_within_a_level(excess: float, factor: float, clause: int) -> None:
    """Of two kernels at the same level the one further out has the larger H."""
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
def test_bending_neither_jumps_nor_exceeds_the_sum(excess: float, step: float) -> None:
    """Below a threshold H is at most the sum; a step of the sum moves H up by no more than the step."""
    alarm = [True, *[False] * 5]
    near, far = (judge(alarm, [value] * 6, contract())[0] for value in (excess, excess + step))
    assert near <= excess + 1e-12
    assert -1e-12 <= far - near <= step + 1e-12


@given(st.integers(0, 2**32), st.integers(1, 5), st.integers(1, 4))
def test_batch_changes_nothing(seed: int, batch: int, kernels: int) -> None:
    """Every fleet of a batch gets bit for bit what it gets alone."""
    rng = np.random.default_rng(seed)
    alarm = rng.random((batch, kernels, 1, 6)) < 0.5
    excess = rng.lognormal(size=(batch, kernels, 1, 6))
    together, level = health(alarm, excess, contract())
    assert together.shape == level.shape == (batch, kernels, 1)
    for fleet in range(batch):
        alone, _ = health(alarm[fleet : fleet + 1], excess[fleet : fleet + 1], contract())
        assert alone.tobytes() == together[fleet : fleet + 1].tobytes()


def test_clauses_off_the_slice_do_not_count() -> None:
    """An alarm of a clause that does not name the slice leaves H at 0."""
    terms = contract()
    terms.applies[:] = False
    assert judge([True] * 6, [1.0] * 6, terms) == (0.0, Level.NORMAL)


def test_relative_excess_is_one_sided() -> None:
    """Excess is the overshoot as a share of the threshold, 0 on the good side, NaN as 0."""
    value = np.array([0.3, 0.1, 0.7, np.nan, 0.3])
    threshold = np.array([0.2, 0.2, 0.8, 0.2, 0.0])
    found = relative_excess(value, threshold, np.array([1.0, 1.0, -1.0, 1.0, 1.0]))
    np.testing.assert_allclose(found, [0.5, 0.0, 0.125, 0.0, 0.3])


REFINEMENTS = (
    Refinement(family="N", level="L2", action="higher_precision_kernel", reason="numbers drift"),
    Refinement(family="S", level="L2", action="other_decoding_strategy", reason="behaviour drifts"),
    Refinement(family="O", level="L3", action="rollback", reason="cannot be observed"),
)


@pytest.mark.parametrize(
    ("alarm", "action", "clause"),
    [
        ([0, 0, 0, 0, 0, 0], None, ""),
        ([1, 0, 0, 0, 0, 0], "probe_more", "c0"),
        ([1, 0, 1, 0, 0, 0], "higher_precision_kernel", "c2"),
        ([0, 0, 0, 1, 0, 0], "other_decoding_strategy", "c3"),
        ([0, 0, 0, 0, 1, 0], "fallback", "c4"),
        ([1, 1, 1, 1, 1, 1], "rollback", "c5"),
    ],
)
def test_escalation_follows_family_and_level(alarm: list[int], action: str | None, clause: str) -> None:
    """The most severe clause picks the action, its family refines it, observability goes first."""
    excess = np.array([1.0, 1.0, 1.0, 1.0, 9.0, 0.1])
    found = recommend(np.array(alarm, dtype=np.bool_), excess, contract(), REFINEMENTS)
    assert (found.action, found.clause_id) == (action, clause)
