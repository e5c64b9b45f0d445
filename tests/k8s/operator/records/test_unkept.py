"""A state that the API server does not accept: retried rarely, logged once, and shown while it lasts."""

from __future__ import annotations

import logging

import pytest

pytest.importorskip("kubernetes", reason="install the extra k8s: make setup-test")

from k8s.operator.loop_standing import KEEP_AGAIN_S, UNKEPT_S
from k8s.operator.objects import ClusterError, Manifest
from scripts.studies.operator.resources import PoolSize
from scripts.studies.operator.world import recorded_world

SHAPE = PoolSize(kernels=2, replicas=2, slices=1)
TICKS = int(UNKEPT_S) + 20


@pytest.mark.parametrize("refused", [True, False])
def test_a_refused_state_is_not_written_at_every_tick(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, refused: bool
) -> None:
    """On 403 (quota), 429 or a terminating namespace, the state is not written at every tick."""
    world = recorded_world(1, SHAPE, 2 * TICKS)
    operator = world.operator()
    taken, asked, whole = False, 0, world.cluster.write_config

    def write_config(config: Manifest) -> None:
        nonlocal asked
        asked += 1
        if not taken:
            raise ClusterError("ConfigMap: the API server said no", refused=refused)
        whole(config)

    monkeypatch.setattr(world.cluster, "write_config", write_config)
    said: list[tuple[str, str]] = []

    def write_status(found: Manifest, status: Manifest) -> None:
        if found["kind"] == "RoutePolicy":
            said.extend(
                (one["status"], one["reason"]) for one in status["conditions"] if one["type"] == "Degraded"
            )

    monkeypatch.setattr(world.cluster, "write_status", write_status)

    def turns() -> None:
        for _ in range(TICKS):
            world.advance()
            operator.turn()

    with caplog.at_level(logging.WARNING):
        turns()
    assert 2 <= asked <= TICKS / KEEP_AGAIN_S + 1
    told = [one.message for one in caplog.records if one.name == "k8s.operator.namespace"]
    assert len([one for one in told if "the state was not kept" in one]) == 1
    assert said[-1] == ("True", "StateNotKept")
    taken = True
    turns()
    assert said[-1] == ("False", "Healthy")
