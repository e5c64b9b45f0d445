"""Clocks of the live world: a monotonic clock, a CPU-time clock, and the timer of the control loop.

The timer has a fixed interval. It neither drifts nor catches up after a delay.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from contracts.units import MS_PER_S
from controller.ports import Clock


class SteadyClock:
    """``controller.ports.Clock``: Unix time at the start, then advanced by the monotonic clock.

    A step of the system clock changes neither ages nor dwell times. ``not_before_at_s``: earliest start, for
    a controller that continues from a saved state.
    """

    def __init__(self, not_before_at_s: float = 0.0) -> None:
        self._began_at_s = max(time.time(), not_before_at_s)
        self._monotonic_s = time.monotonic()

    def now_ms(self) -> float:
        """Milliseconds since 1970, provided that the system clock was right at the start."""
        return (self._began_at_s + time.monotonic() - self._monotonic_s) * MS_PER_S

    def step_s(self) -> float:
        """How far the system clock has moved ahead of this clock since the start, in s; negative: behind."""
        return time.time() - self.now_ms() / MS_PER_S


class LaterClock:
    """``inner`` with a constant offset, so that it is now at ``not_before_at_s`` at least.

    For one of several controllers on a shared clock, if its saved state was written by a host with a clock
    further ahead.
    """

    def __init__(self, inner: Clock, not_before_at_s: float) -> None:
        self._inner = inner
        self._ahead_ms = max(0.0, not_before_at_s * MS_PER_S - inner.now_ms())

    def now_ms(self) -> float:
        """Milliseconds since 1970, with the offset."""
        return self._inner.now_ms() + self._ahead_ms


class CpuClock:
    """CPU time of the calling thread: the cost of a decision, independent of other load on the machine."""

    def now_ms(self) -> float:
        """Milliseconds; only differences are meaningful."""
        return time.thread_time() * MS_PER_S


def run_on_the_beat(
    step: Callable[[], object], tick_s: float, stop: threading.Event, seconds: float = 0.0
) -> int:
    """Call ``step`` every ``tick_s`` on the monotonic clock; return the number of calls.

    Ends when ``stop`` is set, or after ``seconds`` (0: no limit). Ticks that a long step missed are skipped.
    """
    began_at_s, beat, calls = time.monotonic(), 0, 0
    while not stop.is_set():
        step()
        calls += 1
        passed_s = time.monotonic() - began_at_s
        if seconds and passed_s >= seconds:
            break
        beat = max(beat + 1, int(passed_s / tick_s))
        stop.wait(max(0.0, began_at_s + beat * tick_s - time.monotonic()))
    return calls


@contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """An event that SIGTERM and SIGINT set; a second signal has its usual effect."""
    stop = threading.Event()

    def ask(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of a handler
        stop.set()
        signal.signal(number, before[signal.Signals(number)])

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    for number in before:
        signal.signal(number, ask)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
