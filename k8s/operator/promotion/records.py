"""The record of one running promotion, and the terms in its resource. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, get_args

from contracts.documents import KernelPromotion
from contracts.documents.promotion import GatedStage, HookKind, StageSpec, Webhook
from contracts.loading.files import canonical_sha256
from contracts.loading.loader import document_sha256
from controller.promotion.records import (
    OfflineResult,
    PromotionStage,
    PromotionState,
    PromotionTerms,
    StageTerms,
)
from k8s.operator.admission import Documents

#: Annotation of a promotion: STAGE@SUBJECT, comma separated; SUBJECT is at least the first twelve digits.
APPROVE = "selvage.dev/approve"
_SUBJECT_DIGITS = 12
_NOT_SUBJECT = {"description", "rollback", "webhooks"}
_STAGES = {stage.lower(): stage for stage in PromotionStage}


@dataclass(slots=True, kw_only=True)
class Attempt:
    """A promotion that is in force, with its current state."""

    uid: str  # of its resource
    document: KernelPromotion
    terms: PromotionTerms
    state: PromotionState
    approved: frozenset[PromotionStage] = frozenset()
    offline: OfflineResult | None = None
    read_at_s: float = float("-inf")
    """Time of the last read of the offline evidence."""
    queued: str = ""
    """Newest change queued for webhooks."""
    told: str = ""
    """Newest change that was delivered or given up."""

    @property
    def candidate(self) -> str:
        """Name of the promoted kernel."""
        return self.document.spec.candidate


def terms_of(document: KernelPromotion) -> PromotionTerms:
    """The terms of the promotion's state machine."""
    spec = document.spec
    return PromotionTerms(
        shadow=_stage(spec.shadow),
        canary=_stage(spec.canary),
        mirror_ratio=spec.shadow.mirror_ratio,
        canary_ratio=spec.canary.weight_ratio,
        guard_ratio=spec.canary.guard_ratio,
        gates=frozenset(_STAGES[one] for one in spec.manual_gates),
        confirms=_hooked(document, "confirm"),
        vetoes=_hooked(document, "veto"),
    )


def stages_of(hook: Webhook) -> frozenset[PromotionStage]:
    """Stages that ``hook`` opens or may veto."""
    return frozenset(_STAGES[one] for one in hook.stages or get_args(GatedStage))


def _hooked(document: KernelPromotion, kind: HookKind) -> frozenset[PromotionStage]:
    found = [stages_of(one) for one in document.spec.webhooks if one.kind == kind]
    return frozenset[PromotionStage]().union(*found)


def subject_of(document: KernelPromotion, documents: Documents) -> str:
    """Hash of the candidate's build, the promotion's terms and the contract. If it changes, the promotion
    starts again. Webhooks are excluded, so they may change during a promotion.
    """
    spec = document.spec.model_dump(mode="json", exclude_none=True, exclude=_NOT_SUBJECT)
    return canonical_sha256([spec, kernel_sha256(document, documents), document_sha256(documents.contract)])


def kernel_sha256(document: KernelPromotion, documents: Documents) -> str:
    """Hash of the candidate's build: its entry in the pool without what changes while it serves."""
    (kernel,) = (one for one in documents.pool.spec.kernels if one.name == document.spec.candidate)
    moving = {"replicas", "role", "stage", "zone", "zones", "capacity_rps"}
    return canonical_sha256(kernel.model_dump(mode="json", exclude_none=True, exclude=moving))


def approvals(annotations: dict[str, Any], subject: str) -> frozenset[PromotionStage]:
    """Stages approved for this subject; an approval of another subject does not count."""
    found = set()
    for one in str(annotations.get(APPROVE, "")).split(","):
        stage, _, about = one.strip().partition("@")
        if stage in _STAGES and len(about) >= _SUBJECT_DIGITS and subject.startswith(about):
            found.add(_STAGES[stage])
    return frozenset(found)


def change_of(name: str, attempt: Attempt, before: PromotionState) -> dict[str, Any]:
    """Entry of the decision log for a step from ``before``; empty if stage and verdict did not change."""
    state = attempt.state
    if (state.stage, state.verdict) == (before.stage, before.verdict):
        return {}
    return {
        "now_s": state.judged_at_s,
        "promotion": name,
        "candidate": attempt.candidate,
        "subject": state.subject,
        "before": str(before.stage),
        "stage": str(state.stage),
        "verdict": None if state.verdict is None else str(state.verdict),
        "reason": state.reason,
        "message": state.message,
        "evidence_sha256": state.evidence_sha256,
    }


def _stage(spec: StageSpec) -> StageTerms:
    return StageTerms(
        stability_s=spec.stability_s,
        least_probes=spec.least_probes,
        least_answers=spec.least_answers,
        deadline_s=spec.deadline_s,
    )
