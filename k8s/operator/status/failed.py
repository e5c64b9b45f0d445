"""Turns that failed: an exception in one policy's turn is shown in its status and does not stop the others.

The status of the last successful turn would still say that all is well, so the conditions that operators and
alerts rely on are overwritten.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from k8s.operator.objects import Manifest
from k8s.operator.status.conditions import ResourceCondition, condition
from k8s.operator.status.log_fields import fields
from k8s.operator.status.publisher import Publication

_LOG = logging.getLogger(__name__)

#: Reason of the conditions of a policy whose turn failed.
TURN_FAILED = "TurnFailed"
#: Status fields that a publication sets itself.
_BESIDE = ("conditions", "observedGeneration")


class TurnFailures:
    """The policies and other resources that failed during the current turn."""

    def __init__(self) -> None:
        self.now: dict[str, str] = {}
        """Policy -> the error that its turn raised."""
        self.others: dict[str, str] = {}
        """Any other resource, or all of one kind -> the error raised while its status was made."""

    def begin(self) -> None:
        """Start a new turn: forget earlier failures."""
        self.now = {}
        self.others = {}

    @contextmanager
    def guarded(self, policy: str) -> Iterator[None]:
        """Catch and record any exception in the turn of ``policy``, so that the other policies go on."""
        try:
            yield
        except Exception as error:
            _LOG.exception("policy %s: the turn failed, its route stays", policy, extra=fields(policy=policy))
            self.now[policy] = f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"

    @contextmanager
    def told(self, what: str) -> Iterator[None]:
        """Catch and record any exception while the status of ``what`` is made; its old status stays."""
        try:
            yield
        except Exception as error:
            _LOG.exception("%s: its status was not made", what)
            self.others[what] = f"{type(error).__name__}"


def failed_turn_conditions(told: str) -> tuple[ResourceCondition, ...]:
    """Conditions of a policy while its turns fail with error ``told``; they replace the former ones."""
    held = f"the turn failed ({told}); the route stays as it is"
    return (
        condition("Ready", False, TURN_FAILED, held),
        condition("TelemetryFresh", False, TURN_FAILED, f"nothing was decided on what was seen: {held}"),
        condition("Degraded", True, TURN_FAILED, f"{held}; see the operator's log"),
    )


def failed_publication(found: Manifest, told: str) -> Publication:
    """Status of policy ``found`` after a turn that failed with ``told``; other conditions and fields stay."""
    status = found.get("status") or {}
    worse = failed_turn_conditions(told)
    changed = {one.type for one in worse}
    kept = [_read(one) for one in status.get("conditions") or [] if one["type"] not in changed]
    body = {key: one for key, one in status.items() if key not in _BESIDE}
    return Publication(about=found, conditions=(*kept, *worse), body=body, key=told)


def _read(found: Mapping[str, Any]) -> ResourceCondition:
    return ResourceCondition(
        type=found["type"], status=found["status"], reason=found["reason"], message=found["message"]
    )
