"""CPU time of a server on this machine as a clock for step times: what else the machine does is not in it.

True of engines whose step runs in one thread (``OMP_NUM_THREADS=1``): the CPU time of a step is then the wall
time that it takes on a free core. An engine of many threads, or an accelerator, is timed by the wall. Linux.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from contracts.errors import MeasurementError

_PROC = Path("/proc")
_NS = 1e-9


def process_clock(pid: int) -> Callable[[], float]:
    """Clock in seconds: CPU time of the process ``pid`` and of those that it has started by now, all threads.

    Raises MeasurementError where there is none, or where the system does not count its time.
    """
    processes = tuple(_family(pid))

    def now() -> float:
        return _NS * sum(_spent_ns(one) for one in processes)

    if not processes or now() <= 0.0:
        raise MeasurementError(f"process {pid} is none of this machine, or its CPU time cannot be read")
    return now


def _family(pid: int) -> Iterator[int]:
    """The process, its children, their children."""
    if not (_PROC / str(pid)).is_dir():
        return
    yield pid
    with suppress(OSError):  # it may end while we look
        for children in (_PROC / str(pid) / "task").glob("*/children"):
            for child in children.read_text().split():
                yield from _family(int(child))


def _spent_ns(pid: int) -> int:
    """Of living threads; one that has ended takes its time with it."""
    spent = 0
    for thread in (_PROC / str(pid) / "task").glob("*/schedstat"):
        with suppress(OSError, IndexError):
            spent += int(thread.read_text().split()[0])
    return spent
