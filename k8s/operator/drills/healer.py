"""Healing of a pool during a drill on a cluster: the operator heals, while the drill's runner observes.

The route does not state why a slice was moved. The policy's status does, but it is written after the route.
After a move in the route, its explanation in the status is awaited. A move without explanation in time counts
as a move for health, as on a fleet of one machine (``live.drill.healer``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from k8s.operator.objects import ClusterError
from k8s.operator.status.recent import RecentDecision

#: Seconds by which the status may lag behind the route; both are written in the same turn.
BEHIND_S = 2.0
_POLL_S = 0.2


@dataclass(slots=True)
class OperatorHeals:
    """``live.drill.healer.Healer``. decisions: returns the policy's recent decisions, newest first, or raises
    ClusterError; shares: returns the shares of each slice in the route as last seen.
    """

    decisions: Callable[[], Sequence[RecentDecision]]
    shares: Callable[[], Mapping[str, tuple[int, ...]]]
    _seen: dict[str, tuple[int, ...]] = field(default_factory=dict)
    _told: dict[str, RecentDecision] = field(default_factory=dict)
    _for_capacity: set[str] = field(default_factory=set)
    _ahead: set[str] | None = None
    """Slices with a move in the status that was not seen in the route yet; None: the status was not read."""

    def start(self) -> None:
        """Do nothing; the operator runs already."""

    def stop(self) -> None:
        """Do nothing; the operator continues to run."""

    def for_capacity(self, slices: tuple[str, ...]) -> NDArray[np.bool_]:
        """Bool [S]: whether the slice's newest move was for capacity alone, by the policy's status."""
        now = dict(self.shares())
        moved = {name for name, row in now.items() if self._seen.get(name, row) != row}
        self._seen |= now
        told = self._ahead or set()
        self._for_capacity -= moved - told
        until_at_s = time.monotonic() + BEHIND_S
        fresh = self._read()
        while not moved <= told | fresh and time.monotonic() < until_at_s:
            time.sleep(_POLL_S)
            fresh |= self._read()
        self._ahead = set() if self._ahead is None else fresh - moved
        return np.array([name in self._for_capacity for name in slices], dtype=np.bool_)

    def _read(self) -> set[str]:
        """Slices whose newest move in the status has changed since the last read."""
        try:
            found = self.decisions()
        except ClusterError:
            return set()
        newest = {name: one for one in reversed(found) for name in one.moved}
        fresh = {name for name, one in newest.items() if self._told.get(name) != one}
        for name in fresh:
            if name in newest[name].for_capacity:
                self._for_capacity.add(name)
            else:
                self._for_capacity.discard(name)
        self._told |= newest
        return fresh
