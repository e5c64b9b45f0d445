"""Conditions of resources, as metav1.Condition: one observation each, with a reason and the next step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Status = Literal["True", "False", "Unknown"]

#: Condition types for which status True is a problem.
BAD_WHEN_TRUE = frozenset({"Degraded", "FallbackActive"})
#: Condition types that are never a problem: their events are not warnings.
NEUTRAL = frozenset({"Progressing"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceCondition:
    """One observation of a resource."""

    type: str
    status: Status
    reason: str
    message: str

    @property
    def bad(self) -> bool:
        """Whether the condition is a problem: its event is a warning."""
        return self.type not in NEUTRAL and self.status == ("True" if self.type in BAD_WHEN_TRUE else "False")


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """A condition that changed; becomes an Event."""

    condition: ResourceCondition
    before: str
    """Previous status, "" for a new condition."""


def condition(kind: str, holds: bool | None, reason: str, message: str) -> ResourceCondition:
    """``holds`` None: unknown."""
    status: Status = "Unknown" if holds is None else "True" if holds else "False"
    return ResourceCondition(type=kind, status=status, reason=reason, message=message)


def as_json(
    found: Sequence[ResourceCondition], old: Sequence[Mapping[str, Any]], generation: int, now: str
) -> list[dict[str, Any]]:
    """``found`` as stored in status. ``lastTransitionTime`` only changes if a condition's status changes.

    ``now``: RFC 3339, UTC.
    """
    before = {one["type"]: one for one in old}
    return [_one(each, before.get(each.type), generation, now) for each in found]


def _one(
    found: ResourceCondition, old: Mapping[str, Any] | None, generation: int, now: str
) -> dict[str, Any]:
    same = old is not None and old["status"] == found.status
    since = old["lastTransitionTime"] if same and old is not None else now
    return {
        "type": found.type,
        "status": found.status,
        "reason": found.reason,
        "message": found.message[:32768],
        "lastTransitionTime": since,
        "observedGeneration": generation,
    }


def transitions(
    found: Sequence[ResourceCondition], old: Sequence[Mapping[str, Any]]
) -> tuple[Transition, ...]:
    """Conditions whose status or reason changed."""
    before = {one["type"]: (one["status"], one["reason"]) for one in old}
    return tuple(
        Transition(condition=each, before=before.get(each.type, ("", ""))[0])
        for each in found
        if before.get(each.type) != (each.status, each.reason)
    )
