"""Whether the counters of two scrapes belong to one process, so that their difference was counted in it.

A proxy that balances several engines behind one URL answers each scrape from another engine. The counters
jump back and forth, and every second jump looks like an increase that did not happen. If servers state their
process's start time, two processes are distinguished by it. If they do not, or state the same time, increases
are believed only after ``SETTLING`` scrapes without a decrease.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:  # reading a log must not import the metrics readers
    from live.observe.metrics import EngineReading

#: Scrapes without a decrease after which increases are believed. With two engines chosen at random, one
#: scrape in four decreases, so none of this many does with a probability of 3 in 1,000.
SETTLING = 20
#: Start times of processes that are remembered, to recognise a process that answers again.
_REMEMBERED = 16


@dataclass(slots=True)
class CounterTrust:
    """What the scrapes of one replica have shown so far."""

    _last: NDArray[np.float64] | None = None  # [N]
    _started_at_s: float | None = None
    _starts: deque[float | None] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    _unsettled: int = 0
    #: Scrapes for which "several processes answer" and "counters decreased" will still be reported.
    _mixed: int = 0
    _fallen: int = 0

    def take(self, started_at_s: float | None, counters: NDArray[np.float64]) -> bool:
        """Process the next scrape, ``counters`` float64 [N] (NaN: unknown); whether the increases are
        believed.

        started_at_s: start of the process; None if it is not stated.
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
        """Note that a different process answers than before."""
        if started_at_s in self._starts:
            self._mixed = SETTLING
        if not first:
            self._starts.append(was_at_s)
        self._unsettled = SETTLING if started_at_s is None else 0

    @property
    def why(self) -> str:
        """What is wrong with its counters; "" if nothing is."""
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
    """The trust in every replica's counters, shared by all listeners to the same scrapes.

    Each scrape is processed once, for the first listener that asks about it.
    """

    _of: dict[str, CounterTrust] = field(default_factory=dict)
    _taken: dict[str, tuple[EngineReading, bool]] = field(default_factory=dict)

    def believes(self, replica: str, reading: EngineReading) -> bool:
        """Whether the increase from the previous scrape to ``reading`` was counted by one process."""
        taken = self._taken.get(replica)
        if taken is None or taken[0] is not reading:
            one = self._of.setdefault(replica, CounterTrust())
            taken = reading, one.take(reading.started_at_s, reading.counted)
            self._taken[replica] = taken
        return taken[1]

    def why(self, replica: str) -> str:
        """What is wrong with the replica's counters; "" if nothing is."""
        one = self._of.get(replica)
        return "" if one is None else one.why
