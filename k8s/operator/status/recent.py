"""Short texts of a policy's newest decisions, for its status.

The decision log has the evidence, but reading it needs access to the operator's pod; the status does not.
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

#: Number of decisions kept, and maximum characters of each.
MOST_RECENT, MOST_CHARACTERS = 10, 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentDecision:
    """One turn that moved weights or replicas. at: RFC 3339, UTC."""

    at: str
    told: str
    """What moved and why, one line per move."""
    moved: tuple[str, ...] = ()
    """Slices whose weights moved."""
    for_capacity: tuple[str, ...] = ()
    """The slices in ``moved`` that moved for capacity alone."""


class RecentDecisions:
    """The newest decisions of one policy, newest first."""

    def __init__(self) -> None:
        self._found: deque[RecentDecision] = deque(maxlen=MOST_RECENT)

    def turned(self, turn: Turn, setup: ControllerSetup) -> None:
        """Record ``turn`` if it moved weights or replicas."""
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
        """If no decision is known yet, take those that an earlier leader wrote into ``status``."""
        if not self._found:
            self._found.extend(decisions_in(status))

    def plain(self) -> list[dict[str, Any]]:
        """The decisions as stored in status."""
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
