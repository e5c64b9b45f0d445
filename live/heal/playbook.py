"""Re-admission of one replica, carried out: the state machine's orders run in a thread, one at a time."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Protocol

from controller.healing.machine import begin, lacking, line, order, share, step
from controller.healing.records import Flush, HealingOrder, HealingSight, HealingState, HealingTerms

#: Probes that are sent one after the other before the next tick reads their outcome.
_AT_A_TIME = 4


class Mender(Protocol):
    """Actions on one server. No method raises for an error of the server."""

    def restart(self) -> tuple[bool, str]:
        """Restart the server and wait until it serves; returns whether it does, and why not."""

    def flush(self) -> tuple[Flush, str]:
        """Empty the prefix cache; returns how that was done, and why not."""

    def probe(self, number: int) -> tuple[bool, str]:
        """Send requests like those of users, cold and from the cache; returns whether all agree, and which
        not.

        number: counts up, so that prompts take turns.
        """


class Playbook:
    """The return of one replica. ``turn`` it once a tick; it never waits for a server."""

    def __init__(self, mender: Mender, terms: HealingTerms, threads: Executor, now_s: float) -> None:
        self.terms = terms
        self.state: HealingState = begin(now_s, terms)
        self._mender, self._threads = mender, threads
        self._doing: Future[Callable[[float], HealingSight]] | None = None
        self._wanted = HealingOrder.NOTHING
        self._asked = 0

    @property
    def share(self) -> float:
        """Of the traffic of a whole replica."""
        return share(self.state, self.terms)

    @property
    def line(self) -> str:
        """Where it stands."""
        return line(self.state, self.terms)

    def turn(self, now_s: float) -> bool:
        """Take in what ended and order what is next; whether phase or step changed."""
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
        except Exception as error:  # a mender that failed unforeseen has not done what was ordered
            return _undone(self._wanted, now_s, f"unforeseen: {type(error).__name__}")

    def _begin(self) -> None:
        wanted = order(self.state, self.terms)
        if self._doing is None and wanted is not HealingOrder.NOTHING:
            self._wanted, self._doing = wanted, self._threads.submit(self._done, wanted)

    def _done(self, wanted: HealingOrder) -> Callable[[float], HealingSight]:
        """Carry ``wanted`` out; returns a function from the present time, in s, to what was observed."""
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
    """The sight of an order that was not carried out."""
    if wanted is HealingOrder.RESTART:
        return HealingSight(now_s=now_s, restarted=False, told=told)
    if wanted is HealingOrder.FLUSH:
        return HealingSight(now_s=now_s, flush=Flush.FAILED, told=told)
    return HealingSight(now_s=now_s, failed=1, told=told)
