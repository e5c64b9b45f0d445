"""The laws of a promotion, for any sequence of observations."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.assess.gate import GateOutcome
from contracts.compiled.contract import Level
from contracts.errors import StateError
from controller.promotion.kept import kept_values, state_of
from controller.promotion.machine import MOST_GAP_S, shortfall, step
from controller.promotion.records import (
    NEXT_STAGE,
    PromotionSight,
    PromotionStage,
    PromotionTerms,
    mirrored_ratio,
    most_ratio,
)
from tests.support.fleets.promotion_courses import (
    BEGUN,
    all_terms,
    courses,
    moved_on,
    passed,
    plain_terms,
    walked,
)


@given(courses, all_terms)
def test_no_stage_is_skipped(course: list[PromotionSight], terms: PromotionTerms) -> None:
    """A tick keeps the stage, enters the next one, or rolls back; nothing else."""
    for before, _, after in walked(course, terms):
        allowed = {before.stage, NEXT_STAGE.get(before.stage), PromotionStage.ROLLED_BACK}
        assert after.stage in allowed


@given(courses, all_terms)
def test_no_candidate_is_full_without_the_window(course: list[PromotionSight], terms: PromotionTerms) -> None:
    """It was a canary without breaks for a whole observed window, with all samples required."""
    since_s, probes, answers, last_s = 0.0, [0, 0], 0, None
    for before, sight, after in walked(course, terms):
        dt = 0.0 if last_s is None else sight.now_s - last_s
        last_s = sight.now_s
        fresh = after.stage is PromotionStage.CANARY and before.stage is not PromotionStage.CANARY
        if sight.guarded or sight.broken or fresh:
            since_s, probes, answers = 0.0, [0, 0], 0
        elif before.stage is PromotionStage.CANARY and sight.seen and sight.carried:
            since_s += dt if 0.0 <= dt <= MOST_GAP_S else 0.0
            probes = [old + new for old, new in zip(probes, sight.probes, strict=True)]
            answers += sight.answers
        if after.stage is PromotionStage.FULL and before.stage is not PromotionStage.FULL:
            assert before.stage is PromotionStage.CANARY
            assert before.verdict is None
            assert since_s >= terms.canary.stability_s - 1e-6
            assert min(probes) >= terms.canary.least_probes
            assert answers >= terms.canary.least_answers


@given(courses, all_terms)
def test_a_break_always_rolls_back(course: list[PromotionSight], terms: PromotionTerms) -> None:
    """A broken L3 or hard clause rolls back from every stage that serves requests, and ends the attempt."""
    for before, sight, after in walked(course, terms):
        meets = before.stage not in (PromotionStage.OFFLINE, PromotionStage.ROLLED_BACK)
        if meets and (sight.broken or sight.withdrawn):
            assert after.stage is PromotionStage.ROLLED_BACK
            assert after.verdict is GateOutcome.FAILED
        if before.stage is PromotionStage.ROLLED_BACK:
            assert after == before


@given(courses, all_terms)
def test_an_inconclusive_end_promotes_nothing(course: list[PromotionSight], terms: PromotionTerms) -> None:
    """After an inconclusive end only a rollback follows, and no user is served meanwhile."""
    for before, _, after in walked(course, terms):
        if before.paused and before.stage is not PromotionStage.OFFLINE:
            assert after.stage in (before.stage, PromotionStage.ROLLED_BACK)
            assert most_ratio(before, terms) == 0.0
            assert mirrored_ratio(before, terms) == 0.0
        if after.verdict is GateOutcome.SUCCESSFUL:
            assert after.stage is PromotionStage.FULL


@given(courses, all_terms)
def test_offline_needs_a_success(course: list[PromotionSight], terms: PromotionTerms) -> None:
    """Only a successful evaluation lets a candidate serve requests; the other verdicts are kept apart."""
    for before, sight, after in walked(course, terms):
        if before.stage is PromotionStage.OFFLINE and not sight.withdrawn and sight.offline is not None:
            if sight.offline.outcome is not GateOutcome.SUCCESSFUL:
                assert after.stage is PromotionStage.OFFLINE
                assert after.verdict is sight.offline.outcome
            if after.stage is PromotionStage.SHADOW:
                assert sight.carried


@given(courses, all_terms)
def test_a_gate_is_passed_only_with_its_approval(course: list[PromotionSight], terms: PromotionTerms) -> None:
    """A gated stage is entered in a tick that has its approval."""
    for before, sight, after in walked(course, terms):
        if moved_on(before, after) and after.stage in terms.gates:
            assert after.stage in sight.approved


@given(courses, all_terms)
def test_the_share_is_bounded_by_the_stage(course: list[PromotionSight], terms: PromotionTerms) -> None:
    """No share before the canary, at most its cap there, at most the guard's while guarded."""
    for _, _, after in walked(course, terms):
        most = most_ratio(after, terms)
        if after.stage is PromotionStage.CANARY:
            assert most <= (terms.guard_ratio if after.guarded else terms.canary_ratio)
        elif after.stage is not PromotionStage.FULL:
            assert most == 0.0
        assert (mirrored_ratio(after, terms) > 0.0) == (
            after.stage is PromotionStage.SHADOW and not after.paused
        )


@given(courses, all_terms, st.integers(0, 59))
def test_a_restart_continues(course: list[PromotionSight], terms: PromotionTerms, at: int) -> None:
    """A state stored as JSON and read again takes the same later steps."""
    whole = [after for _, _, after in walked(course, terms)]
    cut = min(at, len(course) - 1)
    state = state_of(json.loads(json.dumps(kept_values(whole[cut]))))
    assert state == whole[cut]
    for before, sight, after in walked(course, terms)[cut + 1 :]:
        assert step(state_of(kept_values(before)), sight, terms) == after


def test_a_calm_course_is_promoted_stage_by_stage() -> None:
    """A candidate that keeps its contract passes every stage and is still judged at the end."""
    sight = PromotionSight(now_s=1.0, probes=(1, 1), offline=passed())
    ticks = walked([sight] * 30, plain_terms())
    stages = list(dict.fromkeys(after.stage for _, _, after in ticks))
    assert stages == [PromotionStage.SHADOW, PromotionStage.CANARY, PromotionStage.FULL]
    last = ticks[-1][2]
    assert last.verdict is GateOutcome.SUCCESSFUL
    broken = step(last, replace(sight, now_s=2000.0, level=Level.FALLBACK), plain_terms())
    assert (broken.stage, broken.verdict) == (PromotionStage.ROLLED_BACK, GateOutcome.FAILED)


def test_too_few_samples_end_inconclusive() -> None:
    """A stage without its least samples is inconclusive at the deadline, and the message says why."""
    sight = PromotionSight(now_s=1.0, probes=(1, 0), offline=passed())
    last = walked([sight] * 80, plain_terms())[-1][2]
    assert (last.stage, last.verdict) == (PromotionStage.SHADOW, GateOutcome.INCONCLUSIVE)
    assert "0 of 4 probes on every slice" in last.message


def test_a_guard_restarts_the_window() -> None:
    """An L2 alarm lowers the canary's share and restarts its window; afterwards it continues."""
    sight = PromotionSight(now_s=1.0, probes=(1, 1), offline=passed())
    canary = replace(BEGUN, stage=PromotionStage.CANARY, judged_at_s=1000.0)
    ticks = walked([sight] * 4 + [replace(sight, level=Level.GUARD)] + [sight] * 4, plain_terms(), canary)
    assert most_ratio(ticks[4][2], plain_terms()) == 0.01
    assert ticks[4][2].reason == "Guarded"
    assert ticks[-1][2].stage is PromotionStage.CANARY
    assert ticks[-1][2].compliant_s == pytest.approx(4.0)
    assert shortfall(ticks[-1][2], plain_terms().canary)


def test_a_gate_waits_without_a_deadline() -> None:
    """A candidate that has met all conditions waits for its approval without a limit."""
    terms = plain_terms(gates=frozenset({PromotionStage.FULL}))
    sight = PromotionSight(now_s=1.0, probes=(1, 1), offline=passed())
    canary = replace(BEGUN, stage=PromotionStage.CANARY, judged_at_s=1000.0)
    last = walked([sight] * 200, terms, canary)[-1][2]
    assert (last.stage, last.reason) == (PromotionStage.CANARY, "AwaitingApproval")
    assert f"full@{'a' * 12}" in last.message
    approved = replace(sight, now_s=last.judged_at_s or 0.0, approved=frozenset({PromotionStage.FULL}))
    assert step(last, approved, terms).stage is PromotionStage.FULL


@pytest.mark.parametrize(
    "change",
    [{"stage": "Almost"}, {"compliantSeconds": -1.0}, {"judgedAt": "now"}, {"subject": 7}, {"probes": None}],
)
def test_a_torn_state_is_refused(change: dict[str, object]) -> None:
    """An invalid stored state is refused, and never taken for progress."""
    with pytest.raises(StateError, match="begins again"):
        state_of({**kept_values(BEGUN), **change})
    with pytest.raises(StateError):
        state_of({})
