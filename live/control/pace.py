"""When the next turn is due: a fixed beat that neither drifts nor catches up, until somebody says stop."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


def run(step: Callable[[], object], tick_s: float, stop: threading.Event, seconds: float = 0.0) -> int:
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
