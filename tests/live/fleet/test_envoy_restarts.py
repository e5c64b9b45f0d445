"""Ends of Envoy: rare ones end no fleet, consecutive ones do, with growing pauses between restarts."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from live.errors import LiveError
from live.fleet import envoy as envoy_module
from live.fleet.children import Children
from live.fleet.envoy import Envoy
from live.fleet.server import RestartRule
from live.gateway.settings import GatewayFiles, GatewaySettings

RULE = RestartRule(first_s=0.5, factor=2.0, longest_s=4.0, steady_s=60.0, most=3)


class Starts:
    """``Children`` that counts starts. pid: of the started process; 0: starting fails."""

    def __init__(self, pid: int) -> None:
        self.pid, self.count = pid, 0

    def start(self, *_: Any) -> int:
        """One more start."""
        self.count += 1
        if not self.pid:
            raise OSError(12, "no memory")
        return self.pid

    def forget(self, pid: int) -> None:
        """The process ended."""


@pytest.fixture
def gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Envoy:
    """An Envoy that is live as soon as it is started; without a process."""
    monkeypatch.setattr(envoy_module, "find_envoy", lambda: Path("/nowhere/envoy"))
    monkeypatch.setattr(envoy_module, "envoy_version", lambda _: "1")
    monkeypatch.setattr(envoy_module, "envoy_command", lambda *_: ["envoy"])
    admin = SimpleNamespace(is_live=lambda: True, url="http://127.0.0.1:1")
    monkeypatch.setattr(envoy_module, "EnvoyAdmin", lambda _: admin)
    files = GatewayFiles(folder=tmp_path)
    return Envoy(GatewaySettings(listen_port=1, admin_port=2), files, tmp_path / "log", RULE)


def test_ends_of_a_whole_life_end_no_fleet(gateway: Envoy) -> None:
    """After a steady run an end counts as the first one again, however many there were before."""
    starts = Starts(os.getpid())
    children, now_s = cast(Children, starts), 0.0
    for _ in range(20):
        gateway.advance(now_s, children)
        gateway.require_start()
        gateway.advance(now_s, children)
        assert gateway.pid
        now_s += RULE.steady_s
        gateway.ended(now_s, children)
        gateway.require_start()
        now_s += RULE.first_s
    assert starts.count == 20
    assert gateway.state().restarts == 19


@pytest.mark.parametrize("started", [True, False])
def test_ends_in_a_row_do(gateway: Envoy, started: bool) -> None:
    """A process that ends at once, or cannot be started, is restarted after growing pauses, then given up."""
    starts = Starts(os.getpid() if started else 0)
    begun_at_s: list[float] = []
    with pytest.raises(LiveError, match="4 times in a row"):
        _run(gateway, starts, begun_at_s)
    assert begun_at_s == [0.0, 0.5, 1.5, 3.5]
    gateway.advance(1000.0, cast(Children, starts))
    assert starts.count == 4


def _run(gateway: Envoy, starts: Starts, begun_at_s: list[float]) -> None:
    """Advance it, as the supervisor does, while each of its processes ends at once."""
    children = cast(Children, starts)
    for tick in range(1000):
        before = starts.count
        gateway.advance(tick * 0.25, children)
        if starts.count > before:
            begun_at_s.append(tick * 0.25)
        if gateway.pid:
            gateway.ended(tick * 0.25, children)
        gateway.require_start()
