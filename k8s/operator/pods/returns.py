"""Pods whose quarantine ended: verified by generation probes and re-admitted in steps, as by ``live.heal``.

If another pod takes the slot of a returning pod, the return ends: the new pod was never unhealthy. The
reference is asked beside the tick for the answers to compare with. A pod waits for them up to ``PATIENCE_S``
and then returns unverified.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from controller.healing.records import HealingTerms
from k8s.operator.pods.replicas import PodDiscovery
from live.heal.playbook import Mender
from live.heal.readmission import Readmissions

#: Seconds for which a pod waits for the reference's answers.
PATIENCE_S = 60.0


class PodVerifier(Protocol):
    """Verifies pods against a reference's answers, once they are known."""

    @property
    def terms(self) -> HealingTerms:
        """Requirements for re-admission."""

    @property
    def ready(self) -> bool:
        """Whether the reference has answered."""

    @property
    def unverified(self) -> str:
        """Why the reference has not answered, "" if no reason is known."""

    def mender(self, slot: str) -> Mender:
        """Mender of the pod in ``slot``; only once ``ready``."""


class PodReturns:
    """``live.control.loop.ReturnWatch`` of one policy's pods. Call ``close`` at the end.

    pending: slots whose pods were returning under an earlier leader; their return starts again.
    """

    def __init__(self, verifier: PodVerifier, discovery: PodDiscovery, pending: Iterable[str] = ()) -> None:
        self.verifier, self._discovery = verifier, discovery
        self._inner = Readmissions(verifier.mender, verifier.terms)
        self._pending = frozenset(pending)
        self._waiting: dict[str, float] = {}
        """Slot -> time since which it waits for the reference, s."""
        self._whose: dict[str, tuple[str, str]] = {}
        """Slot -> key and uid of the returning pod."""

    @property
    def shares(self) -> Mapping[str, float]:
        """Slot -> share of full traffic, 0..1, for every returning pod."""
        return {**dict.fromkeys(self._waiting, 0.0), **self._inner.shares}

    @property
    def names(self) -> tuple[str, ...]:
        """Slots of the returning pods."""
        return tuple(sorted({*self._pending, *self.shares}))

    @property
    def lines(self) -> tuple[str, ...]:
        """Progress of every returning pod, one line each."""
        return (*(f"{slot}: waits for the reference" for slot in sorted(self._waiting)), *self._inner.lines)

    def close(self) -> None:
        """Stop; returns in progress are left as they are."""
        self._inner.close()

    def turn(self, now_s: float, ended: Iterable[str], away: Iterable[str]) -> tuple[str, ...]:
        """Run one tick; returns a line for each change. ended: slots whose quarantine ended; away: slots to
        drop.
        """
        there = self._discovery.occupants
        gone = {*away, *(slot for slot, whose in self._whose.items() if there.get(slot) != whose)}
        fresh = ({*ended, *self._pending} & there.keys()) - gone
        if there:  # otherwise no pods are discovered yet
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
        """Return pods at full share that have waited ``PATIENCE_S`` for the reference."""
        if self.verifier.ready:
            return ()
        late = sorted(slot for slot, at_s in self._waiting.items() if now_s - at_s >= PATIENCE_S)
        self._waiting = {slot: at_s for slot, at_s in self._waiting.items() if slot not in late}
        why = self.verifier.unverified or "the reference has not answered"
        return tuple(f"{slot}: comes back unverified: {why}" for slot in late)
