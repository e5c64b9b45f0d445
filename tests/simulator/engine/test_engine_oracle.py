"""The compiled engine equals the plain oracle on every request, under any faults."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np
import pytest

from simulator.engine.api import FleetEngine
from simulator.engine.counters import ATTEMPTS_REJECTED
from simulator.engine.requests import RequestArrivals, RequestStatus
from simulator.engine.spec import EngineEffect, EngineSpec
from tests.reference.engine_oracle import Oracle
from tests.reference.engine_requests import Exported
from tests.support.fleets.engine_cases import (
    Act,
    even_table,
    make_arrivals,
    make_spec,
    random_act,
    run_engine,
    run_oracle,
    slow,
)

TOLERANCE_S = 1e-9


def assert_same(engine: FleetEngine, oracle: Oracle) -> None:
    """Every request has the same outcome at the same times, and every count is the same."""
    got = engine.requests(0)
    want = oracle.requests
    assert len(want) == len(got)
    for name in ("status", "replica", "kernel", "preemptions"):
        expected = [int(getattr(x, name)) for x in want]
        np.testing.assert_array_equal(expected, got[name], err_msg=name)
    np.testing.assert_array_equal([len(x.tried) for x in want], got["attempts"])
    over = np.array([x.finished for x in want])
    lag = np.array([x.lag for x in want])
    answered = got["status"] == 1
    times = {
        "routed_at_s": np.array([x.routed for x in want]),
        "started_at_s": np.array([x.started for x in want]),
        "first_token_at_s": np.array([x.first for x in want]) + lag,
        "finished_at_s": over + np.where(answered, lag, 0.0),
    }
    for name, expected_s in times.items():
        np.testing.assert_allclose(got[name], expected_s, rtol=0, atol=TOLERANCE_S, err_msg=name)
    tv = np.array([x.excess_tv for x in want])
    np.testing.assert_allclose(got["excess_tv_tokens"][answered], tv[answered], rtol=1e-9, atol=1e-9)
    assert_same_counts(engine, oracle)


def assert_same_counts(engine: FleetEngine, oracle: Oracle) -> None:
    """Compare counters and gauges."""
    counters, gauges = engine.drain_counters(), engine.gauges()
    for name in (
        "answered",
        "failed",
        "attempts_failed",
        "exposed",
        "exposed_in_flight",
        "slo_missed",
        "dispatched",
    ):
        np.testing.assert_array_equal(getattr(oracle, name), getattr(counters, name)[0], err_msg=name)
    np.testing.assert_array_equal(oracle.attempts_rejected, counters.cells[0, ..., ATTEMPTS_REJECTED])
    np.testing.assert_allclose(counters.useful_tokens[0], oracle.useful_tokens, rtol=1e-9, atol=1e-6)
    for name in ("outstanding", "consecutive_failed"):
        np.testing.assert_array_equal(
            [getattr(r, name) for r in oracle.replicas], getattr(gauges, name)[0], err_msg=name
        )
    exported = [[getattr(r.exported, entry.name) for entry in fields(Exported)] for r in oracle.replicas]
    np.testing.assert_allclose(gauges.exported[0], exported, rtol=1e-9, atol=1e-7)
    np.testing.assert_array_equal([len(r.queue) for r in oracle.replicas], gauges.waiting[0])
    assert sum(len(r.run) for r in oracle.replicas) == gauges.running[0].sum()
    used = [
        (oracle.blocks_used(r) + all_blocks(oracle, r.kernel) - r.blocks) / all_blocks(oracle, r.kernel)
        for r in oracle.replicas
    ]
    np.testing.assert_allclose(gauges.kv_used_ratio[0], np.minimum(used, 1.0), atol=1e-12)


def all_blocks(oracle: Oracle, kernel: int) -> int:
    """Blocks of a replica without a fault."""
    return int(oracle.spec.kv_blocks[kernel])


def compare(
    spec: EngineSpec, arrivals: RequestArrivals, acts: Sequence[Act] = (), until_at_s: float = 60.0
) -> tuple[FleetEngine, Oracle]:
    """Run both and require equality."""
    engine, oracle = (
        run_engine(spec, arrivals, acts, until_at_s),
        run_oracle(spec, arrivals, acts, until_at_s),
    )
    assert_same(engine, oracle)
    return engine, oracle


@pytest.mark.parametrize("rate_rps", [10.0, 40.0, 70.0])
def test_fault_free_fleet_equals_the_oracle(rate_rps: float) -> None:
    """At low, high and excessive load every request has the oracle's times, also in mid-flight."""
    spec = make_spec()
    compare(spec, make_arrivals(spec, 600, rate_rps), until_at_s=8.0)
    compare(spec, make_arrivals(spec, 600, rate_rps), until_at_s=200.0)


def test_preemption_equals_the_oracle() -> None:
    """With too few KV blocks requests are preempted and recomputed exactly as in the oracle."""
    spec = make_spec(kv_blocks=np.array([420, 380, 450]), watermark_blocks=2)
    _, oracle = compare(spec, make_arrivals(spec, 500, 40.0, 3), until_at_s=120.0)
    assert sum(x.preemptions for x in oracle.requests) > 30


def test_small_budget_and_batch_equal_the_oracle() -> None:
    """Long prompts in small chunks and a tiny batch keep the first-come order of the oracle."""
    spec = make_spec(max_batch=5, token_budget=96, queue_limit=30)
    compare(spec, make_arrivals(spec, 300, 12.0, 4), until_at_s=100.0)


def test_slow_change_in_mid_flight_equals_the_oracle() -> None:
    """A step under way ends at its old speed, the next one is slow; tokens made keep their condition."""
    spec = make_spec()
    acts = [
        Act(at_s=3.0123, call="set_effect", args=(0, slow(3.0, 2))),
        Act(at_s=4.5, call="set_effect", args=(1, EngineEffect(condition=1))),
        Act(at_s=6.0001, call="set_effect", args=(0, slow(1.0, 3, step_extra_s=0.02))),
        Act(at_s=9.0, call="set_effect", args=(0, EngineEffect())),
        Act(at_s=9.7, call="set_effect", args=(1, EngineEffect(http_latency_s=0.3, condition=2))),
    ]
    compare(spec, make_arrivals(spec, 500, 40.0, 5, sessions=30), acts, until_at_s=80.0)


def test_crash_and_retry_equal_the_oracle() -> None:
    """Requests that had not streamed are retried elsewhere; dead replicas refuse until they start again."""
    spec = make_spec(sticky=False)
    rotation = np.ones(6, np.bool_)
    rotation[2] = False
    acts = [
        Act(at_s=2.0, call="crash", args=(2,)),
        Act(at_s=3.0, call="set_rotation", args=(rotation,)),
        Act(at_s=3.5, call="crash", args=(5,)),
        Act(at_s=5.0, call="start", args=(2, 1.0)),
        Act(at_s=6.2, call="set_rotation", args=(np.ones(6, np.bool_),)),
        Act(at_s=8.0, call="start", args=(5, 0.0)),
    ]
    engine, _ = compare(spec, make_arrivals(spec, 600, 60.0, 6), acts, until_at_s=80.0)
    assert (engine.requests(0)["attempts"] > 1).sum() > 10


def test_reset_of_streams_equals_the_oracle() -> None:
    """A hung replica whose streams are reset, and healthy ones in mid-step, lose them as in the oracle."""
    spec = make_spec(sticky=False)
    rotation = np.ones(6, np.bool_)
    rotation[0] = False
    acts = [
        Act(at_s=2.5, call="set_effect", args=(0, EngineEffect(hang=True))),
        Act(at_s=3.7, call="set_rotation", args=(rotation,)),
        Act(at_s=3.7, call="reset_streams", args=(0,)),
        Act(at_s=4.0123, call="reset_streams", args=(3,)),
        Act(at_s=6.0, call="set_effect", args=(0, EngineEffect())),
        Act(at_s=6.5, call="set_rotation", args=(np.ones(6, np.bool_),)),
        Act(at_s=9.01, call="reset_streams", args=(0,)),
    ]
    engine, _ = compare(spec, make_arrivals(spec, 600, 50.0, 12), acts, until_at_s=80.0)
    assert (engine.requests(0)["status"] == RequestStatus.RESET).any()
    assert (engine.requests(0)["attempts"] > 1).any()


def test_every_reset_request_is_retried_or_failed_and_counted_once() -> None:
    """After a reset the replica holds nothing, and each request it held runs elsewhere or has failed."""
    spec = make_spec(sticky=False)
    engine = FleetEngine(spec, 1, keep_requests=True)
    engine.set_table(even_table(spec)[None])
    engine.feed(0, make_arrivals(spec, 300, 50.0, 13))
    engine.advance(3.0)
    engine.drain_counters()
    held = int(engine.gauges().outstanding[0, 1])
    rotation = np.ones((1, 6), np.bool_)
    rotation[0, 1] = False
    engine.set_rotation(rotation)
    before = engine.requests(0)
    engine.reset_streams(0, 1)
    after, counters = engine.requests(0), engine.drain_counters()
    mine = (before["replica"] == 1) & (before["status"] == RequestStatus.IN_FLIGHT)
    failed = mine & (after["status"] == RequestStatus.RESET)
    moved = mine & (after["replica"] != 1) & (after["attempts"] == before["attempts"] + 1)
    assert held == mine.sum() > 0
    assert (failed | moved)[mine].all()
    assert not (failed & moved).any()
    assert counters.attempts_failed[0, 1].sum() == held
    assert counters.failed[0].sum() == failed.sum()
    assert engine.gauges().outstanding[0, 1] == 0
    engine.advance(200.0)
    ended = engine.requests(0)
    assert len(ended) == 300
    assert (ended["status"] != RequestStatus.IN_FLIGHT).all()


def test_hang_and_timeouts_equal_the_oracle() -> None:
    """A hung replica loses its requests at their deadlines and resumes with the rest."""
    spec = make_spec(timeout_s=np.array([4.0, 9.0]))
    acts = [
        Act(at_s=2.5, call="set_effect", args=(0, EngineEffect(hang=True))),
        Act(at_s=3.0, call="set_effect", args=(1, slow(12.0))),
        Act(at_s=8.0, call="set_effect", args=(0, EngineEffect())),
        Act(at_s=9.0, call="set_effect", args=(1, slow(1.0, http_latency_s=0.5))),
    ]
    engine, _ = compare(spec, make_arrivals(spec, 500, 40.0, 8), acts, until_at_s=80.0)
    assert (engine.requests(0)["status"] == 2).sum() > 20


def test_held_blocks_http_errors_and_backpressure_equal_the_oracle() -> None:
    """Held KV blocks preempt or stall, 5xx and 429 answers send the gateway to another replica."""
    spec = make_spec(queue_limit=3, timeout_s=np.full(2, 6.0), kv_blocks=np.array([500, 500, 500]))
    acts = [
        Act(at_s=2.0, call="set_effect", args=(0, EngineEffect(kv_held_ratio=0.8))),
        Act(at_s=2.5, call="set_effect", args=(1, EngineEffect(kv_held_ratio=1.0))),
        Act(at_s=3.0, call="set_effect", args=(4, EngineEffect(http_error_ratio=0.6))),
        Act(at_s=10.0, call="set_effect", args=(1, EngineEffect(kv_held_ratio=0.2))),
        Act(at_s=11.0, call="set_effect", args=(0, EngineEffect())),
    ]
    engine, _ = compare(spec, make_arrivals(spec, 600, 40.0, 9), acts, until_at_s=80.0)
    statuses = set(engine.requests(0)["status"].tolist())
    assert {1, 2, 5} <= statuses


def test_moving_weights_shedding_and_exposure_equal_the_oracle() -> None:
    """Tables that move and shed, emptied kernels and the exposure counts follow the oracle."""
    spec = make_spec()
    table = even_table(spec)
    table[0] = [0.0, 0.5, 0.3, 0.2]
    rotation = np.array([True, False, True, True, False, True])
    violating = np.zeros((6, 2), np.bool_)
    violating[[0, 2]] = True
    acts = [
        Act(at_s=1.0, call="set_violating", args=(violating,)),
        Act(at_s=3.0, call="set_table", args=(table,)),
        Act(at_s=4.0, call="set_rotation", args=(rotation,)),
        Act(at_s=7.0, call="set_rotation", args=(np.zeros(6, np.bool_),)),
        Act(at_s=7.5, call="set_rotation", args=(rotation,)),
        Act(at_s=8.0, call="set_violating", args=(~violating,)),
    ]
    engine, oracle = compare(spec, make_arrivals(spec, 500, 40.0, 10), acts, until_at_s=60.0)
    assert {6, 7} <= set(engine.requests(0)["status"].tolist())
    assert oracle.exposed.sum() > oracle.exposed_in_flight.sum() > 0


def test_poisoned_sessions_equal_the_oracle() -> None:
    """A prefix cached under a fault keeps its quality after the fault, until the cache is flushed."""
    spec = make_spec(replicas=3)
    arrivals = make_arrivals(spec, 400, 20.0, 11, sessions=20)
    fault = [Act(at_s=3.0, call="set_effect", args=(r, EngineEffect(condition=3))) for r in range(3)]
    undo = [Act(at_s=8.0, call="set_effect", args=(r, EngineEffect())) for r in range(3)]
    flush = [Act(at_s=12.0, call="flush_cache", args=(r,)) for r in range(3)]
    compare(spec, arrivals, fault + undo + flush)
    _, plain = compare(spec, replace(arrivals, session=np.full(400, -1)), fault + undo)
    _, kept = compare(spec, arrivals, fault + undo)
    assert any(x.prefix_condition for x in kept.requests)
    assert not any(x.prefix_condition for x in plain.requests)


@pytest.mark.parametrize("seed", range(8))
def test_random_faults_equal_the_oracle(seed: int) -> None:
    """Any random script of effects, crashes, rotations and tables gives the oracle's fleet."""
    rng = np.random.default_rng(seed)
    spec = make_spec(
        kv_blocks=rng.integers(330, 900, 3),
        timeout_s=rng.uniform(3.0, 20.0, 2),
        queue_limit=int(rng.integers(4, 40)),
        max_batch=int(rng.integers(2, 40)),
        token_budget=int(rng.integers(128, 2048)),
        max_attempts=int(rng.integers(1, 5)),
    )
    acts = [random_act(rng, spec, at_s) for at_s in np.sort(rng.uniform(0.0, 18.0, 40))]
    compare(spec, make_arrivals(spec, 450, 30.0, seed, sessions=15), acts, until_at_s=60.0)
