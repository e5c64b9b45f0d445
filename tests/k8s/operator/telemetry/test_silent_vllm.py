"""A real vLLM server whose weights silently go wrong: probes detect it, and the route leaves it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.cluster.cluster_worlds import Bench
from tests.support.cluster.probed_worlds import probed_world
from tests.support.servers.drilled_server import TTL_S, Server, drilled_server, measured

pytestmark = [
    pytest.mark.needs("kube_api", "vllm", "torch", "own_endpoints"),
    pytest.mark.slow,
]


def test_a_real_server_with_wrong_weights_loses_its_traffic(bench: Bench, tmp_path: Path) -> None:
    """A vLLM server whose weights are requantised, still with HTTP 200, loses its traffic to the other."""
    with ExitStack() as stack, ThreadPoolExecutor(2) as starting:

        def start(name: str) -> Server:
            folder = tmp_path / name
            folder.mkdir()
            return stack.enter_context(drilled_server(folder))

        fp8, bf16 = starting.map(start, ("fp8", "bf16"))
        ports = {name: int(one.url.rpartition(":")[2]) for name, one in (("fp8", fp8), ("bf16", bf16))}
        here = stack.enter_context(probed_world(bench, tmp_path, ports, replicas=1))
        here.turns_until(lambda: here.probed(2, 20))
        assert bench.weights("prose")["chat-fp8"] == 10_000
        injected = fp8.faults.inject(measured("requantise", bits=3), TTL_S * 10)
        here.turns_until(lambda: bench.weights("prose")["chat-bf16"] == 10_000)
        assert fp8.faults.verify(injected).happened
        assert fp8.faults.undo().clean
        assert bench.conditions()["Degraded"][0] == "True"
