"""Signals ask a training run to stop after the running step, so that its checkpoint is whole."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from scripts.guard import ENDING, Interrupted


class Stopped:
    """Set by SIGINT, SIGTERM or SIGHUP; training looks at it after every step."""

    def __init__(self) -> None:
        self.flag = False

    def __call__(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - a handler's
        """The signal's handler; the second signal does not wait for the running step."""
        if self.flag:
            raise Interrupted(number)
        self.flag = True


@contextmanager
def stoppable() -> Iterator[Stopped]:
    """While the block runs, SIGINT, SIGTERM and SIGHUP ask it to stop, those of them that are not ignored."""
    stopped = Stopped()
    heard = [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, stopped) for number in heard}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
