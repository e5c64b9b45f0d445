"""Clocks of the live world: one that no step of the system clock moves, and one of the CPU time spent."""

from __future__ import annotations

import time

from contracts.units import MS_PER_S
from controller.ports import Clock


class SteadyClock:
    """``controller.ports.Clock``: Unix time at the start, then as the monotonic clock goes on.

    A step of the system clock moves neither ages nor dwell times. ``not_before_at_s``: never begin earlier,
    for a controller that goes on from a state of its own.
    """

    def __init__(self, not_before_at_s: float = 0.0) -> None:
        self._began_at_s = max(time.time(), not_before_at_s)
        self._monotonic_s = time.monotonic()

    def now_ms(self) -> float:
        """Milliseconds since 1970, as far as the system clock was right at the start."""
        return (self._began_at_s + time.monotonic() - self._monotonic_s) * MS_PER_S

    def step_s(self) -> float:
        """How far the system clock has since moved ahead of this one (behind: < 0)."""
        return time.time() - self.now_ms() / MS_PER_S


class LaterClock:
    """``inner``, ahead by what it lacks to ``not_before_at_s`` now.

    For one of several controllers on one clock, whose state comes from a host whose clock was ahead.
    """

    def __init__(self, inner: Clock, not_before_at_s: float) -> None:
        self._inner = inner
        self._ahead_ms = max(0.0, not_before_at_s * MS_PER_S - inner.now_ms())

    def now_ms(self) -> float:
        """Milliseconds since 1970, and what it is ahead."""
        return self._inner.now_ms() + self._ahead_ms


class CpuClock:
    """CPU time of the calling thread: what a decision costs, however busy the machine is."""

    def now_ms(self) -> float:
        """Milliseconds; only differences mean anything."""
        return time.thread_time() * MS_PER_S
