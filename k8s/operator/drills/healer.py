"""Who heals a pool of the cluster during a drill: the operator, beside the runner.

Why it moved a slice the route does not tell; the policy's status does, which is written after the route. So a
move that the route shows is waited for there, and one that nobody explains in time counts as one for health,
as on a fleet of one machine (``live.drill.healer``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from k8s.operator.objects import ClusterError
from k8s.operator.status.recent import RecentDecision

#: So long the status may be behind the route, s: it is written in the same turn.
BEHIND_S = 2.0
_POLL_S = 0.2


@dataclass(slots=True)
class OperatorHeals:
    """``live.drill.healer.Healer``. decisions: the newest of the policy, newest first, or ClusterError;
    shares: of each slice in the route as it was seen last.
    """

    decisions: Callable[[], Sequence[RecentDecision]]
    shares: Callable[[], Mapping[str, tuple[int, ...]]]
    _seen: dict[str, tuple[int, ...]] = field(default_factory=dict)
    _told: dict[str, RecentDecision] = field(default_factory=dict)
    _for_capacity: set[str] = field(default_factory=set)
    _ahead: set[str] | None = None
    """Slices of which the status told a move that the route was not seen to show yet; None: not asked."""

    def start(self) -> None:
        """It runs."""

    def stop(self) -> None:
        """It runs on."""

    def for_capacity(self, slices: tuple[str, ...]) -> NDArray[np.bool_]:
        """Bool [S]: the newest move of the slice was for capacity alone, as far as the status says."""
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
        """Slices of which the status tells another newest move than the last time it told one."""
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
