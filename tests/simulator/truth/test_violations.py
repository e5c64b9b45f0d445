"""The ground truth: what breaks a clause, and what does not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from faults.effects import ReplicaEffect
from simulator.truth.violations import expected_latencies_ms, numeric_or_observability, runtime
from simulator.world.compiled_scenario import CompiledScenario
from simulator.world.tables import clause_broken


def test_a_healthy_replica_violates_nothing(world: CompiledScenario) -> None:
    """In the synthetic pool every healthy kernel keeps the contract."""
    for kernel in range(3):
        assert not numeric_or_observability(world, kernel, ReplicaEffect()).any()
        assert not runtime(world, kernel, ReplicaEffect()).any()


@pytest.mark.parametrize(
    ("effect", "broken"),
    [
        (ReplicaEffect(crashed=True), True),
        (ReplicaEffect(hang=True), True),
        (ReplicaEffect(step_time_factor=1000.0), True),
        (ReplicaEffect(step_time_factor=1.1), False),
        (ReplicaEffect(http_latency_ms=60_000.0), True),
        (ReplicaEffect(http_latency_ms=1.0), False),
        (ReplicaEffect(http_error_ratio=0.5), True),
        (ReplicaEffect(http_error_ratio=0.001), False),
        (ReplicaEffect(kv_held_ratio=0.999), True),
        (ReplicaEffect(telemetry_lost=True), False),
        (ReplicaEffect(condition=7), False),
    ],
)
def test_runtime_truth(world: CompiledScenario, effect: ReplicaEffect, broken: bool) -> None:
    """Dead, hung, failing or very slow replicas break runtime clauses; silent faults do not."""
    assert runtime(world, 1, effect).all() == broken
    assert runtime(world, 1, effect).any() == broken


def test_expected_latency_grows_with_each_fault(world: CompiledScenario) -> None:
    """Slower steps and added delay never shorten the expected latency."""
    healthy = expected_latencies_ms(world, 1, ReplicaEffect())
    for effect in (ReplicaEffect(step_time_factor=2.0), ReplicaEffect(http_latency_ms=5.0)):
        assert (expected_latencies_ms(world, 1, effect) >= healthy).all()


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=30), st.integers(0, 2))
def test_clauses_ignore_unmeasured_values(world: CompiledScenario, values: list[float], clause: int) -> None:
    """Adding unmeasured values changes no verdict, and unmeasured values alone break nothing."""
    known = np.array([values])
    padded = np.concatenate([known, np.full((1, 3), np.nan)], axis=1)
    verdict = clause_broken(known, world.contract, clause)
    assert np.array_equal(clause_broken(padded, world.contract, clause), verdict)
    assert not clause_broken(np.full((1, 4), np.nan), world.contract, clause).any()
