"""A real vLLM server with a separate port for drills: faults are controlled there, and nowhere else."""

from __future__ import annotations

import socket
from pathlib import Path

import httpx
import pytest

from faults.client.replica import ReplicaFaults
from faults.client.wire import DrillRefusedError
from faults.inside.gate import TOKEN_HEADER
from tests.support.servers.drilled_server import TTL_S, drilled_server, measured

pytestmark = [pytest.mark.needs("vllm"), pytest.mark.slow]


def test_a_server_with_a_door_is_steered_there_alone(tmp_path: Path) -> None:
    """Its own port refuses drills whatever the token; through the drill port a fault is proved and undone."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        door = int(probe.getsockname()[1])
    with drilled_server(tmp_path, door) as server:
        token = server.started.token_file
        with pytest.raises(DrillRefusedError, match=f"port {door} alone"):
            ReplicaFaults(server.url, token, tmp_path / "elsewhere").status()
        clean = server.text()
        injected = server.faults.inject(measured("noise", relative=0.5), TTL_S)
        assert server.faults.verify(injected).happened
        assert server.text() != clean
        assert server.faults.undo().clean
        assert server.text() == clean
        headers = {TOKEN_HEADER: token.read_text()}
        assert httpx.get(f"http://127.0.0.1:{door}/v1/models", headers=headers).status_code == 404
        answered = httpx.get(f"{server.url}/v1/models")
        assert answered.headers["x-selvage-replica"] == "pod-0"
