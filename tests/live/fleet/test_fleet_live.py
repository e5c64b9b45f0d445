"""Real vLLM servers behind a real Envoy: they serve, survive kills, and leave no process behind."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from contracts.telemetry import ReplicaState
from live.fleet.control import down
from live.fleet.processes import await_group_end, group_members, runs
from live.fleet.state import FleetDiscovery, FleetFolder, Phase, read_state
from live.gateway.actuator import EnvoyActuator
from live.load import run_load
from tests.support.servers.live_fleets import (
    ONE,
    POOL,
    REPLICAS,
    acting,
    applied,
    await_restarted,
    bring_up,
    engine_of,
    forker_of,
    load,
    lost,
    pid_of,
    plan,
    selvage,
    server,
    spread,
    state_of,
)
from tests.support.waiting import until

pytestmark = [
    pytest.mark.needs("vllm", "torch", "envoy", "aiohttp"),
    pytest.mark.slow,
]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FleetFolder]:
    """Three servers, forked."""
    folder = bring_up(tmp_path_factory.mktemp("fork"), POOL, "--start", "fork")
    yield folder
    down(folder)


def test_a_fleet_says_what_runs_and_refuses_a_second(fleet: FleetFolder) -> None:
    """Status knows every server with kernel and fingerprint; another `up` in the same place is refused."""
    said = selvage("status", "--json", "--folder", str(fleet.path))
    assert said.returncode == 0
    found = json.loads(said.stdout)["fleet"]["servers"]
    assert [(one["name"], one["phase"]) for one in found] == [(name, "ready") for name in REPLICAS]
    prints = [one["fingerprint"] for one in found]
    assert prints[0] == prints[1] != prints[2]
    second = selvage("up", "--folder", str(fleet.path))
    assert second.returncode == 2
    assert "runs there already" in second.stderr
    replicas = FleetDiscovery(fleet).replicas()
    assert [one.state for one in replicas] == [ReplicaState.READY] * 3


def test_slices_are_served_by_their_homes_and_nothing_else_is_open(fleet: FleetFolder) -> None:
    """Slices are at home until a controller drives; development routes and servers' metrics stay internal."""
    url = state_of(fleet).gateway.url
    for name, kernel in (("prose", "fp16"), ("numbers", "fp32")):
        body = {"model": "selvage", "prompt": [1, 2, 3], "max_tokens": 2}
        answer = httpx.post(
            f"{url}/v1/completions", json=body, headers={"x-selvage-slice": name}, timeout=30.0
        )
        assert answer.status_code == 200
        assert answer.headers["x-selvage-replica"].startswith(kernel)
    assert httpx.get(f"{url}/metrics", timeout=5.0).status_code == 404


def test_tables_change_under_load_without_a_lost_request(fleet: FleetFolder) -> None:
    """Twenty plans in quick succession, quarantines among them: every request is answered."""

    def change() -> None:
        def drive(actuator: EnvoyActuator) -> None:
            for number in range(20):
                share, turn = 0.1 * (number % 11), number % 3
                places = (turn != 0, turn != 1, True)
                rows = [[share, 1.0 - share, 0.0], [1.0 - share, share, 0.0]]
                applied(actuator, plan(10 + number, rows, places))
                time.sleep(0.2)

        acting(fleet, drive)

    records = run_load(load(fleet, 6.0), change)
    assert len(records) > 30
    assert lost(records) == []
    assert {record.replica for record in records} == set(REPLICAS)


def test_a_killed_server_costs_only_streams_that_had_begun(fleet: FleetFolder) -> None:
    """SIGKILL of a whole replica under load: nothing fails that a healthy one could serve; it returns."""
    spread(fleet)
    was = pid_of(fleet, "fp16-1")

    def kill() -> None:
        time.sleep(1.5)
        os.killpg(was, signal.SIGKILL)

    records = run_load(load(fleet, 5.0), kill)
    assert [r for r in lost(records) if not (r.streamed and r.replica == "fp16-1")] == []
    await_restarted(fleet, "fp16-1", was)


def test_a_hung_engines_requests_are_answered_elsewhere_after_a_reset(fleet: FleetFolder) -> None:
    """An engine stopped by SIGSTOP behind a healthy /health: its waiting requests move after a reset."""
    acting(fleet, lambda actuator: applied(actuator, plan(40, [[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])))
    engine = engine_of(pid_of(fleet, "fp16-0"))

    def hang_then_rescue() -> None:
        time.sleep(0.5)
        os.kill(engine, signal.SIGSTOP)
        time.sleep(1.0)

        def rescue(actuator: EnvoyActuator) -> None:
            applied(actuator, plan(41, [[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]], (False, True, True)))
            actuator.reset("fp16-0")

        acting(fleet, rescue)

    try:
        records = run_load(load(fleet, 3.0, streamed=0.0), hang_then_rescue)
        health = httpx.get(f"{server(fleet, 'fp16-0').url}/health", timeout=5.0)
    finally:
        os.kill(engine, signal.SIGCONT)
    assert health.status_code == 200
    assert lost(records) == []
    assert max(record.duration_ms for record in records) > 1000.0


def test_a_killed_api_server_leaves_no_engine(fleet: FleetFolder) -> None:
    """SIGKILL of the API server alone: its engine, which would otherwise hold the port, ends as well."""
    was = pid_of(fleet, "fp32-0")
    engine = engine_of(was)
    os.kill(was, signal.SIGKILL)
    until(lambda: engine not in group_members(was))
    await_restarted(fleet, "fp32-0", was)


def test_a_killed_engine_brings_its_server_back(fleet: FleetFolder) -> None:
    """SIGKILL of the engine alone: the API server ends and the replica is started again."""
    was = pid_of(fleet, "fp32-0")
    os.kill(engine_of(was), signal.SIGKILL)
    await_restarted(fleet, "fp32-0", was)
    assert group_members(was) == []


def test_a_killed_forker_takes_no_server_along(fleet: FleetFolder) -> None:
    """SIGKILL of the process that forks servers: all continue, and the next start has a new one."""
    before = {name: pid_of(fleet, name) for name in REPLICAS}
    forker = forker_of(state_of(fleet).supervisor.pid)
    os.kill(forker, signal.SIGKILL)
    records = run_load(load(fleet, 1.5))
    assert lost(records) == []
    assert {name: pid_of(fleet, name) for name in REPLICAS} == before
    os.killpg(before["fp16-1"], signal.SIGKILL)
    await_restarted(fleet, "fp16-1", before["fp16-1"])


def test_a_killed_envoy_is_started_again(fleet: FleetFolder) -> None:
    """SIGKILL of the gateway: it comes back at the same address with the table that was in force."""
    was = state_of(fleet).gateway
    assert was.process is not None
    os.kill(was.process.pid, signal.SIGKILL)

    def again() -> bool:
        now = state_of(fleet).gateway
        return now.process is not None and now.process != was.process

    until(again)
    assert state_of(fleet).gateway.url == was.url
    assert lost(run_load(load(fleet, 1.0))) == []


def test_a_killed_supervisor_leaves_no_process(fleet: FleetFolder) -> None:
    """SIGKILL of the supervisor ends servers, engines and Envoy; status and down say so. The last here."""
    last = state_of(fleet)
    groups = [one.process.pid for one in last.servers if one.process is not None]
    assert last.gateway.process is not None
    groups.append(last.gateway.process.pid)
    os.kill(last.supervisor.pid, signal.SIGKILL)
    assert all(await_group_end(group, 20.0) for group in groups)
    until(lambda: not runs(last.supervisor))
    said = selvage("status", "--folder", str(fleet.path))
    assert (said.returncode, "no fleet runs" in said.stdout) == (1, True)
    assert selvage("down", "--folder", str(fleet.path)).returncode == 0
    assert {one.state for one in FleetDiscovery(fleet).replicas()} == {ReplicaState.ABSENT}


def test_a_single_server_leaves_no_process_either(tmp_path: Path) -> None:
    """Without forking: SIGKILL of the API server ends its engine, `down` ends everything, twice is once."""
    folder = bring_up(tmp_path, ONE, "--start", "spawn")
    try:
        was = pid_of(folder, "fp16-0")
        engine = engine_of(was)
        os.kill(was, signal.SIGKILL)
        until(lambda: engine not in group_members(was))
        groups = [one.process.pid for one in state_of(folder).servers if one.process is not None]
    finally:
        assert down(folder)
    assert all(await_group_end(group, 10.0) for group in groups)
    assert not down(folder)
    state = read_state(folder)
    assert state is not None
    assert {one.phase for one in state.servers} == {Phase.STOPPED}
