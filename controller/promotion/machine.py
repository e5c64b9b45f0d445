"""One tick of a promotion: a pure function of its state, what is observed, and its terms.

The laws, each with a test:

* no stage is skipped, and one tick advances by at most one stage;
* a candidate becomes full only after a whole window of judged compliance as a canary, with the least samples;
* an L3 or hard clause rolls back from every stage that gets requests, whatever else holds;
* an inconclusive candidate is not promoted, and a later breach still rolls it back;
* a stage that webhooks confirm is entered only in a tick that sees the confirmation; a veto rolls back, and
  while the answer of a webhook with a veto is unknown, the stage is not left;
* time without telemetry or without control of the route counts neither for nor against the candidate;
* a restored state goes on as if there had been no interruption.
"""

from __future__ import annotations

from dataclasses import replace

from contracts.assess.gate import GateOutcome
from controller.promotion.records import (
    NEXT_STAGE,
    OfflineResult,
    PromotionSight,
    PromotionStage,
    PromotionState,
    PromotionTerms,
    StageTerms,
)

#: The time between two ticks further apart than this, in s, does not count: it was not judged.
MOST_GAP_S = 10.0


def step(state: PromotionState, sight: PromotionSight, terms: PromotionTerms) -> PromotionState:
    """The state after one tick in which ``sight`` was observed."""
    if state.stage is PromotionStage.ROLLED_BACK:
        return state
    passed_s = _passed_s(state, sight)
    state = replace(state, judged_at_s=sight.now_s)
    if sight.withdrawn:
        return _rolled_back(state, "Withdrawn", "spec.rollback asks for it")
    if state.stage is PromotionStage.OFFLINE:
        return _offline(state, sight, terms)
    if sight.broken:
        what = "a hard clause" if sight.hard_violated else "an L3 clause"
        return _rolled_back(state, "ContractBroken", f"the candidate broke {what} in stage {state.stage}")
    if sight.refused and state.stage in terms.vetoes:
        return _rolled_back(state, "Vetoed", f"in stage {state.stage}: {sight.refused}")
    state = _judged(state, sight, passed_s)
    if state.stage is PromotionStage.FULL or state.paused:
        return state
    return _forward(state, sight, terms)


def terms_of_stage(stage: PromotionStage, terms: PromotionTerms) -> StageTerms:
    """Terms of ``stage``, which is SHADOW or CANARY."""
    return terms.shadow if stage is PromotionStage.SHADOW else terms.canary


def shortfall(state: PromotionState, terms: StageTerms) -> str:
    """What the stage still lacks, for people; "" for nothing."""
    parts = []
    if state.compliant_s < terms.stability_s:
        parts.append(f"{state.compliant_s:.0f} of {terms.stability_s:g} s of judged compliance")
    if (fewest := min(state.probes, default=0)) < terms.least_probes:
        parts.append(f"{fewest} of {terms.least_probes} probes on every slice")
    if state.answers < terms.least_answers:
        parts.append(f"{state.answers} of {terms.least_answers} answers")
    return ", ".join(parts)


def _passed_s(state: PromotionState, sight: PromotionSight) -> float:
    """Judged time since the last tick, in s; 0 where the clock went back or the last tick is long ago."""
    if state.judged_at_s is None or not sight.carried:
        return 0.0
    passed_s = sight.now_s - state.judged_at_s
    return passed_s if 0.0 <= passed_s <= MOST_GAP_S else 0.0


def _offline(state: PromotionState, sight: PromotionSight, terms: PromotionTerms) -> PromotionState:
    found = sight.offline
    if found is None:
        return state
    state = replace(state, evidence_sha256=found.evidence_sha256)
    if found.outcome is not GateOutcome.SUCCESSFUL:
        return replace(
            state, verdict=found.outcome, reason=found.reason, message=found.message, waits_for=None
        )
    shown = replace(state, verdict=None, reason=found.reason, message=found.message)
    return _entered(shown, sight, terms) if sight.carried else _held(shown, found)


def _held(state: PromotionState, found: OfflineResult) -> PromotionState:
    message = f"{found.message}; the route is not written now, so it does not advance"
    return replace(state, reason="Held", message=message)


def _judged(state: PromotionState, sight: PromotionSight, passed_s: float) -> PromotionState:
    """State with time and samples of this tick; a guard restarts the window."""
    state = replace(state, judged_s=state.judged_s + passed_s, guarded=sight.guarded)
    if sight.guarded:
        return replace(state, compliant_s=0.0, probes=(), answers=0, waits_for=None)
    if not (sight.seen and sight.carried):
        return state
    before = state.probes if len(state.probes) == len(sight.probes) else (0,) * len(sight.probes)
    return replace(
        state,
        compliant_s=state.compliant_s + passed_s,
        probes=tuple(old + new for old, new in zip(before, sight.probes, strict=True)),
        answers=state.answers + sight.answers,
    )


def _forward(state: PromotionState, sight: PromotionSight, terms: PromotionTerms) -> PromotionState:
    """The next stage once nothing is lacking; inconclusive at the deadline; otherwise the present stage."""
    asked = terms_of_stage(state.stage, terms)
    lacking = shortfall(state, asked)
    if not (lacking or state.guarded) and sight.carried and sight.seen:
        return _entered(state, sight, terms)
    if state.waits_for is not None and not (lacking or state.guarded):
        return state
    if state.judged_s >= asked.deadline_s:
        why = "an L2 clause is in alarm" if state.guarded else f"there are only {lacking}"
        message = f"{why} after {state.judged_s:.0f} s in stage {state.stage}; set spec.attempt to try again"
        reason = "ClauseInAlarm" if state.guarded else "TooFewSamples"
        undecided = GateOutcome.INCONCLUSIVE
        return replace(state, verdict=undecided, reason=reason, message=message, waits_for=None)
    if state.guarded:
        return replace(state, reason="Guarded", message="an L2 clause is in alarm: its share is held down")
    if not sight.carried:
        return replace(state, reason="Held", message="the route is not written now, so no time counts")
    if not sight.seen:
        message = "telemetry is silent or no replica serves, so there is no evidence for the candidate"
        return replace(state, reason="Unseen", message=message)
    return replace(state, reason="Judging", message=f"so far {lacking}", waits_for=None)


def _entered(state: PromotionState, sight: PromotionSight, terms: PromotionTerms) -> PromotionState:
    """State in the next stage, or held before its gates."""
    stage = NEXT_STAGE[state.stage]
    if (held := _gated(state, sight, terms)) is not None:
        return held
    full = stage is PromotionStage.FULL
    message = "kept its contract for the whole window" if full else f"entered after stage {state.stage}"
    return replace(
        state,
        stage=stage,
        verdict=GateOutcome.SUCCESSFUL if full else None,
        reason="Successful" if full else "Entered",
        message=message,
        judged_s=0.0,
        compliant_s=state.compliant_s if full else 0.0,
        probes=state.probes if full else (),
        answers=state.answers if full else 0,
        waits_for=None,
    )


def _gated(state: PromotionState, sight: PromotionSight, terms: PromotionTerms) -> PromotionState | None:
    """State held before the next stage, while an approval or a webhook is missing; None: none is."""
    stage, lacking = NEXT_STAGE[state.stage], {}
    if stage in terms.gates and stage not in sight.approved:
        lacking["AwaitingApproval"] = f"needs the approval {stage.lower()}@{state.subject[:12]}"
    if stage in terms.confirms and stage not in sight.confirmed:
        lacking["AwaitingConfirmation"] = "is not confirmed"
    if state.stage in terms.vetoes and state.stage not in sight.unopposed:
        lacking["VetoUnknown"] = "is not entered while a veto may come"
    if not lacking:
        return None
    message = f"all is shown; stage {stage} {', and '.join(lacking.values())}"
    if sight.held_up_by and set(lacking) != {"AwaitingApproval"}:
        message = f"{message}: {sight.held_up_by}"
    return replace(state, reason=next(iter(lacking)), message=message, waits_for=stage)


def _rolled_back(state: PromotionState, reason: str, message: str) -> PromotionState:
    return replace(
        state,
        stage=PromotionStage.ROLLED_BACK,
        verdict=GateOutcome.FAILED,
        reason=reason,
        message=f"{message}; set spec.attempt to try again",
        guarded=False,
        waits_for=None,
    )
