"""A fleet of real vLLM servers for tests, and queries of it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from contracts.compiled.contract import FleetLayout
from controller.ports import RoutingPlan
from live.fleet.control import gateway_control, require_up
from live.fleet.processes import engine_of as engine_process
from live.fleet.processes import group_members, title_of
from live.fleet.state import FleetDiscovery, FleetFolder, FleetState, Phase, ServerState
from live.gateway.actuator import EnvoyActuator, RoutingFrame
from live.load import LoadPlan, LoadRecord
from tests.support.paths import ROOT
from tests.support.waiting import until

#: Half and single precision: they run on every processor, bfloat16 does not (see live.fleet.plan).
POOL = """
apiVersion: selvage.dev/v1alpha1
kind: KernelPool
metadata: {name: test-pool}
spec:
  kernels:
    - {name: fp16, profile: none.yaml, replicas: 2, role: serving}
    - {name: fp32, profile: none.yaml, replicas: 1, role: known_good}
  home:
    - {slice: prose, kernel: fp16}
    - {slice: numbers, kernel: fp32}
"""
ONE = POOL.replace("replicas: 2", "replicas: 1").replace("{slice: numbers, kernel: fp32}", "")
ONE = ONE.replace("    - {name: fp32, profile: none.yaml, replicas: 1, role: known_good}\n", "")
ONE = ONE.replace("role: serving", "role: known_good").replace("    - \n", "")
REPLICAS = ("fp16-0", "fp16-1", "fp32-0")


def selvage(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in a separate process."""
    command = [sys.executable, "-m", "scripts.cli.main", "fleet", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=400)


def bring_up(place: Path, pool: str, *words: str) -> FleetFolder:
    """A fleet of ``pool``, in the background."""
    (place / "pool.yaml").write_text(pool)
    folder = FleetFolder(path=place / "fleet")
    said = selvage("up", str(place / "pool.yaml"), "--detach", "--folder", str(folder.path), *words)
    assert said.returncode == 0, said.stderr
    return folder


def state_of(folder: FleetFolder) -> FleetState:
    """The fleet now."""
    return require_up(folder)


def server(folder: FleetFolder, name: str) -> ServerState:
    """One server now."""
    return next(one for one in state_of(folder).servers if one.name == name)


def pid_of(folder: FleetFolder, name: str) -> int:
    """Main process of a server."""
    process = server(folder, name).process
    assert process is not None
    return process.pid


def engine_of(group: int) -> int:
    """The engine's process of a server's group."""
    found = engine_process(group)
    assert found is not None
    return found


def await_restarted(folder: FleetFolder, name: str, was: int) -> None:
    """Wait until a server is ready again as another process."""

    def again() -> bool:
        now = server(folder, name)
        return now.phase is Phase.READY and now.process is not None and now.process.pid != was

    until(again)


def load(folder: FleetFolder, seconds: float, rate_rps: float = 12.0, streamed: float = 0.3) -> LoadPlan:
    """An open loop on both slices."""
    return LoadPlan(
        url=state_of(folder).gateway.url,
        rate_rps=rate_rps,
        seconds=seconds,
        slices=("prose", "numbers"),
        streamed_ratio=streamed,
        timeout_s=60.0,
    )


def lost(records: list[LoadRecord]) -> list[LoadRecord]:
    """Requests that were not answered to their end."""
    return [record for record in records if not record.complete]


LAYOUT = FleetLayout(
    kernels=("fp16", "fp32"),
    slices=("prose", "numbers"),
    replicas=REPLICAS,
    replica_kernel=np.array([0, 0, 1], dtype=np.int64),
    probe_metrics=(),
    known_good=1,
)


def plan(
    version: int, rows: list[list[float]], rotation: tuple[bool, bool, bool] = (True,) * 3
) -> RoutingPlan:
    """A controller's plan; rows [slice][fp16, fp32, shed]."""
    return RoutingPlan(table=np.array([rows]), in_rotation=np.array([rotation]), version=np.array([version]))


def acting(folder: FleetFolder, do: Callable[[EnvoyActuator], Any]) -> None:
    """Run ``do`` with the fleet's actuator."""
    with gateway_control(folder) as driver:
        frame = RoutingFrame(layout=LAYOUT, default_slice="prose")
        do(EnvoyActuator(driver, FleetDiscovery(folder), frame))


def spread(folder: FleetFolder) -> None:
    """Both slices on every kernel."""
    both = plan(1, [[0.6, 0.4, 0.0], [0.4, 0.6, 0.0]])
    acting(folder, lambda actuator: applied(actuator, both))


def applied(actuator: EnvoyActuator, wanted: RoutingPlan) -> None:
    """Put a plan in force."""
    assert actuator.apply(wanted), actuator.last_error


def forker_of(supervisor: int) -> int:
    """Child of the supervisor that forks: recognised by its command, leader of a group without an engine."""
    groups = [int(pid.name) for pid in Path("/proc").iterdir() if pid.name.isdigit()]
    found = [pid for pid in groups if _is_forker(pid, supervisor)]
    assert len(found) == 1
    return found[0]


def _is_forker(pid: int, supervisor: int) -> bool:
    try:
        parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError):
        return False
    return parent == supervisor and "vllm_server.py\0fork" in title_of(pid) and len(group_members(pid)) == 1
