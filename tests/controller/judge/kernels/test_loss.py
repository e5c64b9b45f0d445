"""What an answer loses where soft clauses are broken: health without its lifts, over the fallback
threshold.
"""

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
NOBODY_DOWN = np.zeros((1, 2), dtype=np.bool_)
NOTHING_LOST = np.zeros((1, 2, 2))


def standing(condemned: np.ndarray) -> KernelStanding:
    """What follows of ``condemned`` [B, K, S, C] where no kernel is down."""
    hard = np.asarray((condemned & CONTRACT.hard).any(axis=3))
    return KernelStanding(
        condemned=condemned, hard_violated=hard, certified=np.asarray(~condemned.any(axis=3))
    )


@given(st.integers(0, 2**32))
def test_it_is_the_weighted_excess_over_the_fallback_threshold(seed: int) -> None:
    """Of soft clauses in alarm that apply to the slice; a hard one in alarm costs at least the whole
    answer.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    alarm = (rng.random((1, 2, 2, 3)) < 0.5) & CONTRACT.applies.T
    excess = np.where(alarm, rng.exponential(1.0, alarm.shape), 0.0)
    loss = answer_loss(alarm, excess, standing(alarm), NOBODY_DOWN, NOTHING_LOST, CONTRACT)
    if loss is None:
        assert not alarm.any()
        return
    soft = alarm[..., :2].copy()
    expected = (np.where(soft, excess[..., :2], 0.0) * [0.5, 1.5]).sum(axis=3) / 2.0
    only_soft = ~alarm[..., 2]
    np.testing.assert_allclose(loss[only_soft], expected[only_soft], atol=1e-12)
    assert (loss[~only_soft] >= 1.0).all()


def test_what_nobody_measures_now_is_no_little() -> None:
    """A clause that is condemned and not in alarm, and a kernel that is down, cost the whole answer."""
    alarm = np.zeros((1, 2, 2, 3), dtype=np.bool_)
    condemned = alarm.copy()
    condemned[0, 0, 0, 0] = True
    found = answer_loss(
        alarm, np.zeros(alarm.shape), standing(condemned), NOBODY_DOWN, NOTHING_LOST, CONTRACT
    )
    assert found is not None
    assert found[0].tolist() == [[1.0, 0.0], [0.0, 0.0]]
    down = answer_loss(
        alarm, np.zeros(alarm.shape), standing(condemned), ~NOBODY_DOWN, NOTHING_LOST, CONTRACT
    )
    assert down is not None
    assert (down >= 1.0).all()


def test_a_cell_that_gets_better_is_no_worse_a_place() -> None:
    """What a condemned clause cost when it last told is what it costs while it tells nothing."""
    alarm = np.zeros((1, 2, 2, 3), dtype=np.bool_)
    condemned = alarm.copy()
    condemned[0, 0, 0, 0] = True
    before = np.full((1, 2, 2), 0.25)
    found = answer_loss(alarm, np.zeros(alarm.shape), standing(condemned), NOBODY_DOWN, before, CONTRACT)
    assert found is not None
    assert found[0].tolist() == [[0.25, 0.0], [0.0, 0.0]]


@given(st.floats(0.02, 1.0), st.booleans())
def test_failures_cost_no_more_than_what_fails(share: float, is_rate: bool) -> None:
    """However far beyond the limit of 2 %, an attempt that may fail is worth what of it does not."""
    clause = Clause(name="failed", source=Source.FAILED, threshold=0.02, hard=False, level=3, weight=50.0)
    clause = replace(clause, threshold=0.5, rate_limit=0.02) if is_rate else clause
    contract = make_contract(LAYOUT, (clause,), fallback_threshold=2.0)
    alarm = np.ones((1, 2, 2, 1), dtype=np.bool_)
    excess = np.full(alarm.shape, share / 0.02 - 1.0)
    judged = KernelStanding(condemned=alarm, hard_violated=~alarm[..., 0], certified=~alarm[..., 0])
    loss = answer_loss(alarm, excess, judged, NOBODY_DOWN, NOTHING_LOST, contract)
    assert loss is not None
    weighed = min(50.0 * (share / 0.02 - 1.0) / 2.0, share)
    np.testing.assert_allclose(loss, weighed, atol=1e-9)


@given(st.floats(0.06, 1.0), st.floats(0.06, 1.0))
def test_late_answers_are_worth_more_than_none(late: float, first_late: float) -> None:
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
    loss = answer_loss(alarm, excess, judged, NOBODY_DOWN, NOTHING_LOST, contract)
    assert loss is not None
    np.testing.assert_allclose(loss, 0.9 * max(late, first_late), atol=1e-9)
    assert (loss < 1.0).all()


@given(st.floats(0.01, 50.0), st.floats(0.0, 1.0))
def test_a_slow_clock_is_worth_no_less_than_late_answers(slow: float, late: float) -> None:
    """However slow: the share that is late, and nine tenths where nobody says how large that is."""
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
    loss = answer_loss(alarm, excess, judged, NOBODY_DOWN, NOTHING_LOST, contract)
    assert loss is not None
    assert (loss <= 0.9 * (late if told else 1.0) + 1e-9).all()
    assert (loss > 0.0).all()
