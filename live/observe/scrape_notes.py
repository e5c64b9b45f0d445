"""What is odd about scrapes and probes, in words: no fault of a server that serves users, it moves nothing.

``unread``: no scrape ended well lately. ``unprobed``: probes are answered, and not by what was asked for, or
the server is busy. ``mixed``: counters are not of one process. ``no_numbers``: what is stated is none.
``lacking``: names that are not exported. What is said of it is unknown to the controller.
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

#: Failed scrapes, or probes, in a row that are worth a word.
UNREAD = 3
KINDS = ("unread", "unprobed", "mixed", "no_numbers", "lacking")
#: Of the numbers that every reading begins with.
_NAMES = (STARTED, *GAUGES.values(), *COUNTERS.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrapeNote:
    """Something odd about a replica's scrapes that began, or is over (``began`` False). what: of ``KINDS``.

    told: in words, as it began.
    """

    replica: str
    what: str
    began: bool
    told: str


@dataclass(slots=True)
class _Replica:
    """What was seen of one. left: kind -> scrapes until it is over, unless it is seen again."""

    left: dict[str, int] = field(default_factory=dict)


class ScrapeWatch:
    """Listens to scrapes. failed, unprobed: replica -> why its last scrapes failed, why its last probes told
    nothing, of those where the last one did. trust: of others that listen to the same scrapes.
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
        """Scrapes that ended well since the last call, by replica."""
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
        """(replica, what) -> what began there and is not over."""
        return dict(self._noted)

    def changes(self) -> list[ScrapeNote]:
        """What began or ended since it was last dropped, oldest first."""
        return list(self._changes)

    def drop(self, count: int) -> None:
        """Forget the oldest ``count`` changes: they were written down."""
        del self._changes[:count]


def _odd(reading: EngineReading) -> Iterator[tuple[str, str]]:
    """Kinds and what is said of them, of one reading alone."""
    numbers = reading.numbers[: len(_NAMES)]
    stated = np.diff(reading.fields.ends[: len(_NAMES)], prepend=0) > 0
    lacking = [name for name, there in zip(_NAMES, stated, strict=True) if not there]
    wrong = [name for name, there in zip(_NAMES, stated & np.isnan(numbers), strict=True) if there]
    if wrong:
        yield "no_numbers", f"states what no count can be, which is unknown: {', '.join(wrong)}"
    if lacking:
        yield "lacking", f"does not export, which is unknown: {', '.join(lacking)}"
