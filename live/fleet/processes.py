"""Identity of processes, robust against reused process numbers, and a process's CPU time as a clock.

The clock measures the step times of a server without the other load of the machine. This is valid for
engines that step in one thread (``OMP_NUM_THREADS=1``): the CPU time of a step equals its wall time on a free
core. Engines with several threads or an accelerator are measured in wall time. Linux only (``/proc``).
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from contracts.errors import MeasurementError

_PR_SET_CHILD_SUBREAPER = 36
_AFTER_NAME = 2  # fields of /proc/PID/stat are counted from field 3, the one after the command
_STATE, _GROUP, _STARTED = 3 - 1 - _AFTER_NAME, 5 - 1 - _AFTER_NAME, 22 - 1 - _AFTER_NAME


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessId:
    """A process: its number, and its start time in ticks since boot."""

    pid: int
    started_ticks: int


def process_id(pid: int) -> ProcessId | None:
    """The process that has the number ``pid`` now; None if there is none."""
    fields = _fields(pid)
    return ProcessId(pid=pid, started_ticks=int(fields[_STARTED])) if fields else None


def runs(process: ProcessId) -> bool:
    """Whether exactly this process is alive; a zombie does not count."""
    fields = _fields(process.pid)
    return bool(fields) and fields[_STATE] != "Z" and int(fields[_STARTED]) == process.started_ticks


def group_members(group: int) -> list[int]:
    """Process numbers of a process group's living members."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            fields = _fields(int(entry.name))
            if fields and fields[_STATE] != "Z" and int(fields[_GROUP]) == group:
                found.append(int(entry.name))
    return sorted(found)


def engine_of(group: int) -> int | None:
    """The engine process in a server's process group, found by vLLM's title for it; None if there is none."""
    others = [pid for pid in group_members(group) if pid != group]
    return next((pid for pid in others if "EngineCore" in title_of(pid)), None)


def title_of(pid: int) -> str:
    """Command line and name of a process; "" if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text() + Path(f"/proc/{pid}/comm").read_text()
    except OSError:
        return ""


def kill_group(group: int, number: signal.Signals = signal.SIGKILL) -> bool:
    """Send a signal to a process group; False if the group is empty."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
        return True
    return False


def await_group_end(group: int, timeout_s: float) -> bool:
    """Wait until a process group has no living member; False if it still has one after ``timeout_s``."""
    deadline_at_s = time.monotonic() + timeout_s
    while group_members(group):
        if time.monotonic() > deadline_at_s:
            return False
        time.sleep(0.02)
    return True


def group_memory_bytes(group: int) -> int:
    """Memory of a process group, shared pages divided among their users (PSS); 0 if the system does
    not tell.
    """
    return sum(_proportional_bytes(pid) for pid in group_members(group))


def adopt_orphans() -> None:
    """Become the parent of orphaned descendants (PR_SET_CHILD_SUBREAPER)."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def _fields(pid: int) -> list[str]:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def _proportional_bytes(pid: int) -> int:
    with suppress(OSError, ValueError, IndexError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return 1024 * int(line.split()[1])
    return 0


_PROC = Path("/proc")
_NS = 1e-9


def process_clock(pid: int) -> Callable[[], float]:
    """Clock in seconds: CPU time of the process ``pid`` and its present descendants, all threads.

    Raises MeasurementError if there is no such process, or its CPU time cannot be read.
    """
    processes = tuple(_family(pid))

    def now() -> float:
        return _NS * sum(_spent_ns(one) for one in processes)

    if not processes or now() <= 0.0:
        raise MeasurementError(f"process {pid} is none of this machine, or its CPU time cannot be read")
    return now


def _family(pid: int) -> Iterator[int]:
    """The process and its descendants."""
    if not (_PROC / str(pid)).is_dir():
        return
    yield pid
    with suppress(OSError):  # it may end meanwhile
        for children in (_PROC / str(pid) / "task").glob("*/children"):
            for child in children.read_text().split():
                yield from _family(int(child))


def _spent_ns(pid: int) -> int:
    """CPU time of living threads; the time of an ended thread is no longer included."""
    spent = 0
    for thread in (_PROC / str(pid) / "task").glob("*/schedstat"):
        with suppress(OSError, IndexError):
            spent += int(thread.read_text().split()[0])
    return spent
