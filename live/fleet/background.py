"""A fleet for as long as a block of code: its supervisor is a process of its own."""

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
    """The fleet as it was when everything served; it ends with the block. LiveError where it stays down."""
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
    """Whether the state file is the one of this supervisor."""
    state = read_state(folder)
    return state is not None and state.supervisor.pid == pid


def _supervise(folder: FleetFolder, plan: FleetPlan, options: SupervisorOptions) -> None:
    """The supervisor's process; what it says goes to its log."""
    log = folder.log("supervisor")
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8") as stream:
        sys.stderr = stream
        supervisor = Supervisor(folder, plan, options, lambda text: _say(log, text))
        signal.signal(signal.SIGTERM, supervisor.stop)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is for the one who started us
        threading.Thread(target=_end_with, args=(os.getppid(), supervisor.stop), daemon=True).start()
        supervisor.run()


def _end_with(parent: int, stop: Callable[[], None]) -> None:
    """Stop the fleet soon after the process ``parent`` has ended, however that was."""
    while os.getppid() == parent:
        time.sleep(_LOOK_S)
    stop()


def _say(log: Path, text: str) -> None:
    with log.open("a", encoding="utf-8") as stream:
        stream.write(f"{text}\n")
