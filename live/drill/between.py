"""Resets a fleet between two drills: replicas up, no fault in force, slices at home, no old state."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from controller.ports import RoutingPlan
from faults.client.wire import DrillError
from faults.drill.ledger import RECORDS
from faults.drill.runner import Say
from live.drill.servers import faults_of
from live.errors import LiveError, PlanError
from live.fleet.control import await_ready, gateway_control, restart_and_wait
from live.fleet.plan import FleetPlan
from live.fleet.state import FleetDiscovery, FleetFolder
from live.gateway.actuator import EnvoyActuator, RoutingFrame

_READY_S = 180.0


def await_clean_fleet(folder: FleetFolder, plan: FleetPlan, say: Say) -> None:
    """Wait until every replica of the running fleet serves and is clean, and every slice is at home.

    A replica is clean if its canary equals that of its clean run; any other is restarted. Raises LiveError if
    a replica does not come back, or the gateway does not accept the home table.
    """
    state = await_ready(folder, _READY_S)
    for server in state.servers:
        if not _clean(folder, server.name):
            say(f"{server.name} is not as it was: started anew")
            _anew(folder, server.name)
    with gateway_control(folder) as driver:
        frame = RoutingFrame(layout=plan.layout(), default_slice=plan.default_slice)
        actuator = EnvoyActuator(driver, FleetDiscovery(folder), frame)
        if not actuator.apply(home_plan(plan)):
            raise PlanError(f"the home table is not in force: {actuator.last_error}")


def keep_decisions(control: Path, place: Path) -> None:
    """Move the log and evidence in ``control`` to ``place`` and delete the state; reference answers stay.

    The next controller of this fleet then begins without knowledge, as the first one did.
    """
    place.mkdir(parents=True, exist_ok=True)
    for old in place.glob("decisions-*.jsonl"):
        old.unlink()
    for log in sorted(control.glob("decisions-*.jsonl")):
        shutil.move(log, place / log.name)
    shutil.rmtree(place / "evidence", ignore_errors=True)
    if (control / "evidence").is_dir():
        shutil.move(control / "evidence", place / "evidence")
    for state in control.glob("controller-state*.json"):
        state.unlink()


def home_plan(plan: FleetPlan, version: int = 1) -> RoutingPlan:
    """Every slice on its home kernel, every replica in rotation."""
    layout = plan.layout()
    homes = np.eye(len(layout.kernels) + 1)[[layout.kernels.index(home) for home in plan.homes]]
    rotation = np.ones((1, len(plan.replicas)), dtype=np.bool_)
    return RoutingPlan(table=homes[None], in_rotation=rotation, version=np.array([version]))


def _anew(folder: FleetFolder, name: str) -> None:
    """Restart a replica and wait until it serves; LiveError if it does not."""
    if not restart_and_wait(folder, name, _READY_S):
        raise LiveError(f"{name}: did not come back within {_READY_S:g} s; see {folder.log(name)}")


def _clean(folder: FleetFolder, name: str) -> bool:
    """Whether the replica's weights equal those of its clean run, after an undo of all faults in force."""
    try:
        return faults_of(folder, name, folder.drills / RECORDS).undo().clean
    except (DrillError, LiveError):
        return False
