"""Clocks of the live world: a monotonic one, one of CPU time, and the beat of the control loop.

The beat has a fixed interval that neither drifts nor catches up, until it is stopped.
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


def run_on_the_beat(
    step: Callable[[], object], tick_s: float, stop: threading.Event, seconds: float = 0.0
) -> int:
    """Call ``step`` every ``tick_s`` on the monotonic clock until ``stop`` is set or ``seconds`` (0: never)
    are over; how often it was called. Beats that a long step missed are left out.
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
    """An event that SIGTERM and SIGINT set; a second one ends the process as usual."""
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
