"""Progress on stderr: a bar on a terminal, elsewhere a line every ten seconds with an estimate."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

#: Seconds between two lines if no bar can be drawn.
EVERY_S = 10.0


class ProgressLine:
    """The running work and its progress; ``total`` and ``done`` in any one unit."""

    def __init__(self, text: str, total: float) -> None:
        self.text, self.total, self.done = text, total, 0.0
        self._started_at_s = time.monotonic()
        self._aside_s, self._aside_at_s = 0.0, math.inf  # of work outside ``total``: so far, and since when
        self._expected_s = 0.0  # of the whole by a trial; 0: unknown
        self._on_change: Callable[[], None] = lambda: None

    def update(self, text: str | None = None, *, done: float | None = None, advance: float = 0.0) -> None:
        """Show ``text`` from now on; ``done`` of the total, or ``advance`` more than before."""
        now_s = time.monotonic()
        self._aside_s += max(0.0, now_s - self._aside_at_s)
        self._aside_at_s = math.inf
        self.text = text or self.text
        self.done = (self.done if done is None else done) + advance
        self._on_change()

    def aside(self, text: str) -> None:
        """Show ``text`` for work outside the total: its time does not count in the estimate."""
        self.update(text)
        self._aside_at_s = time.monotonic()

    def restart(self, text: str) -> None:
        """Begin to count time here: earlier work does not predict the rest."""
        self.update(text)
        self._started_at_s, self._aside_s = time.monotonic(), 0.0

    def expect(self, seconds: float) -> None:
        """Set the duration expected from a trial, if known (above 0), and count time from here."""
        if seconds > 0.0:
            self._expected_s = seconds
            print(f"this will take about {rough_time(seconds)}, by a trial on this machine", file=sys.stderr)
        self.restart(self.text)

    def line(self) -> str:
        """Text, share done, seconds so far and an estimate of the rest: by a trial until something is done,
        none without a trial.
        """
        spent_s = time.monotonic() - self._started_at_s
        share = min(1.0, self.done / self.total) if self.total else 0.0
        counted_s = spent_s - self._aside_s
        whole_s = counted_s / share if share else self._expected_s
        known = share < 1.0 and self._aside_at_s == math.inf and whole_s > counted_s
        left = f", about {whole_s - counted_s:.0f} s left" if known else ""
        return f"{self.text}: {100.0 * share:.0f} % after {spent_s:.0f} s{left}"


def rough_time(seconds: float) -> str:
    """``seconds`` of a rough estimate as text."""
    return f"{seconds / 60.0:.0f} minutes" if seconds >= 90.0 else f"{seconds:.0f} s"


@contextmanager
def show_progress(text: str, total: float) -> Iterator[ProgressLine]:
    """Progress for the time of a ``with`` block."""
    state = ProgressLine(text, total)
    with _Bar(state) if sys.stderr.isatty() else _Lines(state):
        yield state


@contextmanager
def compiling_aside(progress: ProgressLine) -> Iterator[None]:
    """Show how many functions were compiled within a ``with`` block, until the next ``update`` shows
    something else; their time does not count in the estimate.
    """
    from contracts.jit import report_compilations  # numba takes a second to import

    found: set[str] = set()

    def told(name: str) -> None:
        found.add(name)
        progress.aside(f"compiling, for the first time: function {len(found)}")

    with report_compilations(told):
        yield


class _Bar:
    def __init__(self, state: ProgressLine) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
        self._state = state
        self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task(state.text, total=state.total)

    def __enter__(self) -> None:
        self._state._on_change = self._show
        self._bar.start()

    def __exit__(self, *error: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._bar.stop()

    def _show(self) -> None:
        self._bar.update(self._task, description=self._state.text, completed=self._state.done)


class _Lines:
    """A thread that prints the state every ``EVERY_S``, so that a long step visibly makes progress."""

    def __init__(self, state: ProgressLine) -> None:
        self._state = state
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *error: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(EVERY_S):
            print(self._state.line(), file=sys.stderr, flush=True)
