"""The laws of a promotion whose stages are confirmed, and may be vetoed, by webhooks."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given

from contracts.assess.gate import GateOutcome
from controller.promotion.machine import step
from controller.promotion.records import PromotionSight, PromotionStage, PromotionTerms
from tests.support.fleets.promotion_courses import (
    BEGUN,
    all_terms,
    asked_courses,
    moved_on,
    passed,
    plain_terms,
    quick_terms,
    walked,
)


@given(asked_courses, quick_terms)
def test_a_confirmed_stage_is_entered_only_with_its_confirmation(
    course: list[PromotionSight], terms: PromotionTerms
) -> None:
    """A stage that webhooks confirm is entered in a tick that has the confirmation."""
    for before, sight, after in walked(course, terms):
        if moved_on(before, after) and after.stage in terms.confirms:
            assert after.stage in sight.confirmed


@given(asked_courses, quick_terms)
def test_an_unknown_veto_is_neither_consent_nor_veto(
    course: list[PromotionSight], terms: PromotionTerms
) -> None:
    """A stage that may be vetoed is left only without an objection, and silence alone never rolls back."""
    for before, sight, after in walked(course, terms):
        if moved_on(before, after) and before.stage in terms.vetoes:
            assert before.stage in sight.unopposed
        if not (sight.refused or sight.broken or sight.withdrawn):
            rolled = after.stage is PromotionStage.ROLLED_BACK
            assert rolled == (before.stage is PromotionStage.ROLLED_BACK)


@given(asked_courses, all_terms)
def test_a_veto_rolls_back_only_from_its_stages(course: list[PromotionSight], terms: PromotionTerms) -> None:
    """A veto ends the attempt in a stage that asks for vetoes, and has no effect elsewhere."""
    for before, sight, after in walked(course, terms):
        if not sight.refused or before.stage is PromotionStage.ROLLED_BACK:
            continue
        if before.stage not in terms.vetoes:
            assert after == step(before, replace(sight, refused=""), terms)
            continue
        assert (after.stage, after.verdict) == (PromotionStage.ROLLED_BACK, GateOutcome.FAILED)
        if not (sight.broken or sight.withdrawn):
            assert after.reason == "Vetoed"
            assert sight.refused in after.message


@given(asked_courses, all_terms)
def test_without_webhooks_their_answers_are_ignored(
    course: list[PromotionSight], terms: PromotionTerms
) -> None:
    """Terms without webhooks take the same steps, whatever an observation says of any."""
    plain = replace(terms, confirms=frozenset(), vetoes=frozenset())
    none: frozenset[PromotionStage] = frozenset()
    silent = [replace(one, confirmed=none, unopposed=none, refused="", held_up_by="") for one in course]
    assert [one[2] for one in walked(course, plain)] == [one[2] for one in walked(silent, plain)]


def test_approval_and_webhooks_are_waited_for_together() -> None:
    """It waits for every gate; the message names what is missing and what hooks said; no deadline runs."""
    stage = frozenset({PromotionStage.FULL})
    terms = replace(plain_terms(gates=stage), confirms=stage, vetoes=frozenset({PromotionStage.CANARY}))
    sight = PromotionSight(now_s=1.0, probes=(1, 1), offline=passed(), held_up_by="confirm tests: HTTP 503")
    canary = replace(BEGUN, stage=PromotionStage.CANARY, judged_at_s=1000.0)
    last = walked([sight] * 200, terms, canary)[-1][2]
    assert (last.reason, last.waits_for) == ("AwaitingApproval", PromotionStage.FULL)
    for said in (f"full@{'a' * 12}", "not confirmed", "while a veto may come", "confirm tests: HTTP 503"):
        assert said in last.message
    here = replace(sight, now_s=last.judged_at_s or 0.0, approved=stage)
    assert step(last, here, terms).reason == "AwaitingConfirmation"
    confirmed = replace(here, confirmed=stage)
    assert step(last, confirmed, terms).reason == "VetoUnknown"
    unopposed = replace(confirmed, unopposed=frozenset({PromotionStage.CANARY}))
    assert step(last, unopposed, terms).stage is PromotionStage.FULL
