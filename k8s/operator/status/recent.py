"""The newest decisions of a policy, a few words each, for its status.

The evidence stands in the decision log; these are its headlines, and need no right to reach into a pod.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from controller.explain.moves import CAPACITY_ALONE, moves
from controller.options import ControllerSetup
from live.control.journal import turn_texts
from live.control.loop import Turn

#: Decisions that are kept, and characters of each.
MOST_RECENT, MOST_CHARACTERS = 10, 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentDecision:
    """One turn that moved weights or replicas. at: RFC 3339, UTC."""

    at: str
    told: str
    """What moved and why, a line each."""
    moved: tuple[str, ...] = ()
    """Slices whose weights moved."""
    for_capacity: tuple[str, ...] = ()
    """Of these, for capacity alone."""


class RecentDecisions:
    """Newest first."""

    def __init__(self) -> None:
        self._found: deque[RecentDecision] = deque(maxlen=MOST_RECENT)

    def turned(self, turn: Turn, setup: ControllerSetup) -> None:
        """Keep what ``turn`` moved, if anything."""
        decision = turn.decision
        if decision is None:
            return
        rotated = decision.quarantined[0] != turn.before.quarantined[0]
        if not (bool(decision.moved[0]) or bool(rotated.any())):
            return
        message = "\n".join(turn_texts(turn, setup)) or "weights or rotation changed"
        at = datetime.fromtimestamp(turn.at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        why = {one.slice: one.because for one in moves(turn.before, turn.after, decision, setup, 0, None)}
        alone = tuple(name for name, because in why.items() if because == CAPACITY_ALONE)
        self._found.appendleft(
            RecentDecision(at=at, told=message[:MOST_CHARACTERS], moved=tuple(why), for_capacity=alone)
        )

    def go_on(self, status: Mapping[str, Any]) -> None:
        """Take over what a leader before wrote into ``status``, where nothing is known yet."""
        if not self._found:
            self._found.extend(decisions_in(status))

    def plain(self) -> list[dict[str, Any]]:
        """As status holds them."""
        return [
            {"at": one.at, "told": one.told, "moved": list(one.moved), "forCapacity": list(one.for_capacity)}
            for one in self._found
        ]


def decisions_in(status: Mapping[str, Any]) -> Iterable[RecentDecision]:
    """The decisions that ``status`` of a RoutePolicy holds, newest first."""
    return [
        RecentDecision(
            at=str(one.get("at", "")),
            told=str(one.get("told", "")),
            moved=tuple(map(str, one.get("moved") or ())),
            for_capacity=tuple(map(str, one.get("forCapacity") or ())),
        )
        for one in status.get("decisions") or []
    ]
