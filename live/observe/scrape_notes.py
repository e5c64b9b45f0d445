"""Notes about scrapes and probes that report less than they could. They move nothing.

``unread``: the last scrapes failed. ``unprobed``: probes are answered with something else than what was asked
for, or the server is busy. ``mixed``: counters are not of one process. ``no_numbers``: stated values are not
valid. ``lacking``: names are not exported. The affected values are unknown to the controller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from live.observe.metrics import (
    COUNTERS,
    GAUGES,
    STARTED,
    EngineReading,
)
from live.observe.trust import SETTLING, FleetTrust
from live.ports import Unanswered

#: Failed scrapes, or probes, in a row that lead to a note.
UNREAD = 3
KINDS = ("unread", "unprobed", "mixed", "no_numbers", "lacking")
#: Names of the numbers at the start of every reading.
_NAMES = (STARTED, *GAUGES.values(), *COUNTERS.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrapeNote:
    """A note about a replica's scrapes that began or ended (``began`` False). what: one of ``KINDS``.

    told: the text from its beginning.
    """

    replica: str
    what: str
    began: bool
    told: str


@dataclass(slots=True)
class _Replica:
    """Notes of one replica. left: kind -> scrapes until the note ends, unless its cause is seen again."""

    left: dict[str, int] = field(default_factory=dict)


class ScrapeWatch:
    """Listens to scrapes.

    failed, unprobed: replica -> why its last scrapes failed, or why its last probes gave no information;
    without replicas for which the last one succeeded. trust: shared with other listeners to the same scrapes.
    """

    def __init__(
        self,
        failed: Callable[[], Mapping[str, Unanswered]] = dict,
        unprobed: Callable[[], Mapping[str, Unanswered]] = dict,
        trust: FleetTrust | None = None,
    ) -> None:
        self._trust = trust or FleetTrust()
        self._told = (
            ("unread", "no scrape of /metrics ended well", failed),
            ("unprobed", "probes say nothing", unprobed),
        )
        self._replicas: dict[str, _Replica] = {}
        self._noted: dict[tuple[str, str], ScrapeNote] = {}
        self._changes: list[ScrapeNote] = []

    def receive(self, readings: Mapping[str, EngineReading]) -> None:
        """Process the successful scrapes since the last call, by replica."""
        for name, reading in readings.items():
            self._read(name, reading)
        for what, told, ask in self._told:
            failed = {name: one for name, one in ask().items() if one.times >= UNREAD}
            for name, one in failed.items():
                self._begin(name, what, f"{told}: {one.why}")
            for name, _ in [place for place in self._noted if place[1] == what]:
                if name not in failed:
                    self._end(name, what)

    def _read(self, name: str, reading: EngineReading) -> None:
        one = self._replicas.setdefault(name, _Replica())
        self._trust.believes(name, reading)
        found = dict(_odd(reading))
        if why := self._trust.why(name):
            found["mixed"] = why
        for kind, told in found.items():
            one.left[kind] = SETTLING
            self._begin(name, kind, told)
        for kind in one.left.keys() - found.keys():
            one.left[kind] -= 1
            if one.left[kind] <= 0:
                del one.left[kind]
                self._end(name, kind)

    def _begin(self, name: str, what: str, told: str) -> None:
        if (name, what) not in self._noted:
            self._noted[name, what] = found = ScrapeNote(replica=name, what=what, began=True, told=told)
            self._changes.append(found)

    def _end(self, name: str, what: str) -> None:
        if found := self._noted.pop((name, what), None):
            self._changes.append(replace(found, began=False))

    def in_force(self) -> Mapping[tuple[str, str], ScrapeNote]:
        """(replica, what) -> its present note."""
        return dict(self._noted)

    def changes(self) -> list[ScrapeNote]:
        """Notes that began or ended and were not dropped yet, oldest first."""
        return list(self._changes)

    def drop(self, count: int) -> None:
        """Forget the oldest ``count`` changes, which have been written to the log."""
        del self._changes[:count]


def _odd(reading: EngineReading) -> Iterator[tuple[str, str]]:
    """Kinds and texts of notes about a single reading."""
    numbers = reading.numbers[: len(_NAMES)]
    stated = np.diff(reading.fields.ends[: len(_NAMES)], prepend=0) > 0
    lacking = [name for name, there in zip(_NAMES, stated, strict=True) if not there]
    wrong = [name for name, there in zip(_NAMES, stated & np.isnan(numbers), strict=True) if there]
    if wrong:
        yield "no_numbers", f"states what no count can be, which is unknown: {', '.join(wrong)}"
    if lacking:
        yield "lacking", f"does not export, which is unknown: {', '.join(lacking)}"
