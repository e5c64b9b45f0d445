"""A real Envoy and a hung server: a reset ends its open requests, and nothing else."""

from __future__ import annotations

import threading
from pathlib import Path

import httpx
import numpy as np
import pytest

from contracts.compiled.contract import FleetLayout
from contracts.telemetry import ReplicaState
from controller.ports import RoutingPlan
from live.gateway.actuator import EnvoyActuator, RoutingFrame
from live.ports import LiveReplica
from tests.support.servers.gateways import SLICES, Bench, gateway
from tests.support.waiting import until

pytestmark = [pytest.mark.needs("envoy", "aiohttp")]


def test_a_reset_ends_the_streams_of_the_named_replica_and_no_others(tmp_path: Path) -> None:
    """A begun stream at a hung server breaks off, so that its client can retry and is served; the
    streams at the others, begun before, end completely.
    """
    with gateway(tmp_path) as bench:
        assert _ended(bench) == {"r0": ["reset"], "r1": ["whole"], "r2": ["whole"]}


def _ended(bench: Bench) -> dict[str, list[str]]:
    """How a stream at each server ended; r0 hung and was reset."""
    ends: dict[str, list[str]] = {name: [] for name in bench.servers}
    for number, (name, end) in enumerate(ends.items(), 2):
        bench.set_mode(name, token_s=0.05)
        bench.apply({name: 1}, version=number)
        _stream_in_background(bench, end)
    bench.set_mode("r0", hang=True)
    layout = FleetLayout(
        kernels=("k0", "k1", "k2"),
        slices=SLICES,
        replicas=("r0", "r1", "r2"),
        replica_kernel=np.arange(3),
        probe_metrics=(),
        known_good=2,
    )
    frame = RoutingFrame(layout=layout, default_slice="prose")
    actuator = EnvoyActuator(bench.driver, _Fixed(bench), frame)
    away = np.array([[False, True, True]])
    table = np.tile([0.5, 0.25, 0.25, 0.0], (1, 2, 1))
    assert actuator.apply(RoutingPlan(table=table, in_rotation=away, version=np.array([9]), reset=~away))
    actuator.reset("r0")
    until(lambda: bool(ends["r0"]))
    assert bench.ask().headers["x-selvage-replica"] in {"r1", "r2"}
    until(lambda: all(ends.values()))
    return ends


def _stream_in_background(bench: Bench, end: list[str]) -> None:
    """A stream of two seconds; how it ended is put into ``end``. Returns once it has begun."""
    began = threading.Event()

    def read() -> None:
        body = {"max_tokens": 40, "stream": True}
        headers = {"x-selvage-slice": "prose"}
        url = f"{bench.url}/v1/completions"
        try:
            with httpx.stream("POST", url, json=body, headers=headers, timeout=30.0) as answer:
                lines = answer.iter_lines()
                next(lines)
                began.set()
                whole = any("[DONE]" in one for one in lines)
            end.append("whole" if whole else "cut")
        except httpx.HTTPError:
            end.append("reset")

    threading.Thread(target=read, daemon=True).start()
    assert began.wait(10.0)


class _Fixed:
    """Discovery of the bench's servers, all ready."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    def replicas(self) -> tuple[LiveReplica, ...]:
        """The servers, in order."""
        return tuple(
            LiveReplica(
                name=one.replica,
                kernel=one.kernel,
                url=f"http://{one.address}:{one.port}",
                state=ReplicaState.READY,
            )
            for one in self._bench.upstreams
        )
