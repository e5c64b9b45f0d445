"""A replica's life without vLLM: start, wait, giving up, and its messages."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from live.errors import LiveError
from live.fleet.admission import Admitted
from live.fleet.children import Children
from live.fleet.launchers import NotYetError, ServerOrder
from live.fleet.plan import ReplicaPlan, ServerOptions
from live.fleet.server import RestartRule, Server, ServerSettings
from live.fleet.state import Phase
from live.gateway.process import free_ports

GOOD = Admitted(fingerprint="vllm-1", version="0.32.0", context_tokens=2048)


@dataclass
class Scripted:
    """A launcher, children and an executor in one: starts succeed or fail as scripted, nothing runs."""

    starts: list[Exception | None]
    how: str = "scripted"
    orders: list[ServerOrder] = field(default_factory=list)
    killed: list[int] = field(default_factory=list)
    admission: Future[Admitted] = field(default_factory=Future)

    def start(self, order: ServerOrder) -> int:
        self.orders.append(order)
        outcome = self.starts.pop(0) if self.starts else None
        if outcome is not None:
            raise outcome
        return os.getpid()  # an existing process

    def submit(self, *_: Any) -> Future[Admitted]:
        self.admission = Future()
        return self.admission

    def kill(self, pid: int, number: signal.Signals = signal.SIGKILL) -> None:
        self.killed.append(pid)

    def forget(self, pid: int) -> None:
        return None

    def close(self) -> None:
        return None

    def means(self) -> ServerSettings:
        """As a supervisor passes it to servers; at most two consecutive ends."""
        return ServerSettings(
            launcher=self,
            children=cast(Children, self),
            executor=cast(Executor, self),
            rule=RestartRule(first_s=1.0, factor=2.0, longest_s=8.0, steady_s=60.0, most=2),
            start_s=10.0,
        )


@pytest.fixture
def server(tmp_path: Path) -> Server:
    """A replica on a free port."""
    plan = ReplicaPlan(name="a-0", kernel="a", arguments=("--model", "m"))
    return Server(plan=plan, options=ServerOptions(), port=free_ports(1)[0], log=tmp_path / "a-0.log")


def test_a_server_is_ready_once_it_is_admitted(server: Server) -> None:
    """It is started with its own nonce, and ready with its own statements."""
    script = Scripted([])
    assert server.advance(1.0, script.means())
    assert (server.phase, server.state().process is not None) == (Phase.STARTING, True)
    assert server.nonce in script.orders[0].arguments
    assert not server.advance(2.0, script.means())
    script.admission.set_result(GOOD)
    assert server.advance(3.0, script.means())
    state = server.state()
    assert (state.phase, state.up_s, state.restarts, state.fingerprint) == (Phase.READY, 2.0, 0, "vllm-1")


def test_ends_in_a_row_are_waited_after_and_then_given_up(server: Server) -> None:
    """The second start comes after a second, the third after two, and then there is none."""
    means = Scripted([]).means()
    for now_s, wait_s in ((0.0, 1.0), (10.0, 2.0)):
        server.advance(now_s, means)
        server.ended(1, now_s, means)
        assert (server.phase, server.start_at_s) == (Phase.WAITING, now_s + wait_s)
        assert not server.advance(now_s + wait_s - 0.1, means)
    server.advance(20.0, means)
    server.ended(-9, 20.0, means)
    assert server.phase is Phase.FAILED
    assert "given up after 3 ends in a row: ended with exit code -9" in server.note
    assert not server.advance(1e6, means)


def test_a_steady_run_begins_anew(server: Server) -> None:
    """After a minute of service an end is the first one again; another nonce is used."""
    script = Scripted([])
    means = script.means()
    server.failures = 2
    server.advance(0.0, means)
    first = server.nonce
    script.admission.set_result(GOOD)
    server.advance(1.0, means)
    server.ended(0, 100.0, means)
    assert (server.failures, server.start_at_s) == (1, 101.0)
    server.advance(101.0, means)
    assert server.nonce != first
    assert server.state().restarts == 1


def test_a_stranger_on_the_port_is_killed_with_the_reason_kept(server: Server) -> None:
    """Failed admission ends the process; the reported reason is the admission's, not the signal."""
    script = Scripted([])
    means = script.means()
    server.advance(0.0, means)
    script.admission.set_exception(LiveError("another server answers there"))
    server.advance(1.0, means)
    assert script.killed == [os.getpid()]
    server.ended(-9, 1.1, means)
    assert (server.phase, server.note) == (Phase.WAITING, "another server answers there")


def test_waiting_for_the_forker_is_no_failure(server: Server) -> None:
    """A launcher that is not ready is tried again soon, and no failure is counted."""
    script = Scripted([NotYetError("still importing")])
    means = script.means()
    server.advance(0.0, means)
    assert (server.phase, server.failures, server.starts, server.note) == (
        Phase.WAITING,
        0,
        0,
        "still importing",
    )
    server.advance(1.0, means)
    assert server.phase is Phase.STARTING


@pytest.mark.parametrize("make", [lambda: LiveError("it ended"), lambda: OSError(28, "No space left")])
def test_a_start_that_fails_is_an_end(server: Server, make: Callable[[], Exception]) -> None:
    """The reason of a failed start is reported, and the start is repeated by the same rule."""
    script = Scripted([make()])
    server.advance(0.0, script.means())
    assert (server.phase, server.failures, server.start_at_s) == (Phase.WAITING, 1, 1.0)
    assert server.note


def test_a_taken_port_is_told_before_anything_starts(server: Server) -> None:
    """No server is launched on a port that another process holds."""
    script = Scripted([])
    with socket.socket() as other:
        other.bind(("127.0.0.1", server.port))
        other.listen()
        server.advance(0.0, script.means())
    assert script.orders == []
    assert f"port {server.port} for a-0" in server.note
