"""Courses of a promotion drawn by Hypothesis, and their run through the machine."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from contracts.assess.gate import GateOutcome
from contracts.compiled.contract import Level
from controller.promotion.machine import step
from controller.promotion.records import (
    OfflineResult,
    PromotionSight,
    PromotionStage,
    PromotionState,
    PromotionTerms,
    StageTerms,
)

GATED = [PromotionStage.SHADOW, PromotionStage.CANARY, PromotionStage.FULL]
BEGUN = PromotionState(subject="a" * 64)


def passed(outcome: GateOutcome = GateOutcome.SUCCESSFUL) -> OfflineResult:
    """Result of the offline evidence."""
    return OfflineResult(outcome=outcome, reason=str(outcome), message="said by a test")


def plain_terms(gates: frozenset[PromotionStage] = frozenset()) -> PromotionTerms:
    """Short windows without gates."""
    stage = StageTerms(stability_s=5.0, least_probes=4, least_answers=0, deadline_s=60.0)
    return PromotionTerms(
        shadow=stage, canary=stage, mirror_ratio=0.05, canary_ratio=0.05, guard_ratio=0.01, gates=gates
    )


stage_terms = st.builds(
    StageTerms,
    stability_s=st.floats(1.0, 12.0),
    least_probes=st.integers(0, 8),
    least_answers=st.integers(0, 4),
    deadline_s=st.floats(12.0, 40.0),
)
all_terms = st.builds(
    PromotionTerms,
    shadow=stage_terms,
    canary=stage_terms,
    mirror_ratio=st.floats(0.01, 0.5),
    canary_ratio=st.floats(0.01, 0.5),
    guard_ratio=st.floats(0.0, 0.5),
    gates=st.frozensets(st.sampled_from(GATED)),
    confirms=st.frozensets(st.sampled_from(GATED)),
    vetoes=st.frozensets(st.sampled_from(GATED)),
)
#: Stages that are passed at once.
AT_ONCE = StageTerms(stability_s=0.1, least_probes=0, least_answers=0, deadline_s=60.0)
quick_terms = all_terms.map(lambda terms: replace(terms, shadow=AT_ONCE, canary=AT_ONCE))
results = st.builds(passed, st.sampled_from([GateOutcome.SUCCESSFUL] * 6 + list(GateOutcome))) | st.none()
calm = st.builds(
    PromotionSight,
    now_s=st.floats(0.5, 3.0),
    probes=st.just((2, 3)),
    answers=st.integers(0, 3),
    offline=st.just(passed()),
    approved=st.just(frozenset(GATED)),
    confirmed=st.just(frozenset(GATED)),
    unopposed=st.just(frozenset(GATED)),
)
rough = st.builds(
    PromotionSight,
    now_s=st.floats(-5.0, 30.0),
    carried=st.booleans(),
    seen=st.booleans(),
    level=st.sampled_from([Level.NORMAL] * 8 + [Level.GUARD, Level.FALLBACK]),
    hard_violated=st.sampled_from([False] * 9 + [True]),
    certified=st.sampled_from([True] * 5 + [False]),
    probes=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    answers=st.integers(0, 3),
    offline=results,
    approved=st.frozensets(st.sampled_from(GATED)),
    confirmed=st.frozensets(st.sampled_from(GATED)),
    unopposed=st.frozensets(st.sampled_from(GATED)),
    refused=st.sampled_from([""] * 9 + ["a hook said no"]),
    held_up_by=st.sampled_from(["", "a hook said nothing"]),
    withdrawn=st.sampled_from([False] * 20 + [True]),
)
#: All is well except for webhooks.
asked = st.builds(
    PromotionSight,
    now_s=st.floats(0.5, 3.0),
    probes=st.just((4, 4)),
    answers=st.just(3),
    offline=st.just(passed()),
    approved=st.just(frozenset(GATED)),
    confirmed=st.frozensets(st.sampled_from(GATED)),
    unopposed=st.frozensets(st.sampled_from(GATED)),
    refused=st.sampled_from([""] * 7 + ["a hook said no"]),
    held_up_by=st.sampled_from(["", "a hook said nothing"]),
)
#: Sights with ``now_s`` relative to the previous one.
courses = st.lists(st.one_of(calm, calm, calm, rough), min_size=1, max_size=60)
asked_courses = st.lists(st.one_of(calm, asked, asked, rough), min_size=10, max_size=60)


def walked(
    course: list[PromotionSight], terms: PromotionTerms, state: PromotionState = BEGUN
) -> list[tuple[PromotionState, PromotionSight, PromotionState]]:
    """Every tick of ``course``: before, seen, after."""
    now_s, found = 1000.0, []
    for one in course:
        now_s += one.now_s
        sight = replace(one, now_s=now_s)
        after = step(state, sight, terms)
        found.append((state, sight, after))
        state = after
    return found


def moved_on(before: PromotionState, after: PromotionState) -> bool:
    """Whether a tick entered the next stage."""
    return after.stage is not before.stage and after.stage is not PromotionStage.ROLLED_BACK
