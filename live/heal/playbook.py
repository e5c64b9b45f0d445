"""Carries out one replica's re-admission: runs the state machine's orders in a thread, one at a time."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Protocol

from controller.healing.machine import begin, lacking, line, order, share, step
from controller.healing.records import Flush, HealingOrder, HealingSight, HealingState, HealingTerms

#: Probes that are sent in sequence before a tick reads their outcome.
_AT_A_TIME = 4


class Mender(Protocol):
    """Actions on one server. No method raises an exception for an error of the server."""

    def restart(self) -> tuple[bool, str]:
        """Restart the server and wait until it serves; returns whether it does, and the reason if not."""

    def flush(self) -> tuple[Flush, str]:
        """Empty the prefix cache; returns how that was done, and the reason if it was not."""

    def probe(self, number: int) -> tuple[bool, str]:
        """Send requests like those of users, cold and from the cache; returns whether all agree, and what
        does not.

        number: counts up, so that the prompts take turns.
        """


class Playbook:
    """Re-admission of one replica. Call ``turn`` once a tick; it never waits for a server."""

    def __init__(self, mender: Mender, terms: HealingTerms, threads: Executor, now_s: float) -> None:
        self.terms = terms
        self.state: HealingState = begin(now_s, terms)
        self._mender, self._threads = mender, threads
        self._doing: Future[Callable[[float], HealingSight]] | None = None
        self._wanted = HealingOrder.NOTHING
        self._asked = 0

    @property
    def share(self) -> float:
        """Share of its full traffic that the replica may get now, 0..1."""
        return share(self.state, self.terms)

    @property
    def line(self) -> str:
        """A line about its present phase."""
        return line(self.state, self.terms)

    def turn(self, now_s: float) -> bool:
        """Process the result of an ended action and start the next; whether phase or step changed."""
        before = self.state
        self.state = step(before, self._seen(now_s), self.terms)
        self._begin()
        return (before.phase, before.step) != (self.state.phase, self.state.step)

    def _seen(self, now_s: float) -> HealingSight:
        if self._doing is None or not self._doing.done():
            return HealingSight(now_s=now_s)
        ended, self._doing = self._doing, None
        try:
            return ended.result()(now_s)
        except Exception as error:  # an unexpected error of the mender counts as a failed action
            return _undone(self._wanted, now_s, f"unforeseen: {type(error).__name__}")

    def _begin(self) -> None:
        wanted = order(self.state, self.terms)
        if self._doing is None and wanted is not HealingOrder.NOTHING:
            self._wanted, self._doing = wanted, self._threads.submit(self._done, wanted)

    def _done(self, wanted: HealingOrder) -> Callable[[float], HealingSight]:
        """Execute the order ``wanted``; returns a function from the present time, in s, to the
        observation.
        """
        if wanted is HealingOrder.RESTART:
            good, told = self._mender.restart()
            return lambda now_s: HealingSight(now_s=now_s, restarted=good, told=told)
        if wanted is HealingOrder.FLUSH:
            how, told = self._mender.flush()
            return lambda now_s: HealingSight(now_s=now_s, flush=how, told=told)
        agreed, good, told = 0, True, ""
        for _ in range(min(_AT_A_TIME, lacking(self.state, self.terms))):
            self._asked += 1
            good, told = self._mender.probe(self._asked - 1)
            agreed += int(good)
            if not good:
                break
        return lambda now_s: HealingSight(now_s=now_s, agreed=agreed, failed=int(not good), told=told)


def _undone(wanted: HealingOrder, now_s: float, told: str) -> HealingSight:
    """The observation of an order that was not carried out."""
    if wanted is HealingOrder.RESTART:
        return HealingSight(now_s=now_s, restarted=False, told=told)
    if wanted is HealingOrder.FLUSH:
        return HealingSight(now_s=now_s, flush=Flush.FAILED, told=told)
    return HealingSight(now_s=now_s, failed=1, told=told)
