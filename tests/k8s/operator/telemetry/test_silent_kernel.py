"""A kernel whose numbers silently go wrong: probes of its pods detect it, and the route leaves it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from live.control.journal import read_log
from live.control.replay import replay
from live.run.options import setup_again
from tests.support.cluster.cluster_worlds import Bench
from tests.support.cluster.probed_worlds import probed_world
from tests.support.servers.token_servers import TokenServer, token_server

pytestmark = [pytest.mark.needs("kube_api"), pytest.mark.slow, pytest.mark.waits]

KEY = "sk-only-for-this-test"


@pytest.fixture
def servers() -> Iterator[dict[str, TokenServer]]:
    """Servers of both kernels, which require ``KEY``."""
    with ExitStack() as stack:
        yield {name: stack.enter_context(token_server(KEY)) for name in ("fp8", "bf16")}


def ports(servers: dict[str, TokenServer]) -> dict[str, int]:
    """Kernel -> port of its server."""
    return {name: one.port for name, one in servers.items()}


def test_a_silently_wrong_kernel_loses_its_traffic_and_the_log_says_why(
    bench: Bench, servers: dict[str, TokenServer], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A kernel whose log-probabilities change loses its traffic, and the log gives the clause."""
    caplog.set_level(logging.DEBUG)
    with probed_world(bench, tmp_path, ports(servers), key=KEY) as here:
        here.turns_until(lambda: here.probed(4, 20))
        assert bench.weights("prose")["chat-fp8"] == 10_000
        servers["fp8"].shift = 0.4
        here.turns_until(lambda: bench.weights("prose")["chat-bf16"] == 10_000)
        assert bench.weights("numbers")["chat-bf16"] == 10_000
        assert bench.conditions()["Degraded"] == ("True", "HardClauseBroken")
        assert [one.refused for one in servers.values()] == [0, 0]
        status = bench.read("RoutePolicy", "chat")["status"]
    rows = read_log(tmp_path / "log" / "chat")
    moved = [one for one in rows if one["kind"] == "tick" and one["moves"] and one["executed"]]
    because = " ".join(reason for one in moved for move in one["moves"] for reason in move["because"])
    assert "N-kl-mean" in because
    assert any("N-kl-mean" in one.message and "because" in one.message for one in caplog.records)
    assert replay(rows, setup_again(rows[0]["documents"]).setup).identical
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert KEY not in caplog.text + str(status)
    assert KEY.encode() not in written


def test_servers_that_refuse_the_key_are_unknown(
    bench: Bench, servers: dict[str, TokenServer], tmp_path: Path
) -> None:
    """If servers refuse the key, no weights move, and the status says so without the key."""
    with probed_world(bench, tmp_path, ports(servers), key="wrong-key-of-the-test") as here:
        here.turns_until(lambda: bench.conditions().get("TelemetryFresh") == ("True", "PartlySeen"))
        bench.turns(here.operator, 10)
        assert bench.weights("prose")["chat-fp8"] == 10_000
        assert bench.conditions()["Degraded"] == ("True", "NotSeen")
        assert bench.conditions()["Ready"][0] == "True"
        status = str(bench.read("RoutePolicy", "chat")["status"])
    assert "HTTP 401" in status
    assert "wrong-key-of-the-test" not in status
