"""Conditions and status of a promotion. Pure."""

from __future__ import annotations

from typing import Any

from contracts.assess.gate import GateOutcome
from contracts.loading.loader import document_sha256
from controller.promotion.kept import kept_values
from controller.promotion.records import PromotionStage, PromotionState, mirrored_ratio, most_ratio
from k8s.operator.admission import Documents
from k8s.operator.promotion.admission import PromotionAdmission
from k8s.operator.promotion.records import Attempt, kernel_sha256
from k8s.operator.status.conditions import ResourceCondition, condition

#: Fixed condition messages for reasons whose own message changes at every tick; status.message has that one.
_STEADY = {
    "Judging": "the candidate is judged; status.message says how far it is",
    "Guarded": "an L2 clause is in alarm: its share is held down and its window begins anew",
}
#: Reasons that wait for a webhook instead of an approval.
_BY_WEBHOOK = ("AwaitingConfirmation", "VetoUnknown")


def promotion_conditions(
    judged: PromotionAdmission, attempt: Attempt | None
) -> tuple[ResourceCondition, ...]:
    """All conditions of a promotion. ``attempt`` None: it is not in force."""
    heads = (judged.accepted, judged.resolved)
    if attempt is None:
        message = "it is not in force; see Accepted and ResolvedRefs"
        return (*heads, condition("Promoted", False, "NotRunning", message))
    state = attempt.state
    return (*heads, _promoted(state), _progressing(state), _degraded(state))


def _promoted(state: PromotionState) -> ResourceCondition:
    if state.verdict is GateOutcome.SUCCESSFUL:
        return condition("Promoted", True, "Successful", state.message)
    if state.verdict is not None:
        return condition("Promoted", False, str(state.verdict), f"{state.reason}: {state.message}")
    return condition("Promoted", False, "Pending", f"it stands in stage {state.stage}")


def _progressing(state: PromotionState) -> ResourceCondition:
    if state.waits_for is not None:
        reason = state.reason if state.reason in _BY_WEBHOOK else "AwaitingApproval"
        return condition("Progressing", False, reason, state.message)
    moving = state.verdict is None and state.stage is not PromotionStage.ROLLED_BACK
    if not moving:
        return condition("Progressing", False, str(state.stage), f"it stays in stage {state.stage}")
    return condition("Progressing", True, str(state.stage), _STEADY.get(state.reason, f"stage {state.stage}"))


def _degraded(state: PromotionState) -> ResourceCondition:
    if state.stage is PromotionStage.ROLLED_BACK:
        return condition("Degraded", True, state.reason, state.message)
    if state.guarded:
        return condition("Degraded", True, "ClauseInAlarm", _STEADY["Guarded"])
    if state.verdict in (GateOutcome.FAILED, GateOutcome.ERROR):
        return condition("Degraded", True, state.reason, state.message)
    return condition("Degraded", False, "Compliant", "the candidate breaks nothing that is known")


def promotion_body(attempt: Attempt, documents: Documents | None) -> dict[str, Any]:
    """Status fields other than conditions: the stored state, weights, and hashes of kernel and contract."""
    body = kept_values(attempt.state) | {
        "mostWeight": most_ratio(attempt.state, attempt.terms),
        "mirrored": mirrored_ratio(attempt.state, attempt.terms),
    }
    if attempt.told:
        body["told"] = attempt.told
    if documents is not None and attempt.candidate in {one.name for one in documents.pool.spec.kernels}:
        body["kernel"] = kernel_sha256(attempt.document, documents)
        body["contract"] = document_sha256(documents.contract)
    return body


def change_key(attempt: Attempt) -> list[str]:
    """The part of the status whose changes are written at once."""
    state = attempt.state
    shown = (state.subject, state.stage, state.verdict, state.reason, state.guarded, attempt.told)
    return [str(one) for one in shown]
