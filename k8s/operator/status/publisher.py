"""Writes status and Events: at once after a change, otherwise seldom, and never because of its own writes."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from contracts.loading.files import canonical_sha256
from k8s.operator.objects import Cluster, ClusterError, EventNote, Manifest
from k8s.operator.status.conditions import ResourceCondition, as_json, transitions
from k8s.operator.status.log_fields import fields

_LOG = logging.getLogger(__name__)

#: Log levels for conditions: ordinary ones, and problems.
_LEVELS = (logging.INFO, logging.WARNING)
#: Minimum interval between writes of numbers that drift while no condition changes.
REST_S = 60.0
#: A status that the server rejects, for example because its CRD is of another version, is tried again after
#: this interval or when it has changed.
REFUSED_S = 10.0
#: Burst of Events about one object, and seconds per further Event: the limits of client-go.
EVENTS_AT_ONCE = 25
EVENT_EACH_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """The status to publish for one resource."""

    about: Manifest
    """The resource as last returned by the server."""
    conditions: tuple[ResourceCondition, ...]
    body: dict[str, Any]
    """Status fields other than conditions."""
    key: Any = None
    """The part of ``body`` whose changes are written at once."""


@dataclass(slots=True)
class _Last:
    status: dict[str, Any]
    change: str
    written_at_s: float


@dataclass(slots=True)
class _Events:
    """Rate limit for Events about one object, so that a condition that changes at every tick does not flood
    the cluster. Every change is logged in any case.
    """

    left: float = float(EVENTS_AT_ONCE)
    seen_at_s: float = float("-inf")
    untold: int = 0

    def takes(self, now_s: float) -> bool:
        """Whether one more Event may be written now; counts it."""
        passed_s = max(0.0, now_s - self.seen_at_s)
        self.left, self.seen_at_s = min(float(EVENTS_AT_ONCE), self.left + passed_s / EVENT_EACH_S), now_s
        if self.left < 1.0:
            self.untold += 1
            return False
        self.left -= 1.0
        return True


class Publisher:
    """Publishes status for one operator. ``tick_s``: minimum interval between two writes of one status."""

    def __init__(self, cluster: Cluster, tick_s: float = 1.0) -> None:
        self._cluster, self._tick_s = cluster, tick_s
        self._last: dict[str, _Last] = {}
        self._events: dict[str, _Events] = {}
        self._refused: dict[str, tuple[str, float]] = {}
        """Uid -> the change that the server refused, and when."""
        self.writes = 0
        """Number of status writes."""
        self.problem = ""
        """Error of the last status write, "" if it succeeded and no status stands refused."""
        self.events_problem = ""
        """Error of the last Event, "" if it was written."""

    def say(self, found: Publication, now_s: float) -> bool:
        """Write the status of ``found`` if that is due; returns whether it was written. An error is kept in
        ``problem``.

        Events are written after the status and tried once; an Event that fails is lost.
        """
        metadata = found.about["metadata"]
        uid = str(metadata.get("uid", "")) or f"{found.about['kind']}/{metadata['name']}"
        last = self._last.get(uid)
        old = (found.about.get("status") or {}).get("conditions") or [] if last is None else _list(last)
        generation = int(metadata.get("generation", 1))
        conditions = as_json(found.conditions, old, generation, _rfc3339(now_s))
        status = {"observedGeneration": generation, "conditions": conditions, **found.body}
        change = canonical_sha256([generation, [_essence(one) for one in conditions], found.key])
        refused, refused_at_s = self._refused.get(uid, ("", 0.0))
        if change == refused and now_s - refused_at_s < REFUSED_S:
            return False
        if not self._due(last, status, change, now_s):
            return False
        try:
            self._cluster.write_status(found.about, status)
        except ClusterError as error:
            self.problem = _said_once(self.problem, str(error), "status")
            if error.refused:
                self._refused[uid] = change, now_s
            return False
        self._refused.pop(uid, None)
        self.problem = self.problem if self._refused else ""
        self.writes += 1
        self._last[uid] = _Last(status=status, change=change, written_at_s=now_s)
        self._tell(found, old, self._events.setdefault(uid, _Events()), now_s)
        return True

    def forget(self, uids: Sequence[str]) -> None:
        """Forget all resources except ``uids``."""
        kept = set(uids)
        self._last = {uid: last for uid, last in self._last.items() if uid in kept}
        self._events = {uid: told for uid, told in self._events.items() if uid in kept}
        self._refused = {uid: refused for uid, refused in self._refused.items() if uid in kept}

    def _due(self, last: _Last | None, status: dict[str, Any], change: str, now_s: float) -> bool:
        if last is None:
            return True
        passed_s = now_s - last.written_at_s
        if change != last.change:
            return passed_s >= 0.9 * self._tick_s
        return status != last.status and passed_s >= REST_S

    def _tell(self, found: Publication, old: Sequence[dict[str, Any]], events: _Events, now_s: float) -> None:
        """Write transitions as log lines and Events. After one Event failed, no more are tried for this
        status. The rate limit ``events`` applies; the next Event after it says how many were left out.
        """
        refused = False
        for one in transitions(found.conditions, old):
            each = one.condition
            reason = f"{each.type}{each.reason}" if each.status == "True" else f"Not{each.type}{each.reason}"
            message = f"{each.type} is {each.status}: {each.message}"
            kind, name = found.about["kind"], found.about["metadata"]["name"]
            about = fields(kind=kind, name=name, condition=each.type, status=each.status, reason=each.reason)
            _LOG.log(_LEVELS[each.bad], "%s %s: %s", kind, name, message[:1024], extra=about)
            if refused or not events.takes(now_s):
                continue
            untold = f" ({events.untold} changes before it have no Event)" if events.untold else ""
            message, events.untold = f"{message[: 1024 - len(untold)]}{untold}", 0
            note = EventNote(about=found.about, reason=reason[:128], message=message, warning=each.bad)
            refused = not self._noted(note)

    def _noted(self, event: EventNote) -> bool:
        try:
            self._cluster.note(event)
        except ClusterError as error:
            self.events_problem = _said_once(self.events_problem, str(error), "Events")
            return False
        self.events_problem = ""
        return True


def _said_once(before: str, problem: str, what: str) -> str:
    """Return ``problem``; log it if it differs from ``before``."""
    if problem != before:
        _LOG.warning("%s not written: %s", what, problem)
    return problem


def _list(last: _Last) -> list[dict[str, Any]]:
    return list(last.status["conditions"])


def _essence(found: dict[str, Any]) -> list[str]:
    return [found["type"], found["status"], found["reason"], found["message"]]


def _rfc3339(now_s: float) -> str:
    return datetime.fromtimestamp(now_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
