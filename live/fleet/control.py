"""Inspects, changes and ends a fleet from another process: a terminal, a test, a controller."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

from live.errors import LiveError
from live.fleet.processes import ProcessId, kill_group, runs
from live.fleet.state import FleetFolder, FleetState, Phase, is_up, read_state
from live.fleet.supervisor import end_leftovers
from live.gateway.admin import EnvoyAdmin
from live.gateway.driver import GatewayDriver
from live.gateway.statistics import GatewayLogs

_DOWN_S = 20.0


def fleets_folder() -> Path:
    """Folder of all fleets: ``SELVAGE_FLEETS``, or in the user's state folder."""
    named = os.environ.get("SELVAGE_FLEETS")
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(named) if named else Path(state) / "selvage" / "fleets"


def require_up(folder: FleetFolder) -> FleetState:
    """State of the running fleet in ``folder``; LiveError if none runs."""
    state = read_state(folder)
    if state is None or not is_up(state):
        raise LiveError(f"{folder.path}: no fleet runs there; start one with `selvage fleet up`")
    return state


def down(folder: FleetFolder) -> bool:
    """End the fleet in ``folder``; whether there was anything to end.

    The supervisor is asked first. Processes that it leaves behind, or left when it was killed, are killed.
    """
    state = read_state(folder)
    if state is None:
        return False
    found = is_up(state)
    if found:
        _end(state)
    return end_leftovers(state) > 0 or found


def restart(folder: FleetFolder, name: str) -> None:
    """Kill one server with its engine; the supervisor starts it again. LiveError if it does not run."""
    state = require_up(folder)
    process = _process(state, name)
    if process is None or not runs(process):
        raise LiveError(f"{name}: no such server runs; there are {', '.join(s.name for s in state.servers)}")
    kill_group(process.pid)


def restart_and_wait(folder: FleetFolder, name: str, timeout_s: float) -> bool:
    """``restart`` the server and wait until its new process serves; False if it does not in time."""
    was = _process(require_up(folder), name)
    restart(folder, name)
    deadline_at_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_at_s:
        state = require_up(folder)
        ready = any(one.name == name and one.phase is Phase.READY for one in state.servers)
        if ready and _process(state, name) != was:
            return True
        time.sleep(0.2)
    return False


def await_ready(folder: FleetFolder, timeout_s: float) -> FleetState:
    """Wait until everything serves; LiveError if the supervisor ends or the time is up."""
    deadline_at_s = time.monotonic() + timeout_s
    while True:
        state = require_up(folder)
        if state.ready():
            return state
        if time.monotonic() > deadline_at_s:
            waiting = [f"{s.name} {s.phase.value} {s.note}" for s in state.servers]
            raise LiveError(f"{folder.path}: not ready within {timeout_s:g} s: {'; '.join(waiting)}")
        time.sleep(0.05)


@contextmanager
def gateway_control(folder: FleetFolder) -> Iterator[GatewayDriver]:
    """The gateway driver of a running fleet; only this process may change the gateway meanwhile."""
    state = require_up(folder)
    with ExitStack() as stack:
        admin = stack.enter_context(closing(EnvoyAdmin(state.gateway.admin_url)))
        driver = GatewayDriver(state.gateway.settings, folder.gateway, admin)
        yield stack.enter_context(closing(driver))


def statistics(folder: FleetFolder) -> GatewayLogs:
    """The gateway logs of a running fleet, from their first row on. Call ``close`` at the end."""
    state = require_up(folder)
    return GatewayLogs(folder.gateway, EnvoyAdmin(state.gateway.admin_url), state.slices)


def _process(state: FleetState, name: str) -> ProcessId | None:
    return next((server.process for server in state.servers if server.name == name), None)


def _end(state: FleetState) -> None:
    with suppress(ProcessLookupError):
        os.kill(state.supervisor.pid, signal.SIGTERM)
    deadline_at_s = time.monotonic() + _DOWN_S
    while runs(state.supervisor):
        if time.monotonic() > deadline_at_s:
            os.kill(state.supervisor.pid, signal.SIGKILL)
        time.sleep(0.02)
