"""The telemetry record: every number has the axes of its source, none is lost or counted twice."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from contracts.telemetry import FleetTelemetry, ProbeOutcome
from simulator.fleet import run_episodes
from simulator.world.compiled_scenario import CompiledScenario
from tests.support.fleets.simulated_fleets import CHANGES, FAULTS, Build, FixedDriver, arrays_of

#: Half of all traffic on another kernel, so that the gateway has more than one cell per slice.
SPREAD = [0.5, 0.5, 0.0, 0.0]
#: Fields that only a gateway knows by slice (for a probe the prober does).
BY_SLICE = {"offered", "gateway.answered", "gateway.failed", "gateway.timed_out", "gateway.latency_le"}
TROUBLES = {
    "calm": [],
    "crash": [FAULTS["crash"] | {"duration_s": 8.0, "target": {"kernel": "bf16", "replica": 1}}],
    "errors": [FAULTS["http_errors"]],
    "hang": [FAULTS["hang"] | {"target": {"kernel": "bf16", "replica": 0}}],
}


def watched(scenario: CompiledScenario, seeds: list[int]) -> list[FleetTelemetry]:
    """Telemetry of every tick for a driver that never moves anything."""
    driver = FixedDriver(scenario, weights=SPREAD)
    run_episodes(scenario, driver, seeds, batch=len(seeds))
    return driver.seen


def of_kernels(by_replica: NDArray[np.int64], scenario: CompiledScenario) -> NDArray[np.int64]:
    """[B, K] from [B, R]."""
    owner = np.eye(len(scenario.layout.kernels), dtype=np.int64)[scenario.layout.replica_kernel]
    return np.asarray(by_replica @ owner)


@pytest.mark.parametrize("trouble", TROUBLES)
def test_gateway_and_hosts_count_the_same_attempts(build: Build, trouble: str) -> None:
    """The gateway's counts per kernel, summed over slices, equal those of its replicas' host counters.

    Each answer is in the histograms once, when they are merged.
    """
    scenario = build(faults=TROUBLES[trouble])
    seen, bad, flushes = watched(scenario, [3]), 0, 0
    answered = np.zeros_like(seen[0].gateway.answered)
    for tick in seen:
        for name in ("answered", "failed"):
            by_kernel = getattr(tick.gateway, name).sum(axis=1)
            np.testing.assert_array_equal(by_kernel, of_kernels(getattr(tick, name), scenario))
        answered = answered + tick.gateway.answered
        totals = tick.gateway.latency_le[..., -1]
        if totals.any():
            np.testing.assert_array_equal(totals, np.repeat(answered[..., None], 3, axis=-1))
            answered, flushes = np.zeros_like(answered), flushes + 1
        bad += int(tick.failed.sum())
    assert flushes == round(scenario.horizon_s / scenario.telemetry.scrape_interval_s)
    assert (bad > 0) == (trouble != "calm")
    assert sum(int(tick.gateway.answered[:, :, 1].sum()) for tick in seen) > 0


@pytest.mark.parametrize("trouble", ["calm", "errors"])
def test_a_server_counts_every_answer_in_every_family(build: Build, trouble: str) -> None:
    """Between two scrapes a histogram holds as many answers as ``finished`` counts."""
    known = 0
    for tick in watched(build(faults=TROUBLES[trouble], horizon_s=80.0), [3]):
        there = np.isfinite(tick.engine.finished)
        totals = tick.latency_le[there][..., -1]
        np.testing.assert_array_equal(totals, np.repeat(tick.engine.finished[there][:, None], 3, axis=1))
        known += int(totals.sum())
    assert known > 0


def test_a_slow_network_is_seen_only_by_the_gateway(build: Build) -> None:
    """Delay between gateway and server is in no histogram of the server."""
    late = FAULTS["latency"] | {"dose": 5000.0, "onset_s": 0.0}
    slow, plain = watched(build(faults=[late]), [3]), watched(build(), [3])
    edge = 6  # of 250 ms; first tokens are faster than that here
    for seen, share in ((slow, 1.0), (plain, 0.0)):
        served = np.sum([tick.latency_le[..., 1, :] for tick in seen], axis=(0, 1, 2))
        passed = np.sum([tick.gateway.latency_le[0, :, 1, 1] for tick in seen], axis=(0, 1))
        assert served[edge] == served[-1] > 0
        assert 1.0 - passed[edge] / passed[-1] == share


def test_scraped_numbers_have_no_slices(build: Build) -> None:
    """No number exported by a server or held by a host counter has an axis of slices."""
    scenario = build()
    kernels, slices, replicas = scenario.layout.shape
    (first, *_) = watched(scenario, [3])
    assert slices not in (kernels, replicas, first.latency_le.shape[-1], first.latency_le.shape[-2])
    assert {name for name, array in arrays_of(first) if slices in array.shape[1:]} == BY_SLICE
    assert {name for name, array in arrays_of(first) if array.shape[1:2] == (replicas,)} >= {
        "answered",
        "failed",
        "consecutive_failed",
        "latency_le",
        "engine.finished",
    }


def test_no_fleet_sees_numbers_of_another(build: Build) -> None:
    """A fleet's record does not depend on the other fleets of its batch."""
    scenario = build(faults=TROUBLES["crash"], changes=[CHANGES[5]])
    alone, shared = watched(scenario, [4]), watched(scenario, [7, 4])
    for one, both in zip(alone, shared, strict=True):
        for (name, mine), (_, ours) in zip(arrays_of(one), arrays_of(both), strict=True):
            np.testing.assert_array_equal(mine[0], ours[1], err_msg=name)


@pytest.mark.parametrize(
    ("kind", "outcome"), [("hang", ProbeOutcome.TIMED_OUT), ("crash", ProbeOutcome.REFUSED)]
)
def test_probes_report_how_they_ended(build: Build, kind: str, outcome: ProbeOutcome) -> None:
    """A hung replica gives no answer in time, a dead one refuses, all others answer after a while."""
    fault = FAULTS[kind] | {"target": {"kernel": "bf16", "replica": 0}}
    last = watched(build(faults=[fault], horizon_s=30.0), [1])[-1].probes
    due = last.outcome[0] != ProbeOutcome.NONE
    struck = last.replica[0] == 3
    assert (last.outcome[0, due & struck] == outcome).all()
    assert (last.outcome[0, due & ~struck] == ProbeOutcome.ANSWERED).all()
    assert (due & struck).any()
    assert (last.latency_ms[0, due & ~struck] > 0.0).all()
