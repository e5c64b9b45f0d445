"""Turns that failed: a policy whose turn raised, whatever it was, is unwell and does not stop the others.

What such a turn leaves behind is that of the last one that came through: its conditions would say that all is
well, so those that people and alerts look at are written anew.
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
#: Status besides conditions.
_BESIDE = ("conditions", "observedGeneration")


class TurnFailures:
    """Which policies failed at the turn under way."""

    def __init__(self) -> None:
        self.now: dict[str, str] = {}
        """Policy -> what its turn failed of."""
        self.others: dict[str, str] = {}
        """Any other resource, or all of one kind -> what its status failed of."""

    def begin(self) -> None:
        """Another turn."""
        self.now = {}
        self.others = {}

    @contextmanager
    def guarded(self, policy: str) -> Iterator[None]:
        """A bug in one policy must not stop the others."""
        try:
            yield
        except Exception as error:
            _LOG.exception("policy %s: the turn failed, its route stays", policy, extra=fields(policy=policy))
            self.now[policy] = f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"

    @contextmanager
    def told(self, what: str) -> Iterator[None]:
        """Nor must a bug in what is said of one resource: its status stays."""
        try:
            yield
        except Exception as error:
            _LOG.exception("%s: its status was not made", what)
            self.others[what] = f"{type(error).__name__}"


def failed_turn_conditions(told: str) -> tuple[ResourceCondition, ...]:
    """What is so while turns fail of ``told``, whatever was so before."""
    held = f"the turn failed ({told}); the route stays as it is"
    return (
        condition("Ready", False, TURN_FAILED, held),
        condition("TelemetryFresh", False, TURN_FAILED, f"nothing was decided on what was seen: {held}"),
        condition("Degraded", True, TURN_FAILED, f"{held}; see the operator's log"),
    )


def failed_publication(found: Manifest, told: str) -> Publication:
    """What is said of policy ``found`` after a turn that failed of ``told``: the rest of its status stays."""
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
