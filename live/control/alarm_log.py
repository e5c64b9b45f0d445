"""Lines of text for alarms that begin and end, and for scrapes that report less than they could.

Alarms are those of clauses, whether or not they move traffic, and those of passive signals from users'
answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from controller.detect.clauses import moves_traffic
from controller.explain.tick import ClauseEvidence, explain
from controller.options import ControllerSetup
from live.control.loop import Turn
from live.observe.passive import PassiveAlarm, PassiveWatch

if TYPE_CHECKING:  # reading a log must not import the metrics readers
    from live.observe.scrape_notes import ScrapeNote, ScrapeWatch

Place = tuple[str, str, str]
_INFORMS = "; information, it moves nothing"


class AlarmTeller:
    """For each turn, tells which alarms began and which ended, by comparison with the turn before."""

    def __init__(
        self, setup: ControllerSetup, watch: PassiveWatch, scrapes: ScrapeWatch | None = None
    ) -> None:
        self._setup, self._watch, self._scrapes = setup, watch, scrapes
        self._notes: Mapping[tuple[str, str], ScrapeNote] = {}
        self._passive: Mapping[tuple[str, str], PassiveAlarm] = {}
        self._clauses: dict[Place, ClauseEvidence] = {}
        self._alarm = b""
        moves = moves_traffic(setup.contract)
        self._informing = {
            name for name, moving in zip(setup.contract.clause_ids, moves, strict=True) if not moving
        }

    def lines(self, turn: Turn) -> tuple[str, ...]:
        """One line for each change."""
        return (*self._of_passive(), *self._of_clauses(turn), *self._of_scrapes())

    def _of_passive(self) -> list[str]:
        before, self._passive = self._passive, self._watch.in_force()
        return [passive_line(one) for one in _changed(before, self._passive)]

    def _of_scrapes(self) -> list[str]:
        before, self._notes = self._notes, {} if self._scrapes is None else self._scrapes.in_force()
        return [scrapes_line(one) for one in _changed(before, self._notes)]

    def _of_clauses(self, turn: Turn) -> list[str]:
        if turn.decision is None:
            return []
        alarm = np.packbits(turn.decision.judgement.alarm[0]).tobytes()
        if alarm == self._alarm:
            return []
        record = explain(turn.before, turn.after, turn.decision, self._setup)
        now = {(one.clause_id, one.kernel, one.slice): one for one in record.evidence}
        before, self._alarm, self._clauses = self._clauses, alarm, now
        begun = [self._line(now[place]) for place in now if place not in before]
        over = [place for place in before if place not in now]
        return begun + [f"alarm {clause} on {kernel}/{name} is over" for clause, kernel, name in over]

    def _line(self, one: ClauseEvidence) -> str:
        informs = _INFORMS if one.clause_id in self._informing else ""
        return (
            f"alarm {one.clause_id} on {one.kernel}/{one.slice}: {one.estimate:.4g} against {one.limit:.4g} "
            f"from {one.observations:.0f} observations{informs}"
        )


def _changed(
    before: Mapping[tuple[str, str], PassiveAlarm | ScrapeNote],
    now: Mapping[tuple[str, str], PassiveAlarm | ScrapeNote],
) -> list[dict[str, Any]]:
    """Rows for what began, and with ``began`` False for what ended; sorted by replica and name."""
    over = {place: asdict(one) | {"began": False} for place, one in before.items() if place not in now}
    begun = {place: asdict(one) for place, one in now.items() if place not in before}
    return [row for _, row in sorted({**over, **begun}.items())]


def scrapes_line(note: Mapping[str, Any]) -> str:
    """What is odd about a replica's scrapes or probes, or that the oddity is over."""
    of_whom = "probes" if note["what"] == "unprobed" else "scrapes"
    what = f"{of_whom} of {note['replica']}: {note['told']}"
    return f"{what}; no fault, it moves nothing" if note["began"] else f"{what}: over"


def passive_line(alarm: Mapping[str, Any]) -> str:
    """The replica with a passive alarm and its evidence with unit, or that the alarm is over."""
    what = f"passive alarm {alarm['signal']} of {alarm['replica']}"
    if not alarm["began"]:
        return f"{what} is {alarm.get('why', 'over')}"
    return (
        f"{what}: recently {alarm['recent']:.4g} {alarm['unit']}, usually {alarm['usual']:.4g}, at most "
        f"{alarm['limit']:.4g} by its own past; evidence {alarm['evidence_nats']:.1f} of "
        f"{alarm['threshold_nats']:.1f} nats from {alarm['observations']} observations of its answers"
        f"{_INFORMS}"
    )
