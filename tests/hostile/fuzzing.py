"""One reader against many mutated files, in workers that may raise, hang, swell or die.

A mutation is identified by reader and number. A worker is observed from outside: one that takes longer than
``Limits.seconds``, without its waiting for a core, is killed, whatever it is doing and whatever it
catches, and its mutation is tried once more; then it is a finding. So is a worker that holds more than
``Limits.bytes`` beyond its memory after the good files were read. No kernel limit prevents an allocation: a
reader that swallows a MemoryError would hide behind it.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tests.hostile.worker import Mark, clock_s, work

#: Seconds between two polls of the workers, and between two lines of progress.
_LOOK_S, _TELL_S = 0.05, 20.0
_PAGE_BYTES = os.sysconf("SC_PAGESIZE")
_PROCESSES = get_context("forkserver")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of one mutation, of time and of memory."""

    seconds: float = 5.0
    bytes: int = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """The reader ``name`` of the module ``catalogue``, with the mutations 0 to ``count``."""

    catalogue: str
    name: str
    count: int
    limits: Limits = Limits()
    workers: int = 1


@dataclass(slots=True, kw_only=True)
class Outcome:
    """done, refused: mutations. findings: descriptions, with the first mutation that showed each and their
    number. grown_bytes: largest growth of one worker.
    """

    done: int = 0
    refused: int = 0
    longest_s: float = 0.0
    grown_bytes: int = 0
    findings: dict[str, tuple[int, int]] = field(default_factory=dict)

    def note(self, number: int, text: str) -> None:
        """Count one more mutation that showed ``text``."""
        first, count = self.findings.get(text, (number, 0))
        self.findings[text] = (min(first, number), count + 1)


def fuzz(task: Task, say: Callable[[str], None] = lambda _: None) -> Outcome:
    """Results of the mutations of ``task``; ``say`` gets a line of progress now and then."""
    _PROCESSES.set_forkserver_preload([task.catalogue])
    outcome, began_at_s = Outcome(), time.monotonic()
    told_s = began_at_s
    with tempfile.TemporaryDirectory(dir=_quick_folder()) as folder:
        lanes = [_Lane(task, Path(folder) / str(first), first, outcome) for first in range(task.workers)]
        try:
            while sum(lane.goes_on() for lane in lanes):  # each lane is served
                time.sleep(_LOOK_S)
                if time.monotonic() - told_s > _TELL_S:
                    told_s = time.monotonic()
                    done = sum(lane.mark.done for lane in lanes)
                    say(f"{task.name}: {done} of {task.count} mutations, {told_s - began_at_s:.0f} s")
        finally:
            for lane in lanes:
                lane.end()
    _add(outcome, [lane.mark for lane in lanes])
    say(_line(task, outcome, time.monotonic() - began_at_s))
    return outcome


def _add(outcome: Outcome, marks: list[Mark]) -> None:
    outcome.done = sum(mark.done for mark in marks)
    outcome.refused = sum(mark.refused for mark in marks)
    outcome.longest_s = max(mark.longest_s for mark in marks)
    outcome.grown_bytes = max(mark.grown_bytes for mark in marks)


def _line(task: Task, outcome: Outcome, seconds: float) -> str:
    return (
        f"{task.name}: {outcome.done} mutations in {seconds:.0f} s, {outcome.refused} refused,"
        f" {outcome.longest_s:.2f} s and {outcome.grown_bytes / 1e6:.0f} MB at most,"
        f" {len(outcome.findings)} findings"
    )


def _quick_folder() -> str | None:
    """A folder in memory if possible: a file on disk costs more than its reader."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


class _Lane:
    """Every ``task.workers``-th mutation from ``first`` on, in one worker after the other."""

    def __init__(self, task: Task, folder: Path, first: int, outcome: Outcome) -> None:
        folder.mkdir()
        self._task, self._folder, self._outcome = task, folder, outcome
        self._next, self._tried = first, -1
        self._told: set[int] = set()
        self._failed = ""
        self.mark = Mark(_PROCESSES)
        self._begin()

    def _begin(self) -> None:
        self.mark.begin()
        mine, its = _PROCESSES.Pipe(duplex=False)
        asked = (self._task.catalogue, self._task.name, self._folder)
        numbers = range(self._next, self._task.count, self._task.workers)
        limits = self._task.limits.seconds, self._task.limits.bytes
        self._process: Any = _PROCESSES.Process(
            target=work, args=(*asked, numbers, limits, self.mark, its), daemon=True
        )
        self._process.start()
        its.close()
        self._received: Connection = mine

    def goes_on(self) -> bool:
        """Check the worker; False once all mutations were read."""
        self._listen()
        if not self._process.is_alive():
            return self._after_its_end()
        what = self._late() or self._swollen()
        if what:
            self.end()
            self._listen()
            if not self.mark.finished:
                self._go_on_beyond(what)
        return True

    def end(self) -> None:
        """Kill the worker, if it lives, and wait for its end."""
        self._process.kill()
        self._process.join()

    def _listen(self) -> None:
        try:
            while self._received.poll():
                number, _, text = self._received.recv_bytes().decode(errors="replace").partition(" ")
                if int(number) < 0:
                    self._failed = text
                    continue
                self._told.add(int(number))
                self._outcome.note(int(number), text)
        except EOFError:
            return

    def _after_its_end(self) -> bool:
        self._process.join()
        self._listen()
        if self.mark.finished:
            return False
        if self.mark.number < 0:
            raise RuntimeError(f"{self._task.name}: the good files were not read: {self._failed}")
        self._go_on_beyond(f"the process ended with {self._process.exitcode}")
        return True

    def _go_on_beyond(self, what: str) -> None:
        """Start a new worker for the remaining mutations; a late one is tried again the first time."""
        number = self.mark.number
        again = what.startswith("late") and self._tried != number
        self._tried, self._next = number, number if again else number + self._task.workers
        if not again:
            self.mark.count_one()
            if number not in self._told:
                self._outcome.note(number, what)
        self._received.close()
        self._begin()

    def _late(self) -> str:
        began_at_s = self.mark.began_at_s
        late = began_at_s > 0.0 and clock_s(self._process.pid) - began_at_s > self._task.limits.seconds
        if not late or not self._process.is_alive():  # the waiting time of a finished worker is unknown
            return ""
        return f"late: more than {self._task.limits.seconds:g} s"

    def _swollen(self) -> str:
        """Memory above the limit, measured from outside: a reader may not return in time to report it."""
        if self.mark.held_bytes <= 0:
            return ""
        try:
            pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
        except (OSError, IndexError):  # it has just ended
            return ""
        grown = pages * _PAGE_BYTES - self.mark.held_bytes
        most = self._task.limits.bytes
        return f"held more than {most} bytes" if grown > most else ""


def to_terminal(line: str) -> None:
    """A line of progress."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
