"""A promotion's state as plain values, for a status or a file: what a restart goes on from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from contracts.assess.gate import GateOutcome
from contracts.errors import StateError
from controller.promotion.records import PromotionStage, PromotionState


def kept_values(state: PromotionState) -> dict[str, Any]:
    """``state`` without what is absent; keys as Kubernetes writes status."""
    found: dict[str, Any] = {
        "subject": state.subject,
        "stage": str(state.stage),
        "verdict": None if state.verdict is None else str(state.verdict),
        "reason": state.reason,
        "message": state.message,
        "judgedAt": state.judged_at_s,
        "judgedSeconds": state.judged_s,
        "compliantSeconds": state.compliant_s,
        "probes": list(state.probes),
        "answers": state.answers,
        "guarded": state.guarded,
        "waitsFor": None if state.waits_for is None else str(state.waits_for),
        "evidence": state.evidence_sha256,
    }
    return {key: value for key, value in found.items() if value is not None}


def state_of(kept: Mapping[str, Any]) -> PromotionState:
    """The state in ``kept``; StateError where it is none, and the promotion begins again."""
    try:
        verdict, waits = kept.get("verdict"), kept.get("waitsFor")
        at_s = kept.get("judgedAt")
        return PromotionState(
            subject=_text(kept["subject"]),
            stage=PromotionStage(kept["stage"]),
            verdict=None if verdict is None else GateOutcome(verdict),
            reason=_text(kept["reason"]),
            message=_text(kept["message"]),
            judged_at_s=None if at_s is None else _number(at_s),
            judged_s=_count(kept["judgedSeconds"]),
            compliant_s=_count(kept["compliantSeconds"]),
            probes=tuple(int(_count(one)) for one in kept["probes"]),
            answers=int(_count(kept["answers"])),
            guarded=bool(kept["guarded"]),
            waits_for=None if waits is None else PromotionStage(waits),
            evidence_sha256=_text(kept["evidence"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise StateError(f"expected a promotion as it was kept, got {error!r}; it begins again") from error


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is no text")
    return value


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise TypeError(f"{value!r:.40} is no number")
    return float(value)


def _count(value: object) -> float:
    if (number := _number(value)) < 0.0:
        raise ValueError(f"{number:g} is negative")
    return number
