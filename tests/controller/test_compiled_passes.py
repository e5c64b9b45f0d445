"""The compiled passes of a tick follow their definitions, and consume only the state they are given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from contracts.rng import stream
from contracts.telemetry import FleetTelemetry, ReplicaState, Source
from controller.decision import Perception
from controller.detect.tick import DetectorOutputs
from controller.initial import initial_state
from controller.judge.judge import pool_if_due
from controller.judge.replicas.departures import Case
from controller.judge.replicas.identity import kernels_restated, replicas_restated
from controller.judge.replicas.quarantine import quarantine
from controller.loop import perceive, tick
from controller.options import ControllerOptions, ControllerSetup, OwnMoveOptions
from controller.state import ControllerState
from policies.registry import make_configuration
from tests.reference.plain_hang import plain_hung, plain_steps
from tests.reference.plain_observation import plain_observation
from tests.reference.plain_perceive import (
    over_kernels,
    plain_estimate,
    plain_judgement,
    plain_release,
)
from tests.reference.plain_windows import PlainWindows
from tests.support.fleets.builders import (
    Clause,
    make_contract,
    make_fleet,
    make_layout,
    quiet_telemetry,
    with_probes,
    with_steps,
    with_traffic,
)

LAYOUT = make_layout(kernels=3, slices=2, per_kernel=3)
CLAUSES = (
    Clause(name="mean", threshold=0.1, clip=0.5),
    Clause(name="rate", column=1, threshold=0.3, rate_limit=0.2, slices=(1,), hard=False, level=2),
    Clause(name="ttft", source=Source.LATENCY, column=1, edge=8, rate_limit=0.3, hard=False, level=2),
    Clause(name="failed", source=Source.FAILED, threshold=0.3, hard=False, level=3),
    Clause(name="print", source=Source.FINGERPRINT, threshold=0.0, rate_limit=0.0),
    Clause(name="kv", source=Source.KV_USED, threshold=0.9, rate_limit=0.5, hard=False, level=1),
)
FLEET = make_fleet(LAYOUT, contract=make_contract(LAYOUT, CLAUSES))
QUICK = ControllerOptions(readmit_after_s=12.0, readmit_every_s=3.0, hung_after_s=6.0, hung_least_s=3.0)
#: Late answers are evidence even where load and moves would excuse them.
UNEXCUSED = replace(QUICK, overload_ratio=np.inf, own_moves=OwnMoveOptions(gain_ratio=np.inf))
BATCH, TICKS = 3, 70


def storm(seed: int) -> list[FleetTelemetry]:
    """Every kind of fault, each for some ticks on some replicas, with quiet phases."""
    rng, out = stream(seed, "storm"), []
    shape = (BATCH, len(LAYOUT.replicas))
    unhealthy = np.zeros((6, *shape), dtype=np.bool_)
    for now in range(1, TICKS + 1):
        if now % 8 == 1:
            unhealthy = rng.random((6, *shape)) < (0.0 if now % 32 > 20 else 0.12)
        drift, failing, hung, gone, silent, wrong = unhealthy
        values = rng.uniform(0.0, 0.12, (BATCH, shape[1], 2, 2)) + 0.4 * drift[:, :, None, None]
        values[rng.random(values.shape) < 0.1] = np.nan
        seen = with_probes(quiet_telemetry(LAYOUT, float(now), BATCH), LAYOUT, values)
        seen.probes.valid[:] &= rng.random(seen.probes.valid.shape) < 0.5
        seen = with_steps(seen, hung)
        seen.engine.iterations[rng.random(shape) < 0.1] = np.nan
        answered = rng.integers(0, 6, (*shape, 2)) * ~hung[:, :, None]
        late = rng.integers(0, 2, (*shape, 2, *seen.latency_le.shape[2:]))
        failed = rng.integers(0, 3, answered.shape) * failing[:, :, None]
        latency_le = np.cumsum(late, axis=-1)
        out.append(
            replace(
                with_traffic(seen, LAYOUT, answered=answered, failed=failed, latency_le=latency_le),
                replica_state=np.where(gone, 4, seen.replica_state).astype(np.int8),
                scraped_at_ms=np.where(silent, np.nan, seen.scraped_at_ms),
                consecutive_failed=rng.integers(0, 9, shape) * failing,
                fingerprint_match=np.where(wrong, 0.0, 1.0),
                kv_used_ratio=rng.uniform(0.0, 1.0, shape),
                offered=rng.integers(0, 260, seen.offered.shape),
            )
        )
    return out


def same(actual: object, expected: Mapping[str, Any], where: str) -> None:
    """Check that every expected array equals the attribute of that name, bit for bit."""
    for name, value in expected.items():
        np.testing.assert_array_equal(getattr(actual, name), value, err_msg=f"{where}: {name}")


def check(state: ControllerState, seen: FleetTelemetry, known: Perception, setup: ControllerSetup) -> None:
    """Check one tick against its definitions, stage by stage."""
    estimate, plain, contract = known.estimate, PlainWindows(), setup.contract
    estimated = plain_estimate(state, seen, setup)
    estimated |= plain_steps(state, seen, estimated["fresh"], contract.stale_after_s)
    of_estimate = ("closed", "fresh", "received", "silent_s", "stale", "failing_now")
    same(estimate, {name: estimated.pop(name) for name in of_estimate}, "estimate")
    same(estimate.state, estimated, "estimated")
    said, memory = plain.update(state.replica_detector, estimate.state.window, estimate.closed, contract)
    same(
        known.verdicts,
        {n: getattr(said, n) for n in ("alarm", "excess", "inside", "fresh", "judged")},
        "said",
    )
    verdicts = DetectorOutputs(replicas=said, replica_memory=memory, kernels=None, drift={}, bounds={})
    ready = seen.replica_state == ReplicaState.READY
    case = Case(estimate=estimate, telemetry=seen, verdicts=verdicts, ready=ready, setup=setup)
    case = case._replace(verdicts=replicas_restated(case))
    said = case.verdicts.replicas
    for name, array in case.verdicts.replica_memory.items():
        np.testing.assert_array_equal(known.after.replica_detector[name], array, err_msg=name)
    after, apart = quarantine(case)
    hung = plain_hung(estimate.state, seen, setup)
    np.testing.assert_array_equal(apart.wanted == 3, hung)
    if not apart.wanted.any():
        condemned = replace(estimate.state, replica_condemned=after.replica_condemned)
        severe = said.alarm & ((contract.level >= 2) | contract.hard)
        back = plain_release(condemned, severe, hung, estimate.stale, seen, setup)
        same(after, dict(zip(("quarantined", "readmitted_at_s"), back, strict=True)), "released")
    pooled = plain.update(
        state.kernel_detector, pool_if_due(after, estimate, setup), estimate.closed, contract
    )
    kernels, _ = kernels_restated(*pooled, after, case)
    spread = np.zeros_like(said.alarm) if apart.spread is None else apart.spread
    judged = plain_judgement(after, estimate.state, kernels, said, spread, apart.down, seen, setup)
    same(known.judgement, judged, "judged")
    same(known.observation, plain_observation(known.after, seen, setup), "observed")


@pytest.mark.parametrize("seed", [0, 2, 3, 4])  # storms that contain every event counted below
def test_a_tick_follows_its_definitions(seed: int) -> None:
    """Estimate, windows, quarantine, judgement and observation equal plain numpy in every bit, each tick."""
    setup = make_configuration("fixed", replace(FLEET, capacity_rps=np.full(3, 60.0)), QUICK)
    state, met = initial_state(setup, BATCH), np.zeros(6, dtype=np.int64)
    for seen in storm(seed):
        known = perceive(state, seen, setup)
        check(state, seen, known, setup)
        state, decision = tick(state, seen, setup)
        judgement = decision.judgement
        met += [
            decision.quarantined.any(),
            judgement.spread.any(),
            judgement.down.any(),
            (~judgement.certified).any(),
            known.estimate.closed.any(),
            known.estimate.stale.any(),
        ]
    assert (met[:5] > 0).all(), met


@pytest.mark.parametrize("configuration", ["hysteresis", "sequential", "burn-rate"])
def test_a_consumed_state_leads_to_the_same_decisions(configuration: str) -> None:
    """Ticks that consume their state decide, and remember, exactly what pure ones do."""
    setup = make_configuration(configuration, FLEET, QUICK)
    pure = given = initial_state(setup, BATCH)
    given = initial_state(setup, BATCH)
    for seen in storm(9):
        (pure, left), (given, right) = tick(pure, seen, setup), tick(given, seen, setup, consume=True)
        for name in ("table", "quarantined", "replica_alarm", "judged", "replica_judged", "moved"):
            np.testing.assert_array_equal(getattr(left, name), getattr(right, name), err_msg=name)
        np.testing.assert_array_equal(left.judgement.health, right.judgement.health)
    for name in ("window", "replica_condemned", "condemned", "progressed_at_s"):
        np.testing.assert_array_equal(getattr(pure, name), getattr(given, name), err_msg=name)
    for name, array in pure.replica_detector.items():
        np.testing.assert_array_equal(given.replica_detector[name], array, err_msg=name)


def late_on_the_way(now_s: float) -> FleetTelemetry:
    """Nine seconds outside the engines of kernel 0, which serves slice 0; answers are late until 30 s."""
    seen = quiet_telemetry(LAYOUT, now_s)
    mine = LAYOUT.replica_kernel == 0
    late = mine[None, :, None, None, None] & (now_s <= 30.0)
    answered = np.zeros((1, 9, 2), dtype=np.int64)
    answered[:, mine, 0] = 20
    in_time = np.repeat(answered[..., None, None], seen.latency_le.shape[2], axis=3)
    latency_le = np.repeat(in_time, seen.latency_le.shape[3], axis=4)
    latency_le[..., :-1] *= ~late
    seen = with_steps(seen, np.zeros((1, 9), dtype=np.bool_))
    seen.engine.finished[:] = 20.0 * mine
    seen = with_traffic(seen, LAYOUT, answered=answered, latency_le=latency_le)
    return replace(seen, outside=np.where(mine, 9.0 * 21.0, 0.0)[None])


def test_a_consumed_state_gives_the_same_lateness_where_a_window_closes() -> None:
    """The gateway's count of late answers is read only once per tick.

    The kernels' detector takes the closing window into its memory in place; read again, that window would
    count twice and the one before not at all.
    """
    setup = make_configuration("hysteresis", FLEET, UNEXCUSED)
    pure, given, blamed = initial_state(setup, 1), initial_state(setup, 1), 0
    for now in range(1, 61):
        seen = late_on_the_way(float(now))
        (pure, told), (given, other) = tick(pure, seen, setup), tick(given, seen, setup, consume=True)
        left, right = told.judgement, other.judgement
        np.testing.assert_array_equal(left.alarm, right.alarm, err_msg=f"{now} s")
        np.testing.assert_array_equal(left.excess, right.excess, err_msg=f"{now} s")
        blamed += int(left.alarm.any())
    assert blamed


def test_the_sums_of_a_tick_are_its_units() -> None:
    """Sums of one tick are what it adds to the window, and lie exactly where ``news`` is set."""
    setup = make_configuration("sequential", FLEET, UNEXCUSED)
    state = initial_state(setup, BATCH)
    for seen in storm(3)[:12]:
        known = perceive(state, seen, setup)
        estimate, added = known.estimate, known.estimate.state.window - state.window
        if estimate.restated is not None:  # of these, what was wrong before is forgotten
            added[estimate.restated] = estimate.sums[estimate.restated]
        np.testing.assert_allclose(estimate.sums, added, rtol=0.0, atol=1e-9)
        assert not estimate.sums[~estimate.news].any()
        state, _ = tick(state, seen, setup)


def test_pooled_sums_add_replicas_in_order() -> None:
    """``over_kernels`` of these tests, on which the definitions rest, adds per kernel."""
    values = np.arange(12.0).reshape(1, 4, 3)
    total = over_kernels(values, np.array([0, 1, 0, 1]), 2, np.add)
    assert total.tolist() == [[[6.0, 8.0, 10.0], [12.0, 14.0, 16.0]]]
