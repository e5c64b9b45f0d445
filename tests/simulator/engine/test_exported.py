"""The counters that a simulated server exports."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from simulator.engine import exported as column
from simulator.engine.api import FleetEngine
from simulator.engine.requests import RequestArrivals, RequestStatus
from simulator.engine.spec import EngineEffect
from tests.support.fleets.engine_cases import STEP_MODEL, make_arrivals, make_spec, run_engine

BATCH = 7


@settings(max_examples=10)
@given(seed=st.integers(0, 2**20))
def test_tokens_are_conserved(seed: int) -> None:
    """When all requests are answered every replica has counted its requests and tokens, preempted or not."""
    spec = make_spec(kv_blocks=np.array([420, 380, 450]), watermark_blocks=2)
    engine = run_engine(spec, make_arrivals(spec, 250, 40.0, seed), [], 500.0)
    seen, counted = engine.requests(0), engine.gauges().measured[0]
    assert (seen["status"] == RequestStatus.ANSWERED).all()

    def of_replicas(values: NDArray[Any]) -> NDArray[np.float64]:
        return np.bincount(seen["replica"], values, spec.replicas).astype(np.float64)

    ones = np.ones(len(seen))
    waited_s = seen["started_at_s"] - seen["routed_at_s"]
    for at, expected in (
        (column.PROMPT_TOKENS, seen["prompt_tokens"]),
        (column.GENERATION_TOKENS, seen["output_tokens"]),
        (column.INTER_TOKENS, seen["output_tokens"] - 1),
        (column.ADMITTED, ones),
        (column.FINISHED, ones),
        (column.PREEMPTIONS, seen["preemptions"]),
    ):
        np.testing.assert_array_equal(counted[:, at], of_replicas(expected))
    gaps_s = seen["finished_at_s"] - seen["first_token_at_s"]
    np.testing.assert_allclose(counted[:, column.INTER_TOKEN_S], of_replicas(gaps_s), rtol=1e-9)
    np.testing.assert_allclose(counted[:, column.QUEUE_S], of_replicas(waited_s), atol=1e-9)


@settings(max_examples=10)
@given(seed=st.integers(0, 2**20), reads=st.lists(st.floats(0.0, 12.0), min_size=2, max_size=40))
def test_counts_never_fall_and_reading_changes_none(seed: int, reads: list[float]) -> None:
    """Read at any instants, also within a step, counters only grow, and to the same sums."""
    spec = make_spec(kv_blocks=np.array([420, 380, 450]), watermark_blocks=2)
    arrivals = make_arrivals(spec, 200, 40.0, seed)
    engine, before = run_engine(spec, arrivals, [], 0.0), np.zeros((6, column.STEP_S - column.ITERATIONS))
    for until_at_s in sorted(reads):
        engine.advance(until_at_s)
        now = engine.gauges().exported[0]
        assert (now >= before).all()
        before = now
    engine.advance(12.0)
    straight = run_engine(spec, arrivals, [], 12.0).gauges().exported
    np.testing.assert_array_equal(engine.gauges().exported, straight)


def full_batch() -> FleetEngine:
    """One replica whose step does not depend on contexts, decoding ``BATCH`` long answers."""
    model = STEP_MODEL[:1].copy()
    model[0, 3] = 0.0
    spec = make_spec(replicas=1, kernels=1, step_model=model, quality=np.zeros((1, 4, 50)))
    zero = np.zeros(BATCH, dtype=np.int64)
    arrivals = RequestArrivals(
        arrived_at_s=np.zeros(BATCH),
        slice=zero,
        prompt_tokens=zero + 50,
        output_tokens=zero + 2000,
        session=zero - 1,
        prompt=zero,
        uniforms=np.zeros((BATCH, 4)),
    )
    engine = run_engine(spec, arrivals, [], 1.0)
    assert engine.gauges().running[0, 0] == BATCH
    return engine


def test_gaps_between_tokens_are_the_steps_of_the_model() -> None:
    """With a constant batch the mean gap is the modelled step, and a slow replica's its factor longer."""
    engine = full_batch()
    step_s = STEP_MODEL[0, 0] + BATCH * STEP_MODEL[0, 2]
    before = engine.gauges().measured[0, 0]
    engine.advance(4.0)
    after = engine.gauges().measured[0, 0]
    counted = after - before
    assert counted[column.ITERATIONS] == pytest.approx(3.0 / step_s, abs=1.0)
    assert (
        counted[column.INTER_TOKENS]
        == counted[column.GENERATION_TOKENS]
        == BATCH * counted[column.ITERATIONS]
    )
    assert counted[column.INTER_TOKEN_S] / counted[column.INTER_TOKENS] == pytest.approx(step_s, rel=1e-9)
    engine.set_effect(0, 0, EngineEffect(step_time_factor=3.0))
    engine.advance(4.1)
    before = engine.gauges().measured[0, 0]
    engine.advance(9.0)
    slow = engine.gauges().measured[0, 0] - before
    assert slow[column.INTER_TOKEN_S] / slow[column.INTER_TOKENS] == pytest.approx(3.0 * step_s, rel=1e-9)


def test_a_hang_is_counted_in_the_gaps_when_it_is_over() -> None:
    """A hung engine counts nothing; the next tokens of its sequences add the time that they waited."""
    engine = full_batch()
    engine.set_effect(0, 0, EngineEffect(hang=True))
    engine.advance(1.1)
    before = engine.gauges().measured[0, 0]
    engine.advance(6.0)
    np.testing.assert_array_equal(engine.gauges().measured[0, 0], before)
    engine.set_effect(0, 0, EngineEffect())
    engine.advance(6.1)
    counted = engine.gauges().measured[0, 0] - before
    assert counted[column.INTER_TOKEN_S] == pytest.approx(BATCH * 5.0, abs=BATCH * 0.1)


def test_a_new_process_counts_from_zero() -> None:
    """A crash resets every counter of its replica and of no other."""
    spec = make_spec()
    engine = run_engine(spec, make_arrivals(spec, 200, 40.0, 3), [], 3.0)
    before = engine.gauges().measured[0]
    assert (before[:, column.GENERATION_TOKENS] > 0.0).all()
    engine.crash(0, 2)
    after = engine.gauges().measured[0]
    np.testing.assert_array_equal(after[2, column.ITERATIONS : column.STEP_S], 0.0)
    np.testing.assert_array_equal(
        np.delete(after, 2, axis=0)[:, column.FINISHED], np.delete(before, 2, axis=0)[:, column.FINISHED]
    )
