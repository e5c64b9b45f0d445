"""Status schemas: conditions as metav1.Condition, and the fields that each kind adds.

Keys are camel case, as is usual for status in Kubernetes; specs keep the keys of the files.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

from contracts.assess.gate import GateOutcome
from controller.promotion.records import PromotionStage
from faults.drill.outcome import DrillVerdict

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_COUNT: Schema = {"type": "integer", "format": "int64", "minimum": 0}
_NUMBER: Schema = {"type": "number", "format": "double"}


class DrillPhase(StrEnum):
    """Phase of a FaultDrill in its status; every writer of a phase uses these values."""

    PENDING = "Pending"  # cannot run at present
    STEADY = "Steady"  # steady state is measured before any injection
    INJECTING = "Injecting"
    UNDOING = "Undoing"
    HEALING = "Healing"  # faults are undone; waits until the fleet is as before
    DONE = "Done"


def drill_verdict_text(verdict: DrillVerdict) -> str:
    """``verdict`` as written in status and conditions."""
    return str(verdict).capitalize()


def _object(description: str, required: tuple[str, ...], **properties: Schema) -> Schema:
    found: Schema = {"type": "object", "description": description, "properties": properties}
    return {**found, "required": list(required)} if required else found


def _described(schema: Schema, description: str) -> Schema:
    return {**schema, "description": description}


def _texts(description: str) -> Schema:
    return {"type": "array", "description": description, "items": _TEXT, "x-kubernetes-list-type": "atomic"}


def _one_of(values: Iterable[str], description: str) -> Schema:
    return {**_TEXT, "enum": [str(one) for one in values], "description": description}


def _listed(item: Schema, description: str) -> Schema:
    """Schema of a list of records keyed by name, which a patch can change one by one."""
    return {
        "type": "array",
        "description": description,
        "items": item,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
    }


_CONDITION = _object(
    "One observation of the resource's state, as metav1.Condition.",
    ("type", "status", "lastTransitionTime", "reason", "message"),
    type=_described({**_TEXT, "maxLength": 316}, "What is observed, for example Ready."),
    status=_described({**_TEXT, "enum": ["True", "False", "Unknown"]}, "Whether it is so."),
    reason=_described({**_TEXT, "minLength": 1, "maxLength": 1024}, "Why, in one word for machines."),
    message=_described({**_TEXT, "maxLength": 32768}, "Why, and what to do, for people."),
    lastTransitionTime=_described({**_TEXT, "format": "date-time"}, "When the status last changed."),
    observedGeneration=_described(_COUNT, "Generation of the spec that this was seen of."),
)

_CONDITIONS: Schema = {
    "type": "array",
    "description": "What is so and what is not, one of each type.",
    "items": _CONDITION,
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["type"],
}

_POOL_KERNEL = _object(
    "One kernel as it serves now.",
    ("name",),
    name=_described(_TEXT, "As in the spec."),
    ready=_described(_COUNT, "Replicas in rotation."),
    weight=_described(_NUMBER, "Share of all offered requests, 0 to 1."),
    health=_described(_NUMBER, "Worst contract health H over its slices; 0 is without excess."),
    clause=_described(_TEXT, "Clause in alarm that weighs most; empty: none."),
)

_BACKEND_WEIGHT = _object(
    "One kernel's part of a slice.",
    ("name", "weight"),
    name=_described(_TEXT, "Kernel."),
    weight=_described(_NUMBER, "0 to 1."),
)

_ROUTE_SLICE = _object(
    "One slice as it is routed now.",
    ("name",),
    name=_described(_TEXT, "As in the contract."),
    kernel=_described(_TEXT, "Kernel with the largest weight."),
    weight=_described(_NUMBER, "Its weight, 0 to 1."),
    shed=_described(_NUMBER, "Share that is refused with 429, 0 to 1."),
    weights=_listed(_BACKEND_WEIGHT, "Every kernel's weight."),
)

_DECISION = _object(
    "One turn that moved weights or replicas.",
    ("at", "told"),
    at=_described({**_TEXT, "format": "date-time"}, "When."),
    told=_described({**_TEXT, "maxLength": 1024}, "What moved and why, a line each."),
    moved=_texts("Slices whose weights moved."),
    forCapacity=_texts("Those of them that moved for capacity alone."),
)

#: Kept state of a promotion, from which a restarted operator continues (``controller.promotion.kept``).
_PROMOTION: dict[str, Schema] = {
    "stage": _one_of(PromotionStage, "How far it was let in."),
    "verdict": _one_of(GateOutcome, "How it ended; absent: not decided yet."),
    "reason": _described(_TEXT, "Why it stands there, in one word."),
    "message": _described(_TEXT, "Why it stands there, and what to do, for people."),
    "mostWeight": _described(_NUMBER, "Largest share of a slice that it may take now, 0 to 1."),
    "mirrored": _described(_NUMBER, "Share of requests that is mirrored to it now, 0 to 1."),
    "judgedAt": _described(_NUMBER, "Last tick, in seconds of the operator's clock."),
    "judgedSeconds": _described(_NUMBER, "Judged time in this stage."),
    "compliantSeconds": _described(_NUMBER, "Judged time since it last broke anything."),
    "probes": {
        "type": "array",
        "description": "Answered probes in that time, slice by slice.",
        "items": _described(_COUNT, "Of one slice, in the contract's order."),
    },
    "answers": _described(_COUNT, "Requests that its servers finished in that time."),
    "guarded": _described({"type": "boolean"}, "An L2 clause is in alarm, and its share is held down."),
    "waitsFor": _described(_TEXT, "Stage that needs an approval or an answer of webhooks now."),
    "subject": _described(_TEXT, "Hash of build, contract and terms: what approvals name."),
    "told": _described(_TEXT, "Newest change that webhooks were told of, or that was given up."),
    "kernel": _described(_TEXT, "Hash of the candidate's entry in the pool."),
    "contract": _described(_TEXT, "Hash of the contract that it is judged by."),
    "evidence": _described(_TEXT, "Hash of the offline evidence."),
}

#: Status fields of each kind besides conditions and ``observedGeneration``.
_OWN: dict[str, dict[str, Schema]] = {
    "KernelContract": {
        "sha256": _described(_TEXT, "Hash of the canonical document, the same for file and cluster."),
    },
    "KernelPool": {
        "kernels": _listed(_POOL_KERNEL, "Kernels as they serve now."),
        "weights": _described(_TEXT, "Their shares of all offered requests, as fp8 0.7, bf16 0.3."),
        "worstKernel": _described(_TEXT, "Kernel of the worst health; empty: none has any excess."),
        "worstHealth": _described(_NUMBER, "Worst contract health H of any kernel; 0 is without excess."),
        "worstClause": _described(_TEXT, "Clause in alarm of that kernel that weighs most; empty: none."),
    },
    "RoutePolicy": {
        "driving": _described(_TEXT, "Policy whose proposals are routed: the chosen one or the fallback."),
        "version": _described(_COUNT, "Of the table in force; counts tables that differ."),
        "slices": _listed(_ROUTE_SLICE, "Slices as they are routed now."),
        "kernels": _described(_TEXT, "Each slice with its largest kernel, as prose fp8, numbers bf16."),
        "weights": _described(
            _TEXT, "Each slice with its shares, as prose: fp8 0.7, bf16 0.3; numbers: bf16 1."
        ),
        "decisions": {
            "type": "array",
            "description": "Newest turns that moved anything, newest first; selvage explain shows them.",
            "items": _DECISION,
            "x-kubernetes-list-type": "atomic",
        },
    },
    "FaultDrill": {
        "phase": _one_of(DrillPhase, "How far it is."),
        "verdict": _one_of((drill_verdict_text(one) for one in DrillVerdict), "How it ended."),
        "report": _described(_TEXT, "Where the report lies."),
    },
    "KernelPromotion": _PROMOTION,
}


def status_schema(kind: str) -> Schema:
    """Schema of ``status`` of resource ``kind``."""
    common = {
        "observedGeneration": _described(_COUNT, "Generation of the spec that this status is about."),
        "conditions": _CONDITIONS,
    }
    return _object("Written by the operator alone.", (), **common, **_OWN[kind])
