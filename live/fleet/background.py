"""A fleet that runs for the duration of a code block; its supervisor is a separate process."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from live.errors import LiveError
from live.fleet.control import await_ready, down
from live.fleet.plan import FleetPlan
from live.fleet.state import FleetFolder, FleetState, read_state
from live.fleet.supervisor import Supervisor, SupervisorOptions

_LOOK_S = 0.5


@contextmanager
def running_fleet(folder: FleetFolder, plan: FleetPlan, options: SupervisorOptions) -> Iterator[FleetState]:
    """The state of the fleet once everything serves; the fleet ends with the block. LiveError if it fails to
    start.
    """
    process = multiprocessing.get_context("spawn").Process(target=_supervise, args=(folder, plan, options))
    process.start()
    try:
        while not _speaks(folder, process.pid):
            process.join(0.05)
            if process.exitcode is not None:
                raise LiveError(f"the supervisor ended with exit code {process.exitcode}; see {folder.path}")
        yield await_ready(folder, options.start_s)
    finally:
        down(folder)
        process.terminate()
        process.join(30.0)


def _speaks(folder: FleetFolder, pid: int | None) -> bool:
    """Whether this supervisor wrote the state file."""
    state = read_state(folder)
    return state is not None and state.supervisor.pid == pid


def _supervise(folder: FleetFolder, plan: FleetPlan, options: SupervisorOptions) -> None:
    """The supervisor's process; its output goes to its log."""
    log = folder.log("supervisor")
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8") as stream:
        sys.stderr = stream
        supervisor = Supervisor(folder, plan, options, lambda text: _say(log, text))
        signal.signal(signal.SIGTERM, supervisor.stop)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal is for the parent process
        threading.Thread(target=_end_with, args=(os.getppid(), supervisor.stop), daemon=True).start()
        supervisor.run()


def _end_with(parent: int, stop: Callable[[], None]) -> None:
    """Stop the fleet soon after the process ``parent`` has ended, for whatever reason."""
    while os.getppid() == parent:
        time.sleep(_LOOK_S)
    stop()


def _say(log: Path, text: str) -> None:
    with log.open("a", encoding="utf-8") as stream:
        stream.write(f"{text}\n")
