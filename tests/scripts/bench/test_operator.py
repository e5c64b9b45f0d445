"""The benchmark of the operator measures an operator that drives."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("kubernetes", reason="install the extra k8s: make setup-test")

from live.observe.metrics import COUNTERS, GAUGES, HISTOGRAMS, parse_reading
from scripts.bench import operator as bench_operator
from scripts.studies.operator.answers import answer
from scripts.studies.operator.resources import PoolSize
from scripts.studies.operator.world import recorded_world
from tests.support.servers.engine_readings import histograms


def test_the_answers_say_all_that_is_read() -> None:
    """A recorded answer has every counter, gauge and histogram that the operator reads, and they grow."""
    before, after = (parse_reading(answer(float(second)), float(second)) for second in (10, 11))
    assert before.counters.keys() == COUNTERS.keys()
    assert before.gauges.keys() == GAUGES.keys()
    assert histograms(before).keys() == HISTOGRAMS.keys()
    assert after.counters["finished"] == before.counters["finished"] + 3.0


@pytest.mark.slow
def test_figures_are_flat_and_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every promised key is there, and the object is plain JSON."""
    for name, value in (("POOLS", 2), ("TURNS", 1), ("MANY_TURNS", 1), ("LARGE_KERNELS", 3)):
        monkeypatch.setattr(bench_operator, name, value)
    figures = bench_operator.run()
    promised = {"reconcile_cpu_ms", "cpu_ms_per_s_and_pool", "rss_mb_per_pool", "base_rss_mb"}
    assert promised <= set(figures)
    assert json.loads(json.dumps(figures)) == figures


@pytest.mark.slow
def test_every_pool_of_the_world_drives() -> None:
    """Every policy of the benchmark's namespace writes its own route and sees its servers."""
    world = recorded_world(2, PoolSize(kernels=2, replicas=2, slices=3), 4)
    operator = world.operator()
    for _ in range(4):
        world.advance()
        operator.turn()
    assert {name for name, loop in operator.loops.items() if loop.standing.programmed} == {"pool-0", "pool-1"}
    assert all(one.parts.cluster is world.cluster for one in operator.loops.values())
