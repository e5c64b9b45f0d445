"""The state file: written states are read back, foreign files are refused, dead fleets are recognised."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from contracts.telemetry import ReplicaState
from live.errors import LiveError
from live.fleet.processes import ProcessId, process_id
from live.fleet.state import (
    FleetDiscovery,
    FleetFolder,
    FleetState,
    GatewayState,
    Phase,
    ServerState,
    is_up,
    read_state,
    write_state,
)
from live.gateway.settings import GatewaySettings

GONE = ProcessId(pid=2**22 + 1, started_ticks=1)


def fleet(supervisor: ProcessId) -> FleetState:
    """A fleet of two servers, one ready."""
    servers = (
        ServerState(name="a-0", kernel="a", url="http://127.0.0.1:1", phase=Phase.READY, process=GONE),
        ServerState(name="b-0", kernel="b", url="http://127.0.0.1:2", phase=Phase.WAITING, note="ended"),
    )
    return FleetState(
        pool="p",
        model="",
        served_name="selvage",
        how="fork",
        supervisor=supervisor,
        servers=servers,
        gateway=GatewayState(
            url="http://127.0.0.1:3", admin_url="http://127.0.0.1:4", settings=GatewaySettings()
        ),
        slices=("s",),
        homes=("a",),
        default_slice="s",
    )


def test_what_is_written_is_read(tmp_path: Path) -> None:
    """A state is read back unchanged; without a file there is none."""
    folder = FleetFolder(path=tmp_path)
    assert read_state(folder) is None
    write_state(folder, fleet(GONE))
    assert read_state(folder) == fleet(GONE)


@pytest.mark.parametrize("text", ["{", "[]", '{"format": 0}'])
def test_files_of_others_are_refused(tmp_path: Path, text: str) -> None:
    """A file of another version or kind is an error instead of half a fleet."""
    folder = FleetFolder(path=tmp_path)
    folder.state.write_text(text)
    with pytest.raises(LiveError, match=r"fleet\.json"):
        read_state(folder)


def test_a_number_that_another_process_has_now_is_not_the_supervisor(tmp_path: Path) -> None:
    """A process is known by number and start: a later one with the same number does not count."""
    this = process_id(os.getpid())
    assert this is not None
    assert is_up(fleet(this))
    assert not is_up(fleet(replace(this, started_ticks=this.started_ticks + 1)))
    assert not is_up(None)


def test_discovery_tells_the_phases_and_that_a_fleet_is_gone(tmp_path: Path) -> None:
    """Ready and dead servers while the supervisor lives; all absent after its death."""
    folder = FleetFolder(path=tmp_path)
    this = process_id(os.getpid())
    assert this is not None
    write_state(folder, fleet(this))
    found = FleetDiscovery(folder).replicas()
    assert [(one.name, one.state, one.pid) for one in found] == [
        ("a-0", ReplicaState.READY, GONE.pid),
        ("b-0", ReplicaState.DEAD, None),
    ]
    write_state(folder, fleet(GONE))
    assert {one.state for one in FleetDiscovery(folder).replicas()} == {ReplicaState.ABSENT}


@pytest.mark.parametrize("text", [None, "{", "[]", '{"format": 0}'])
def test_servers_stand_as_last_seen_where_the_file_cannot_be_read(tmp_path: Path, text: str | None) -> None:
    """Missing, torn or foreign file: the last state stays, with the reason, until the file is valid again; a
    new reader raises. Without their supervisor servers are absent, whatever the file says.
    """
    folder, this = FleetFolder(path=tmp_path), process_id(os.getpid())
    assert this is not None
    write_state(folder, fleet(this))
    discovery = FleetDiscovery(folder)
    known = discovery.replicas()
    assert [one.state for one in known] == [ReplicaState.READY, ReplicaState.DEAD]
    assert discovery.outdated == ""
    folder.state.unlink() if text is None else folder.state.write_text(text)
    assert discovery.replicas() == known
    assert "fleet.json" in discovery.outdated
    if text is not None:
        with pytest.raises(LiveError):
            FleetDiscovery(folder).replicas()
    write_state(folder, fleet(GONE))
    assert {one.state for one in discovery.replicas()} == {ReplicaState.ABSENT}
    assert discovery.outdated == ""
    folder.state.unlink()
    assert {one.state for one in discovery.replicas()} == {ReplicaState.ABSENT}


def test_a_restarted_fleet_differs_from_the_one_seen_before(tmp_path: Path) -> None:
    """Its gateway has other ports: a controller of the earlier fleet is refused, with advice."""
    folder, this = FleetFolder(path=tmp_path), process_id(os.getpid())
    other = process_id(os.getppid())
    assert this is not None
    assert other is not None
    write_state(folder, fleet(this))
    discovery = FleetDiscovery(folder)
    known = discovery.replicas()
    write_state(folder, fleet(other))
    for _ in range(2):
        with pytest.raises(LiveError, match="another fleet runs there since; end this controller"):
            discovery.replicas()
    assert FleetDiscovery(folder).replicas() == known  # a new controller knows it
    write_state(folder, fleet(this))
    assert discovery.replicas() == known


def test_the_state_file_is_plain_json(tmp_path: Path) -> None:
    """Other programs can read it: names of phases are words."""
    folder = FleetFolder(path=tmp_path)
    write_state(folder, fleet(GONE))
    assert json.loads(folder.state.read_text())["servers"][0]["phase"] == "ready"
