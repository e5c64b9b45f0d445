"""What an answer loses where soft clauses are broken: weighted excess over the fallback threshold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from contracts.telemetry import Source
from controller.judge.kernels.judge_pass import KernelStanding
from controller.judge.kernels.loss import answer_loss
from tests.support.fleets.builders import Clause, make_contract, make_layout

LAYOUT = make_layout(kernels=2, slices=2, per_kernel=1)
SOFT = Clause(name="soft", hard=False, level=3, weight=0.5)
OTHER = Clause(name="other", hard=False, level=2, weight=1.5, slices=(0,))
HARD = Clause(name="hard", hard=True, level=3)
CONTRACT = make_contract(LAYOUT, (SOFT, OTHER, HARD), fallback_threshold=2.0)
NONE_DOWN = np.zeros((1, 2), dtype=np.bool_)
NOTHING_LOST = np.zeros((1, 2, 2))


def standing(condemned: np.ndarray) -> KernelStanding:
    """Standing of kernels with ``condemned`` [B, K, S, C] where no kernel is down."""
    hard = np.asarray((condemned & CONTRACT.hard).any(axis=3))
    return KernelStanding(
        condemned=condemned, hard_violated=hard, certified=np.asarray(~condemned.any(axis=3))
    )


@given(st.integers(0, 2**32))
def test_it_is_the_weighted_excess_over_the_fallback_threshold(seed: int) -> None:
    """Soft clauses in alarm that apply to the slice count; a hard one in alarm costs the whole answer."""
    rng = np.random.Generator(np.random.PCG64(seed))
    alarm = (rng.random((1, 2, 2, 3)) < 0.5) & CONTRACT.applies.T
    excess = np.where(alarm, rng.exponential(1.0, alarm.shape), 0.0)
    loss = answer_loss(alarm, excess, standing(alarm), NONE_DOWN, NOTHING_LOST, CONTRACT)
    if loss is None:
        assert not alarm.any()
        return
    soft = alarm[..., :2].copy()
    expected = (np.where(soft, excess[..., :2], 0.0) * [0.5, 1.5]).sum(axis=3) / 2.0
    only_soft = ~alarm[..., 2]
    np.testing.assert_allclose(loss[only_soft], expected[only_soft], atol=1e-12)
    assert (loss[~only_soft] >= 1.0).all()


def test_a_condemned_clause_without_a_measurement_costs_the_whole_answer() -> None:
    """A clause that is condemned and not in alarm, and a kernel that is down, cost the whole answer."""
    alarm = np.zeros((1, 2, 2, 3), dtype=np.bool_)
    condemned = alarm.copy()
    condemned[0, 0, 0, 0] = True
    found = answer_loss(alarm, np.zeros(alarm.shape), standing(condemned), NONE_DOWN, NOTHING_LOST, CONTRACT)
    assert found is not None
    assert found[0].tolist() == [[1.0, 0.0], [0.0, 0.0]]
    down = answer_loss(alarm, np.zeros(alarm.shape), standing(condemned), ~NONE_DOWN, NOTHING_LOST, CONTRACT)
    assert down is not None
    assert (down >= 1.0).all()


def test_a_clause_keeps_its_last_loss_while_nothing_is_measured() -> None:
    """A condemned clause without observations costs what it cost when last measured."""
    alarm = np.zeros((1, 2, 2, 3), dtype=np.bool_)
    condemned = alarm.copy()
    condemned[0, 0, 0, 0] = True
    before = np.full((1, 2, 2), 0.25)
    found = answer_loss(alarm, np.zeros(alarm.shape), standing(condemned), NONE_DOWN, before, CONTRACT)
    assert found is not None
    assert found[0].tolist() == [[0.25, 0.0], [0.0, 0.0]]


@given(st.floats(0.02, 1.0), st.booleans())
def test_failures_cost_no_more_than_what_fails(share: float, is_rate: bool) -> None:
    """However far beyond the limit of 2 %, an attempt loses at most the share of attempts that fail."""
    clause = Clause(name="failed", source=Source.FAILED, threshold=0.02, hard=False, level=3, weight=50.0)
    clause = replace(clause, threshold=0.5, rate_limit=0.02) if is_rate else clause
    contract = make_contract(LAYOUT, (clause,), fallback_threshold=2.0)
    alarm = np.ones((1, 2, 2, 1), dtype=np.bool_)
    excess = np.full(alarm.shape, share / 0.02 - 1.0)
    judged = KernelStanding(condemned=alarm, hard_violated=~alarm[..., 0], certified=~alarm[..., 0])
    loss = answer_loss(alarm, excess, judged, NONE_DOWN, NOTHING_LOST, contract)
    assert loss is not None
    weighed = min(50.0 * (share / 0.02 - 1.0) / 2.0, share)
    np.testing.assert_allclose(loss, weighed, atol=1e-9)


@given(st.floats(0.06, 1.0), st.floats(0.06, 1.0))
def test_late_answers_lose_less_than_everything(late: float, first_late: float) -> None:
    """Far beyond both limits of 5 %, all clauses on latency together cost nine tenths of the larger share."""
    clauses = tuple(
        Clause(
            name=name,
            source=Source.LATENCY,
            column=column,
            threshold=2000.0,
            rate_limit=0.05,
            hard=False,
            level=2,
            weight=50.0,
        )
        for column, name in enumerate(("latency", "ttft"))
    )
    contract = make_contract(LAYOUT, clauses, fallback_threshold=2.0)
    alarm = np.ones((1, 2, 2, 2), dtype=np.bool_)
    excess = np.broadcast_to(np.array([late, first_late]) / 0.05 - 1.0, alarm.shape)
    judged = KernelStanding(condemned=alarm, hard_violated=~alarm[..., 0], certified=~alarm[..., 0])
    loss = answer_loss(alarm, excess, judged, NONE_DOWN, NOTHING_LOST, contract)
    assert loss is not None
    np.testing.assert_allclose(loss, 0.9 * max(late, first_late), atol=1e-9)
    assert (loss < 1.0).all()


@given(st.floats(0.01, 50.0), st.floats(0.0, 1.0))
def test_slow_steps_cost_no_more_than_late_answers(slow: float, late: float) -> None:
    """However slow: nine tenths of the late share, or nine tenths where that share is unknown."""
    clock = Clause(name="clock", source=Source.STEP_TIME, threshold=1.4, hard=False, level=2, weight=50.0)
    lateness = Clause(
        name="late",
        source=Source.LATENCY,
        threshold=2000.0,
        rate_limit=0.05,
        hard=False,
        level=2,
        weight=50.0,
    )
    contract = make_contract(LAYOUT, (replace(clock, rate_limit=None), lateness), fallback_threshold=2.0)
    told = late > 0.06
    alarm = np.broadcast_to(np.array([True, told]), (1, 2, 2, 2))
    excess = np.broadcast_to(np.array([slow, late / 0.05 - 1.0 if told else 0.0]), alarm.shape)
    judged = KernelStanding(condemned=alarm, hard_violated=~alarm[..., 0], certified=~alarm[..., 0])
    loss = answer_loss(alarm, excess, judged, NONE_DOWN, NOTHING_LOST, contract)
    assert loss is not None
    assert (loss <= 0.9 * (late if told else 1.0) + 1e-9).all()
    assert (loss > 0.0).all()
