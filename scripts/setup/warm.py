"""Compiles the simulator's engine, the controller and the policies once and keeps the result on disk.

Run by the set-up step, and by ``selvage e5`` before it forks jobs: processes that compile the same functions
at the same time would do the work twice. Two processes share the work if there are two cores.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.queues import SimpleQueue

from contracts.jit import FUNCTIONS, is_all_compiled, note_all_compiled, report_compilations
from policies import warm as ours
from scripts.guard import die_with, ended_on_error
from scripts.provenance import cores
from simulator.engine import api
from simulator.telemetry import probes, scrapes
from simulator.truth import recorder
from simulator.world import workload

#: Compiles functions of one module for the types that the program uses.
Warm = Callable[[], object]

_WORLD: tuple[Warm, ...] = (api.warm, probes.warm, recorder.warm, scrapes.warm, workload.warm)
#: Functions that compile everything that the program compiles.
WARMED: tuple[Warm, ...] = (*_WORLD, ours.warm)
#: The same as work for two processes. A stage needs the results of earlier stages; the two lists of a
#: stage have hardly any function in common and take about the same time.
STAGES: tuple[tuple[tuple[Warm, ...], ...], ...] = (
    ((ours.warm_perception,), (api.warm, ours.warm_shield, *_WORLD[1:])),
    ((ours.warm_plain_policies,), (ours.warm_allocation, ours.warm_rest_of_perception)),
)
#: Seconds between two polls of the processes' progress, and between two lines that report it.
LOOK_S, SAY_S = 0.2, 5.0

#: Called with the number of functions compiled so far and the total number.
Tell = Callable[[int, int], None]


def warm(tell: Tell | None = None) -> list[str]:
    """Compile everything of ``WARMED``, or load it from the cache; returns the names of those modules.

    tell: called with progress while something is compiled.
    """
    done: set[str] = set()

    def count(name: str) -> None:
        done.add(name)
        if tell is not None:
            tell(len(done), len(FUNCTIONS))

    if cores() > 1 and not is_all_compiled():
        _compile_in_two(count)
    with report_compilations(count):
        for compile_one in WARMED:
            compile_one()
    note_all_compiled()
    return [compile_one.__module__ for compile_one in WARMED]


def warm_with_progress() -> None:
    """``warm`` with progress on stderr, for a command whose own work begins after it."""
    from scripts.progress import show_progress  # set-up warms before what draws bars is installed

    with show_progress("compiling, for the first time", len(FUNCTIONS)) as progress:
        warm(lambda done, _: progress.update(done=done))


def _compile_in_two(count: Callable[[str], None]) -> None:
    """Run ``STAGES``. Functions missing afterwards, for example after a killed process, are compiled last."""
    context = multiprocessing.get_context("spawn")
    names: SimpleQueue[str] = context.SimpleQueue()
    try:
        with ProcessPoolExecutor(2, context, _listen, (names, os.getpid())) as pool, ended_on_error():
            for stage in STAGES:
                running = {pool.submit(_call, functions) for functions in stage}
                while running:
                    finished, running = wait(running, LOOK_S)
                    while not names.empty():
                        count(names.get())
                    for one in finished:
                        one.result()
    except BrokenProcessPool:
        return


#: In a process that shares the work: folder for the names of compiled functions.
_NAMED: list[SimpleQueue[str]] = []


def _listen(names: SimpleQueue[str], parent: int) -> None:
    die_with(parent)
    # What a compiler builds lives long: searching it for garbage takes a tenth of the time.
    gc.disable()
    _NAMED.append(names)


def _call(functions: tuple[Warm, ...]) -> None:
    with report_compilations(_NAMED[0].put):
        for compile_one in functions:
            compile_one()


class CompileProgress:
    """Progress of compiling on stderr: one line that changes on a terminal, else a line now and then."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._started_at_s = self._said_at_s = time.perf_counter()

    def __call__(self, done: int, known: int) -> None:
        """Report that ``done`` of about ``known`` functions are compiled; some of them are not needed."""
        now_s = time.perf_counter()
        if self._terminal or now_s - self._said_at_s >= SAY_S:
            self._said_at_s = now_s
            sys.stderr.write(f"setup: compiled {done} of about {known}" + ("\r" if self._terminal else "\n"))
            sys.stderr.flush()

    def end(self) -> None:
        """Report the duration."""
        sys.stderr.write(
            f"setup: everything is compiled after {time.perf_counter() - self._started_at_s:.0f} s\n"
        )


if __name__ == "__main__":
    progress = CompileProgress()
    warm(progress)
    progress.end()
