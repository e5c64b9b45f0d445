"""Replicas that accept faults: how they are started, found and steered."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import httpx

from faults.client.launch import drill_arguments
from faults.client.replica import ReplicaFaults
from faults.client.wire import DrillError, DrillRefusedError
from live.errors import LiveError
from live.fleet.control import require_up
from live.fleet.plan import FleetPlan
from live.fleet.state import FleetFolder, FleetState, Phase, ServerState

_POLL_S, _WARM_S = 0.2, 60.0


def open_for_drills(plan: FleetPlan, folder: FleetFolder) -> FleetPlan:
    """``plan`` with fault injection enabled on every replica; tokens and staged code lie below ``folder``."""
    replicas = []
    for one in plan.replicas:
        added = drill_arguments(replica_folder(folder, one.name))
        replicas.append(
            replace(
                one,
                arguments=(*one.arguments, *added.arguments),
                environment={**one.environment, **added.environment},
            )
        )
    return replace(plan, replicas=tuple(replicas))


def replica_folder(folder: FleetFolder, name: str) -> Path:
    """The drill files of one replica."""
    return folder.drills / "replicas" / name


def server_of(state: FleetState, name: str) -> ServerState:
    """The server called ``name``; LiveError if there is none."""
    found = next((server for server in state.servers if server.name == name), None)
    if found is None:
        raise LiveError(f"{name}: no such replica; there are {', '.join(s.name for s in state.servers)}")
    return found


def faults_of(folder: FleetFolder, name: str, records: Path) -> ReplicaFaults:
    """The client that steers the faults of the replica called ``name``."""
    server = server_of(require_up(folder), name)
    return ReplicaFaults(server.url, replica_folder(folder, name) / "token", records)


def require_drillable(folder: FleetFolder, records: Path) -> FleetState:
    """The running fleet; DrillError unless every replica accepts faults."""
    state = require_up(folder)
    for server in state.servers:
        try:
            faults_of(folder, server.name, records).status()
        except DrillRefusedError as error:
            raise DrillRefusedError(f"{error}; start the fleet with `selvage fleet up --drills`") from None
        except DrillError as error:
            raise DrillError(f"{server.name} does not take part: {error}") from None
    return state


def warm_up(state: FleetState, prompt_tokens: int, answer_tokens: int) -> None:
    """Request one answer and one row of log-probabilities from every server: the first takes seconds."""
    prompt = [5 + number % 100 for number in range(max(1, prompt_tokens))]
    body = {"model": state.served_name, "prompt": prompt, "max_tokens": max(1, answer_tokens)}
    for server in state.servers:
        for more in ({}, {"prompt_logprobs": 20, "max_tokens": 1}):
            with suppress(httpx.HTTPError):  # a server that does not answer now will show in the drill
                asked = {**body, **more}
                httpx.post(f"{server.url}/v1/completions", json=asked, timeout=_WARM_S, trust_env=False)


def await_serving(folder: FleetFolder, name: str, timeout_s: float) -> bool:
    """Wait until the replica called ``name`` is ready; False on timeout, or if it was given up."""
    deadline_at_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_at_s:
        phase = server_of(require_up(folder), name).phase
        if phase in (Phase.READY, Phase.FAILED, Phase.STOPPED):
            return phase is Phase.READY
        time.sleep(_POLL_S)
    return False
