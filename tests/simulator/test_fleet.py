"""The simulated fleet: what may change a result, and what must not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from faults.catalogue import CATALOGUE
from simulator.fleet import run_episodes
from tests.support.fleets.simulated_fleets import (
    CHANGES,
    FAULTS,
    Build,
    FixedDriver,
    assert_same_bytes,
    drive,
    once,
)


@pytest.mark.parametrize("kind", sorted(set(FAULTS) - {"kernel_regression"}))
def test_dose_zero_changes_nothing(build: Build, kind: str) -> None:
    """A fault at its neutral dose leaves every byte of the episode unchanged."""
    neutral = FAULTS[kind] | {"dose": CATALOGUE[kind].dose.neutral}
    scenario, plain = build(faults=[neutral]), build()
    assert_same_bytes(once(scenario, 3), once(plain, 3))


@pytest.mark.parametrize("kind", sorted(set(FAULTS) - {"load_surge"}))
def test_a_fault_moves_no_arrival(build: Build, kind: str) -> None:
    """With any fault the same requests arrive at the same instants with the same lengths."""
    scenario, plain = build(faults=[FAULTS[kind]]), build()
    (faulty,) = run_episodes(scenario, FixedDriver(scenario), [5])
    (clean,) = run_episodes(plain, FixedDriver(plain), [5])
    assert faulty.offered.tobytes() == clean.offered.tobytes()
    assert faulty.offered_tokens.tobytes() == clean.offered_tokens.tobytes()


@pytest.mark.parametrize("policy", ["hysteresis", "breaker", "threshold"])
def test_results_do_not_depend_on_the_batch(build: Build, policy: str) -> None:
    """Fleets advanced together end as each would alone, under faults and every kind of change."""
    faults = [FAULTS["requantise"], FAULTS["crash"] | {"duration_s": 6.3, "target": {"kernel": "fp32"}}]
    scenario = build(faults=faults, changes=CHANGES)
    together = run_episodes(scenario, drive(scenario, policy), [7, 8, 9])
    alone = [run_episodes(scenario, drive(scenario, policy), [seed])[0] for seed in (7, 8, 9)]
    split = run_episodes(scenario, drive(scenario, policy), [7, 8, 9], batch=2)
    for one, other, third in zip(together, alone, split, strict=True):
        assert_same_bytes(one, other)
        assert_same_bytes(one, third)


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    kinds=st.lists(st.sampled_from(sorted(FAULTS)), max_size=3, unique=True),
    chosen=st.lists(st.sampled_from(CHANGES), max_size=3, unique_by=lambda change: str(change["kind"])),
    seed=st.integers(0, 2**31),
)
def test_every_request_ends_once(
    build: Build, kinds: list[str], chosen: list[dict[str, object]], seed: int
) -> None:
    """Offered requests end at most once under any events, and a second run gives the same bytes."""
    scenario = build(faults=[FAULTS[kind] for kind in kinds], changes=chosen, horizon_s=24.0)
    (record,) = run_episodes(scenario, drive(scenario), [seed])
    ended = record.answered + record.failed + record.shed
    assert (np.cumsum(record.offered, axis=0) >= np.cumsum(ended, axis=0)).all()
    assert record.answered.sum() == record.answered_by.sum()
    assert (record.exposed_in_flight <= record.exposed).all()
    assert_same_bytes(record, once(scenario, seed))


def test_weights_are_respected(build: Build) -> None:
    """Each kernel answers the share of requests that the table gives it, within sampling error."""
    scenario = build(horizon_s=120.0, rate_rps=20.0)
    weights = [0.2, 0.5, 0.3, 0.0]
    (record,) = run_episodes(scenario, FixedDriver(scenario, weights=weights), [1])
    by_replica = record.answered_by.sum(axis=(0, 2))
    total = by_replica.sum()
    for kernel, weight in enumerate(weights[:3]):
        share = by_replica[record.replica_kernel == kernel].sum() / total
        assert abs(share - weight) < 4.0 * np.sqrt(weight * (1.0 - weight) / total)


def test_shed_share_is_shed(build: Build) -> None:
    """The share that the table sheds is shed, and nothing else is."""
    scenario = build(horizon_s=60.0)
    (record,) = run_episodes(scenario, FixedDriver(scenario, weights=[0.0, 0.5, 0.0, 0.5]), [1])
    offered, shed = record.offered.sum(), record.shed.sum()
    assert abs(shed / offered - 0.5) < 4.0 * np.sqrt(0.25 / offered)
    (record,) = run_episodes(scenario, FixedDriver(scenario), [1])
    assert record.shed.sum() == 0


def test_a_replica_out_of_rotation_gets_no_new_request(build: Build) -> None:
    """After quarantine a replica answers only the requests it held, and still answers probes."""
    scenario = build(horizon_s=60.0)
    driver = FixedDriver(scenario, out_from={4: 20})
    (record,) = run_episodes(scenario, driver, [2])
    assert record.answered_by[:20, 4].sum() > 0
    assert record.answered_by[40:, 4].sum() == 0
    assert not record.in_rotation[20:, 4].any()
    assert record.quarantined[20:, 4].all()
    late = driver.seen[-1].probes
    assert late.valid[0, late.replica[0] == 4].all()


def test_a_controller_moves_away_from_a_wrong_kernel(build: Build) -> None:
    """End to end: a requantised kernel is left, and fewer answers are exposed than under a fixed table."""
    scenario = build(faults=[FAULTS["requantise"]], horizon_s=200.0)
    (moved,) = run_episodes(scenario, drive(scenario, "threshold"), [0])
    (fixed,) = run_episodes(scenario, drive(scenario, "fixed-bare"), [0])
    assert moved.table[-1, 0, 1] == 0.0
    assert moved.exposed.sum() < 0.6 * fixed.exposed.sum()
    assert moved.excess_tv_tokens.sum() < fixed.excess_tv_tokens.sum()


@pytest.mark.parametrize("tick_s", [0.1, 0.7, 2.0])
def test_any_tick_length_works(build: Build, tick_s: float) -> None:
    """Ticks that are inexact in binary keep the independence of the batch and the order of events."""
    crash = FAULTS["crash"] | {"onset_s": 3.3, "duration_s": 2.2, "target": {"kernel": "fp32"}}
    changes = [CHANGES[0] | {"at_s": 2.2, "step_s": 1.1, "cold_start_s": 0.7}]
    horizon_s = round(30 * tick_s, 9)
    scenario = build(
        faults=[crash] if horizon_s > 3.3 else [], changes=changes, tick_s=tick_s, horizon_s=horizon_s
    )
    together = run_episodes(scenario, drive(scenario), [1, 2])
    for seed, record in zip((1, 2), together, strict=True):
        assert_same_bytes(record, once(scenario, seed))


@pytest.mark.parametrize("factor", [1e-9, 0.5, 2.0, 100.0])
def test_a_declared_capacity_changes_nothing(build: Build, factor: float) -> None:
    """Whatever capacity the pool declares, the capacity used is learned."""
    scenario = build(faults=[FAULTS["requantise"]], changes=CHANGES)
    other = replace(scenario, capacity_rps=scenario.capacity_rps * factor)
    (told,) = run_episodes(scenario, drive(scenario, "hysteresis"), [11])
    (wrong,) = run_episodes(other, drive(other, "hysteresis"), [11])
    assert_same_bytes(told, wrong)
