"""Pods whose quarantine ended: verified by generation probes and re-admitted in steps, as by ``live.heal``.

A new pod in the place of one that came back was never unhealthy and does not wait. The answers to compare
with are asked of the reference beside the tick; a pod waits for them a while, then comes back unverified.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from controller.healing.records import HealingTerms
from k8s.operator.pods.replicas import PodDiscovery
from live.heal.playbook import Mender
from live.heal.readmission import Readmissions

#: So long a pod waits for what it is verified against, s.
PATIENCE_S = 60.0


class PodVerifier(Protocol):
    """Knows what pods must answer, once a reference has told."""

    @property
    def terms(self) -> HealingTerms:
        """What a pod must show."""

    @property
    def ready(self) -> bool:
        """Whether the reference has told."""

    @property
    def unverified(self) -> str:
        """Why it has not, "" while it is asked."""

    def mender(self, slot: str) -> Mender:
        """Of the pod in ``slot``, once the reference has told."""


class PodReturns:
    """``live.control.loop.ReturnWatch`` of one policy's pods. ``close`` it at the end.

    pending: slots whose pods were on their way when somebody else led; they begin anew.
    """

    def __init__(self, verifier: PodVerifier, discovery: PodDiscovery, pending: Iterable[str] = ()) -> None:
        self.verifier, self._discovery = verifier, discovery
        self._inner = Readmissions(verifier.mender, verifier.terms)
        self._pending = frozenset(pending)
        self._waiting: dict[str, float] = {}
        """Slot -> since when it waits for the reference, s."""
        self._whose: dict[str, tuple[str, str]] = {}
        """Slot -> whose return it is."""

    @property
    def shares(self) -> Mapping[str, float]:
        """Slot -> part of its traffic, 0..1, of every pod on its way."""
        return {**dict.fromkeys(self._waiting, 0.0), **self._inner.shares}

    @property
    def names(self) -> tuple[str, ...]:
        """Slots of the pods on their way."""
        return tuple(sorted({*self._pending, *self.shares}))

    @property
    def lines(self) -> tuple[str, ...]:
        """Where every pod on its way stands."""
        return (*(f"{slot}: waits for the reference" for slot in sorted(self._waiting)), *self._inner.lines)

    def close(self) -> None:
        """Do nothing more; what is under way is left alone."""
        self._inner.close()

    def turn(self, now_s: float, ended: Iterable[str], away: Iterable[str]) -> tuple[str, ...]:
        """One tick; a line for whatever changed."""
        there = self._discovery.occupants
        gone = {*away, *(slot for slot, whose in self._whose.items() if there.get(slot) != whose)}
        fresh = ({*ended, *self._pending} & there.keys()) - gone
        if there:  # else nobody knows yet who is there
            self._pending = frozenset()
        self._whose = {slot: whose for slot, whose in self._whose.items() if slot not in gone}
        self._whose |= {slot: there[slot] for slot in fresh}
        waiting = {slot: at_s for slot, at_s in self._waiting.items() if slot not in gone}
        self._waiting = {**waiting, **dict.fromkeys(fresh, now_s)}
        lines = self._let_go(now_s)
        begun = set(self._waiting) if self.verifier.ready else set()
        self._waiting = {slot: at_s for slot, at_s in self._waiting.items() if slot not in begun}
        lines += self._inner.turn(now_s, begun, gone)
        self._whose = {slot: whose for slot, whose in self._whose.items() if slot in self.shares}
        return lines

    def _let_go(self, now_s: float) -> tuple[str, ...]:
        """Let those come back whole who have waited long enough for a reference."""
        if self.verifier.ready:
            return ()
        late = sorted(slot for slot, at_s in self._waiting.items() if now_s - at_s >= PATIENCE_S)
        self._waiting = {slot: at_s for slot, at_s in self._waiting.items() if slot not in late}
        why = self.verifier.unverified or "the reference has not answered"
        return tuple(f"{slot}: comes back unverified: {why}" for slot in late)
