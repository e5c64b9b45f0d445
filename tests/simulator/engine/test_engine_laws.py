"""Laws of the fleet engine for any sequence of events."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.engine.api import FleetEngine
from simulator.engine.counters import FIRST_REASON, UNROUTED
from simulator.engine.requests import RequestStatus
from simulator.engine.spec import EngineEffect, EngineSpec
from tests.support.fleets.engine_cases import (
    Act,
    even_table,
    make_arrivals,
    make_spec,
    random_act,
    run_engine,
)

SEEDS = st.integers(0, 2**20)
few = settings(max_examples=15)


def troubled(seed: int) -> tuple[EngineSpec, list[Act]]:
    """A tight fleet and a random script of faults and changes."""
    rng = np.random.default_rng(seed)
    spec = make_spec(
        kv_blocks=rng.integers(330, 900, 3),
        timeout_s=rng.uniform(3.0, 20.0, 2),
        queue_limit=int(rng.integers(4, 40)),
        max_batch=int(rng.integers(2, 40)),
    )
    return spec, [random_act(rng, spec, at_s) for at_s in np.sort(rng.uniform(0.0, 12.0, 25))]


def assert_same_bytes(left: FleetEngine, right: FleetEngine, fleet: int = 0) -> None:
    """Every record, counter, gauge and histogram of the fleet is equal bit for bit."""
    assert left.requests(0).tobytes() == right.requests(fleet).tobytes()
    first, second = left.drain_counters(), right.drain_counters()
    for name in ("cells", "per_slice", "excess_tv_tokens", "useful_tokens"):
        np.testing.assert_array_equal(getattr(first, name)[0], getattr(second, name)[fleet], err_msg=name)
    np.testing.assert_array_equal(left.latency_counts[0], right.latency_counts[fleet])
    np.testing.assert_array_equal(left.gauges().counts[:, 0], right.gauges().counts[:, fleet])
    np.testing.assert_array_equal(left.gauges().exported[0], right.gauges().exported[fleet])


@few
@given(seed=SEEDS)
def test_requests_are_conserved(seed: int) -> None:
    """Offered requests are answered, failed, shed or in flight, at every instant; so are tokens."""
    spec, acts = troubled(seed)
    engine = run_engine(spec, make_arrivals(spec, 250, 30.0, seed, sessions=10), acts, 6.0)
    for until_at_s in (6.0, 9.0, 60.0):
        engine.advance(until_at_s)
        status = engine.requests(0)["status"]
        in_flight = int((status == RequestStatus.IN_FLIGHT).sum())
        assert in_flight == engine.gauges().outstanding.sum()
        assert (engine.gauges().running + engine.gauges().waiting == engine.gauges().outstanding).all()
    counters = engine.drain_counters()
    failed = counters.per_slice[..., FIRST_REASON:].sum()
    ended = counters.answered.sum() + failed + counters.shed.sum()
    assert counters.offered.sum() == ended + in_flight == 250
    assert failed == counters.failed.sum() + counters.per_slice[..., UNROUTED].sum()
    tokens = engine.requests(0)["output_tokens"]
    assert counters.answered_tokens.sum() == tokens[status == RequestStatus.ANSWERED].sum()
    assert counters.offered_tokens.sum() == tokens.sum()


@few
@given(seed=SEEDS)
def test_kv_blocks_are_conserved(seed: int) -> None:
    """Never more blocks are in use than exist, and none when nothing runs."""
    spec = make_spec(kv_blocks=np.full(3, 420), watermark_blocks=2)
    engine = run_engine(spec, make_arrivals(spec, 200, 40.0, seed), [], 0.0)
    for until_at_s in np.linspace(0.1, 8.0, 60):
        engine.advance(float(until_at_s))
        assert (engine.gauges().kv_used_ratio <= 1.0).all()
    engine.advance(500.0)
    assert engine.gauges().outstanding.sum() == 0
    np.testing.assert_array_equal(engine.gauges().kv_used_ratio, 0.0)


@few
@given(seed=SEEDS)
def test_the_head_of_a_queue_waits_longest(seed: int) -> None:
    """It is the wait of the oldest request that was routed and not started, without preemptions; else 0."""
    spec = make_spec(max_batch=2)
    engine = run_engine(spec, make_arrivals(spec, 120, 60.0, seed), [], 0.0)
    queues = 0
    for now_s in np.linspace(0.5, 4.0, 8):
        engine.advance(float(now_s))
        seen, gauges = engine.requests(0), engine.gauges()
        waits = (seen["status"] == RequestStatus.IN_FLIGHT) & np.isnan(seen["started_at_s"])
        assert seen["preemptions"].sum() == 0
        for replica in range(spec.replicas):
            queued_at_s = seen["routed_at_s"][waits & (seen["replica"] == replica)]
            expected_s = now_s - queued_at_s.min() if queued_at_s.size else 0.0
            assert gauges.waiting[0, replica] == queued_at_s.size
            assert gauges.head_wait_s[0, replica] == pytest.approx(expected_s, abs=1e-9)
            queues += queued_at_s.size
    assert queues > 0


@few
@given(seed=SEEDS)
def test_causes_precede_effects(seed: int) -> None:
    """arrived <= routed <= started <= first token <= finished <= now, wherever these happened."""
    spec, acts = troubled(seed)
    engine = run_engine(spec, make_arrivals(spec, 250, 30.0, seed, sessions=10), acts, 30.0)
    seen = engine.requests(0)
    names = ("arrived_at_s", "routed_at_s", "started_at_s", "first_token_at_s", "finished_at_s")
    answered = seen[seen["status"] == RequestStatus.ANSWERED]
    for earlier, later in pairwise(names):
        assert (answered[earlier] <= answered[later]).all()
    ended = seen[seen["status"] != RequestStatus.IN_FLIGHT]
    assert (ended["arrived_at_s"] <= ended["finished_at_s"]).all()
    assert (seen["arrived_at_s"] <= engine.now_s[0]).all()


@few
@given(seed=SEEDS)
def test_no_replica_idles_with_work_waiting(seed: int) -> None:
    """A healthy replica with a queue has requests in its batch, and starts requests in order."""
    spec = make_spec(max_batch=6, kv_blocks=np.full(3, 500))
    engine = run_engine(spec, make_arrivals(spec, 200, 40.0, seed), [], 0.0)
    for until_at_s in np.linspace(0.2, 6.0, 40):
        engine.advance(float(until_at_s))
        gauges = engine.gauges()
        assert (gauges.running[gauges.waiting > 0] > 0).all()
    engine.advance(500.0)
    seen = engine.requests(0)
    for r in range(spec.replicas):
        assert (np.diff(seen["started_at_s"][seen["replica"] == r]) >= 0.0).all()


@few
@given(seed=SEEDS, cuts=st.lists(st.floats(0.0, 20.0), max_size=30))
def test_advancing_in_pieces_changes_nothing(seed: int, cuts: list[float]) -> None:
    """However often the clock stops, the fleet is the same bit for bit."""
    spec, acts = troubled(seed)
    arrivals = make_arrivals(spec, 250, 30.0, seed, sessions=10)
    assert_same_bytes(
        run_engine(spec, arrivals, acts, 20.0), run_engine(spec, arrivals, acts, 20.0, cuts=cuts)
    )


@few
@given(seed=SEEDS)
def test_fleets_do_not_depend_on_each_other(seed: int) -> None:
    """A fleet advanced alone equals the same fleet among others, and the same seed gives the same bytes."""
    spec, acts = troubled(seed)
    arrivals = make_arrivals(spec, 250, 30.0, seed, sessions=10)
    alone = run_engine(spec, arrivals, acts, 20.0)
    among = run_engine(spec, arrivals, acts, 20.0, batch=3, fleet=1)
    assert_same_bytes(alone, among, fleet=1)
    assert_same_bytes(run_engine(spec, arrivals, acts, 20.0), run_engine(spec, arrivals, acts, 20.0))


@few
@given(seed=SEEDS)
def test_a_restarted_engine_equals_a_new_one(seed: int) -> None:
    """After any episode a restarted engine repeats a new one byte for byte."""
    spec, acts = troubled(seed)
    used = run_engine(spec, make_arrivals(spec, 1500, 60.0, seed + 1, sessions=10), acts, 20.0)
    used.restart()
    arrivals = make_arrivals(spec, 250, 30.0, seed, sessions=10)
    assert_same_bytes(
        run_engine(spec, arrivals, acts, 20.0), run_engine(spec, arrivals, acts, 20.0, engine=used)
    )


def test_lock_step_equals_one_by_one() -> None:
    """Three fleets advanced together equal the three fleets advanced alone."""
    spec = make_spec()
    together = FleetEngine(spec, 3, keep_requests=True)
    together.set_table(np.repeat(even_table(spec)[None], 3, axis=0))
    arrivals = [make_arrivals(spec, 300, 30.0, seed) for seed in range(3)]
    for b in range(3):
        together.feed(b, arrivals[b])
    for tick in range(1, 30):
        together.advance(float(tick))
    for b in range(3):
        alone = run_engine(spec, arrivals[b], [], 29.0)
        assert alone.requests(0).tobytes() == together.requests(b).tobytes()


@few
@given(seed=SEEDS)
def test_a_fault_moves_no_arrival(seed: int) -> None:
    """With and without faults the same requests arrive, with the same lengths, at the same instants."""
    spec, acts = troubled(seed)
    arrivals = make_arrivals(spec, 200, 30.0, seed)
    calm, rough = run_engine(spec, arrivals, [], 30.0), run_engine(spec, arrivals, acts, 30.0)
    for name in ("arrived_at_s", "slice", "prompt_tokens", "output_tokens"):
        np.testing.assert_array_equal(calm.requests(0)[name], rough.requests(0)[name])


@few
@given(seed=SEEDS, at_s=st.floats(0.0, 10.0))
def test_dose_zero_changes_nothing(seed: int, at_s: float) -> None:
    """A neutral effect leaves every byte unchanged."""
    spec, acts = troubled(seed)
    arrivals = make_arrivals(spec, 200, 30.0, seed)
    acts = [act for act in acts if act.call != "set_effect"]
    nothing = [Act(at_s=at_s, call="set_effect", args=(r, EngineEffect())) for r in range(spec.replicas)]
    assert_same_bytes(
        run_engine(spec, arrivals, acts, 30.0), run_engine(spec, arrivals, acts + nothing, 30.0)
    )


def test_a_numeric_fault_changes_no_time() -> None:
    """A change of quality alone changes excess TV and no time."""
    spec = make_spec()
    arrivals = make_arrivals(spec, 300, 40.0, 2)
    fault = [Act(at_s=2.0 + r / 7, call="set_effect", args=(r, EngineEffect(condition=3))) for r in range(6)]
    calm, wrong = run_engine(spec, arrivals, [], 60.0), run_engine(spec, arrivals, fault, 60.0)
    assert calm.requests(0)["finished_at_s"].tobytes() == wrong.requests(0)["finished_at_s"].tobytes()
    assert (calm.requests(0)["excess_tv_tokens"] != wrong.requests(0)["excess_tv_tokens"]).any()


def test_recycled_records_count_the_same() -> None:
    """Forgetting ended requests bounds memory and changes no count."""
    spec = make_spec()
    arrivals = make_arrivals(spec, 6000, 25.0, 1)
    kept = run_engine(spec, arrivals, [], 300.0).drain_counters()
    engine = FleetEngine(spec, 1)
    engine.set_table(even_table(spec)[None])
    for start in range(0, 6000, 200):
        piece = {name: getattr(arrivals, name)[start : start + 200] for name in arrivals.__dataclass_fields__}
        engine.feed(0, replace(arrivals, **piece))
        engine.advance(float(piece["arrived_at_s"][-1]))
    engine.advance(300.0)
    assert engine.record_space <= 1024
    with pytest.raises(ValueError, match="keep_requests"):
        engine.requests(0)
    counters = engine.drain_counters()
    for name in ("cells", "per_slice", "excess_tv_tokens", "useful_tokens"):
        np.testing.assert_array_equal(getattr(kept, name), getattr(counters, name))


def test_busy_time_is_the_time_in_steps() -> None:
    """Busy seconds do not depend on when they are read, and a saturated replica is always busy."""
    spec = make_spec(replicas=3)
    arrivals = make_arrivals(spec, 400, 60.0, 1)
    once = run_engine(spec, arrivals, [], 4.0).drain_counters().busy_s
    engine = run_engine(spec, arrivals, [], 0.0)
    parts = np.zeros((1, 3))
    for until_at_s in np.linspace(0.1, 4.0, 40):
        engine.advance(float(until_at_s))
        parts += engine.drain_counters().busy_s
    np.testing.assert_allclose(parts, once, rtol=1e-12)
    assert (once > 3.5).all()
    assert (once <= 4.0).all()


def test_a_serving_delay_delays_answers_and_no_step() -> None:
    """Delayed requests end that much later, first tokens too; steps are unchanged, as by a delay of 0."""
    spec = make_spec()
    arrivals = make_arrivals(spec, 200, 20.0)
    plain, late, zero = (
        run_engine(replace(spec, request_delay_s=delays), arrivals, [], 500.0).requests(0)
        for delays in ((), (0.02,) * 3, (0.0,) * 3)
    )
    assert zero.tobytes() == plain.tobytes()
    for name in ("first_token_at_s", "finished_at_s"):
        assert late[name] - plain[name] == pytest.approx(np.full(200, 0.02), abs=1e-9)
    assert late["started_at_s"].tobytes() == plain["started_at_s"].tobytes()
