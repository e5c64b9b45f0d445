"""Whether the counters of two scrapes are of one process, so that what rose between them was counted there.

A proxy that balances several engines behind one URL answers each scrape from another one: counters jump back
and forth, and every second jump is a rise that nobody counted. Where servers state when their process began,
two processes are told apart by that. Where they do not, or state the same, nothing is believed until counters
have not fallen for ``SETTLING`` scrapes.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:  # who explains a log needs no reader of metrics
    from live.observe.metrics import EngineReading

#: Scrapes without a fall after which rises are believed; two engines in turn at random fall once in four, and
#: keep from it so long in 3 of 1,000 cases.
SETTLING = 20
#: Processes that are remembered, to know one that answers again.
_REMEMBERED = 16


@dataclass(slots=True)
class CounterTrust:
    """What the scrapes of one replica showed so far."""

    _last: NDArray[np.float64] | None = None  # [N]
    _started_at_s: float | None = None
    _starts: deque[float | None] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    _unsettled: int = 0
    #: Scrapes for which it is still to be said that several processes answered, that counters fell.
    _mixed: int = 0
    _fallen: int = 0

    def take(self, started_at_s: float | None, counters: NDArray[np.float64]) -> bool:
        """Take the next scrape, ``counters`` float64 [N] (NaN: unknown); whether what rose since is believed.

        started_at_s: of the process, None where it does not say.
        """
        before, self._last = self._last, counters
        was_at_s, self._started_at_s = self._started_at_s, started_at_s
        self._mixed, self._fallen = max(0, self._mixed - 1), max(0, self._fallen - 1)
        if before is None or started_at_s != was_at_s:
            self._another(started_at_s, was_at_s, first=before is None)
            return False
        if bool((counters < before).any()):
            self._unsettled = self._fallen = SETTLING
            return False
        self._unsettled = max(0, self._unsettled - 1)
        return self._unsettled == 0

    def _another(self, started_at_s: float | None, was_at_s: float | None, *, first: bool) -> None:
        """Another process answers than before."""
        if started_at_s in self._starts:
            self._mixed = SETTLING
        if not first:
            self._starts.append(was_at_s)
        self._unsettled = SETTLING if started_at_s is None else 0

    @property
    def why(self) -> str:
        """What is wrong with its counters, "" for nothing."""
        if self._mixed:
            return "several processes answer there in turn, as behind a proxy that balances them"
        if self._fallen:
            return (
                "counters fell and no new process is stated: several engines behind one URL, or counters "
                "that are reset"
            )
        return ""


@dataclass(slots=True)
class FleetTrust:
    """The trust in every replica's counters, for whoever listens to the same scrapes: each is taken once,
    by whoever sees it first.
    """

    _of: dict[str, CounterTrust] = field(default_factory=dict)
    _taken: dict[str, tuple[EngineReading, bool]] = field(default_factory=dict)

    def believes(self, replica: str, reading: EngineReading) -> bool:
        """Whether what rose between the scrape before and ``reading`` was counted there."""
        taken = self._taken.get(replica)
        if taken is None or taken[0] is not reading:
            one = self._of.setdefault(replica, CounterTrust())
            taken = reading, one.take(reading.started_at_s, reading.counted)
            self._taken[replica] = taken
        return taken[1]

    def why(self, replica: str) -> str:
        """What is wrong with its counters, "" for nothing."""
        one = self._of.get(replica)
        return "" if one is None else one.why
