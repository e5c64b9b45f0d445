"""A pool that is dropped while its servers hang: other policies' ticks are not delayed."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import httpx
import pytest

pytest.importorskip("kubernetes", reason="install the extra k8s: make setup-test")

from k8s.operator.telemetry.pool_reader import PoolReader, PoolTelemetry, Sensing
from k8s.operator.telemetry.pool_source import PoolSource, Watching
from live.observe.metrics import EngineReading
from scripts.studies.operator.resources import PoolSize
from scripts.studies.operator.world import recorded_world
from tests.support.waiting import PATIENCE_S

SHAPE = PoolSize(kernels=2, replicas=2, slices=1)


class HangingServers(PoolReader):
    """Servers that accept a scrape and answer nothing until ``released``."""

    def __init__(self) -> None:
        self.asked, self.released = threading.Event(), threading.Event()

    def scrape(self, urls: Mapping[str, str]) -> dict[str, EngineReading]:
        """Block until ``released``."""
        self.asked.set()
        self.released.wait(2.0 * PATIENCE_S)
        return {}

    def close(self) -> None:
        """Do nothing: other policies still use it."""


@pytest.mark.parametrize("how", ["deleted", "lost the lead"])
def test_dropping_a_pool_during_a_scrape_delays_no_other_tick(how: str) -> None:
    """Neither the deletion of a pool nor the loss of the lead waits for a scrape of it in flight."""
    world, servers = recorded_world(2, SHAPE, 9), HangingServers()
    operator = world.operator()
    usual = operator.parts.source
    gone, stays = sorted(world.cluster.resources().policies)
    with httpx.Client() as client, ThreadPoolExecutor(1) as loop:

        def source(sensing: Sensing) -> PoolTelemetry:
            if sensing.documents.policy.metadata.name == stays:
                return usual(sensing)
            return PoolSource(sensing, Watching(), servers, client, operator.parts.shed)

        operator.parts = replace(operator.parts, source=source)

        def turns(count: int) -> int:
            for _ in range(count):
                world.advance()
                operator.turn()
            return operator.tallies[stays].decisions.total()

        try:
            before = loop.submit(turns, 2).result(PATIENCE_S)
            assert servers.asked.wait(PATIENCE_S)
            if how == "deleted":
                seen = world.cluster.resources()
                left = {name: one for name, one in seen.policies.items() if name != gone}
                world.cluster._resources = replace(seen, policies=left)
                operator.nudge()
            else:
                loop.submit(operator.forget).result(PATIENCE_S)
            assert loop.submit(turns, 3).result(PATIENCE_S) == before + 3
            assert (gone in operator.loops) == (how != "deleted")
        finally:
            servers.released.set()
            loop.submit(operator.forget).result(PATIENCE_S)
