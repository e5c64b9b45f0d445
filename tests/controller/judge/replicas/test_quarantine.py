"""Quarantine, the second lever, in whole runs of the controller."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.telemetry import FleetTelemetry, ReplicaState
from controller.options import ControllerOptions
from controller.state import QuarantineReason
from policies.registry import make_configuration
from policies.synthetic_fleet import all_at_once
from tests.controller.judge.replicas.test_hang import standing
from tests.support.fleets.builders import make_fleet, make_layout, with_steps, with_traffic
from tests.support.fleets.worlds import drift, run, script

LAYOUT = make_layout(kernels=2, slices=2, per_kernel=3)
QUICK = ControllerOptions(readmit_after_s=20.0, readmit_every_s=5.0, hung_after_s=5.0)
FLEET = make_fleet(LAYOUT)


def test_a_replica_that_departs_alone_is_quarantined() -> None:
    """One replica in alarm among quiet peers leaves the rotation; its kernel stays certified."""
    result = run(make_configuration("fixed", FLEET, QUICK), script(LAYOUT, 40, drift(LAYOUT, [1], 5.0)))
    assert result.quarantined()[-1].tolist() == [False, True, False, False, False, False]
    last = result.decisions[-1]
    assert last.quarantine_reason[0, 1] == QuarantineReason.DEPARTS
    assert last.judgement.certified.all()
    assert last.plan.in_rotation[0].tolist() == [True, False, True, True, True, True]


def test_peers_that_depart_together_condemn_the_kernel() -> None:
    """All replicas of a kernel in alarm: none is quarantined, the kernel is hard violated."""
    result = run(make_configuration("fixed", FLEET, QUICK), script(LAYOUT, 40, drift(LAYOUT, [0, 1, 2], 5.0)))
    assert not result.quarantined().any()
    judgement = result.decisions[-1].judgement
    assert judgement.hard_violated[0].tolist() == [[True, True], [False, False]]


def test_without_the_lever_no_replica_is_quarantined() -> None:
    """The option turns quarantine off; the pooled evidence still condemns the kernel."""
    setup = make_configuration("fixed", FLEET, replace(QUICK, quarantine=False))
    result = run(setup, script(LAYOUT, 60, drift(LAYOUT, [0, 1], 5.0)))
    assert not result.quarantined().any()
    assert result.decisions[-1].judgement.hard_violated[0, 0].all()


@pytest.mark.parametrize("ratio, most", [(0.0, 1), (0.5, 1), (0.7, 2), (1.0, 2)])
def test_cap(ratio: float, most: int) -> None:
    """At most max(1, floor(ratio * n)) of n replicas, and never the last one."""

    def failing(seen: FleetTelemetry, _now_s: float) -> FleetTelemetry:
        failed = seen.failed.copy()
        failed[:, :3] = 1
        return replace(seen, failed=failed, consecutive_failed=np.array([[9, 9, 9, 0, 0, 0]]))

    fleet = replace(FLEET, contract=replace(FLEET.contract, ejection_cap_ratio=ratio))
    result = run(make_configuration("fixed", fleet, QUICK), script(LAYOUT, 3, failing))
    assert result.quarantined()[-1].sum() == most


def test_a_departing_replica_that_the_cap_keeps_condemns_its_kernel() -> None:
    """Two of four replicas in alarm with room for one: the other one's alarm counts for the kernel."""
    layout = make_layout(kernels=2, slices=1, per_kernel=4)
    fleet = make_fleet(layout)
    fleet = replace(fleet, contract=replace(fleet.contract, ejection_cap_ratio=0.25))
    result = run(make_configuration("fixed", fleet, QUICK), script(layout, 30, drift(layout, [0, 1], 5.0)))
    assert result.quarantined()[-1].sum() == 1
    assert result.decisions[-1].judgement.hard_violated[0, :, 0].tolist() == [True, False]


def test_hung_replica_is_quarantined_and_a_merely_silent_one_is_not() -> None:
    """Running requests without a step mean hung only while scrapes arrive."""

    def stuck(seen: FleetTelemetry, now_s: float) -> FleetTelemetry:
        answered = seen.answered.copy()
        answered[:, 0], answered[:, 3] = 0, 0
        scraped = seen.scraped_at_ms.copy()
        scraped[:, 3] = min(now_s, 2.0) * 1000.0
        return replace(standing(seen, 0, 3), answered=answered, scraped_at_ms=scraped)

    result = run(make_configuration("fixed", FLEET, QUICK), script(LAYOUT, 30, stuck))
    assert result.quarantined()[-1].tolist() == [True, False, False, False, False, False]
    assert result.decisions[-1].quarantine_reason[0, 0] == QuarantineReason.HUNG


@pytest.mark.parametrize("stuck, out", [([0, 1, 2], 3), ([0, 1, 2, 3], 2)])
def test_a_hung_replica_goes_beyond_the_cap_while_another_answers(stuck: list[int], out: int) -> None:
    """Three of four hang and all go, past a cap of a half; if all four hang the cap keeps two."""
    layout = make_layout(kernels=2, slices=1, per_kernel=4)

    def hang(seen: FleetTelemetry, _now_s: float) -> FleetTelemetry:
        answered = seen.answered.copy()
        answered[:, stuck] = 0
        return replace(with_steps(seen, np.isin(np.arange(8), stuck)[None]), answered=answered)

    result = run(make_configuration("fixed", make_fleet(layout), QUICK), script(layout, 30, hang))
    assert result.quarantined()[-1, :4].sum() == out
    assert not result.quarantined()[:, 4:].any()


def test_a_replica_that_hung_while_it_was_idle_is_found() -> None:
    """Its engine never takes what waits, so nothing runs; without any load a hang is not detectable."""

    def stuck(seen: FleetTelemetry, now_s: float) -> FleetTelemetry:
        answered, running, waiting = seen.answered.copy(), seen.running.copy(), seen.waiting.copy()
        answered[:, :2], running[:, :2], waiting[:, :2] = 0, 0.0, 0.0
        waiting[:, 0] = 2.0 if now_s > 5.0 else 0.0
        return replace(standing(seen, 0, 1), answered=answered, running=running, waiting=waiting)

    result = run(make_configuration("fixed", FLEET, QUICK), script(LAYOUT, 30, stuck))
    assert result.quarantined()[-1].tolist() == [True, False, False, False, False, False]
    assert result.decisions[-1].quarantine_reason[0, 0] == QuarantineReason.HUNG


def test_the_pooled_evidence_names_the_one_bad_replica() -> None:
    """Where a replica alone has too few observations, it is named if the pool is fine without it."""

    def wrong(seen: FleetTelemetry, now_s: float) -> FleetTelemetry:
        seen.probes.values[seen.probes.replica == 1, 0] = 5.0 if now_s > 11.0 else 0.01
        return seen

    fleet = replace(FLEET, contract=replace(FLEET.contract, min_samples=25))
    result = run(make_configuration("threshold", fleet, QUICK), script(LAYOUT, 31, wrong))
    assert result.decisions[20].quarantined[0].tolist() == [False, True, False, False, False, False]
    assert result.decisions[20].judgement.certified.all()
    assert (result.tables()[:, :, 0] == 1.0).all()
    assert result.quarantined()[20:, 1].all()


def test_a_peer_below_significance_makes_it_the_kernels_fault() -> None:
    """One replica in alarm while its peers drift below significance: the kernel is at fault."""

    def uneven(seen: FleetTelemetry, _now_s: float) -> FleetTelemetry:
        seen.probes.values[seen.probes.replica == 0, 0] = 0.5
        noisy = np.isin(seen.probes.replica, [1, 2])
        seen.probes.values[noisy, 0] = np.where(_now_s % 2.0 < 1.0, 0.0, 0.25)
        return seen

    result = run(make_configuration("fixed", FLEET, QUICK), script(LAYOUT, 12, uneven))
    assert not result.quarantined().any()
    assert result.decisions[-1].judgement.hard_violated[0, 0].all()


@pytest.mark.parametrize("configuration", ["hysteresis", "sequential"])
def test_one_slow_replica_goes_and_its_kernel_stays(configuration: str) -> None:
    """On which slices it is late is unknown; the gateway sees that a third of the kernel's answers are."""

    def late(seen: FleetTelemetry, now_s: float) -> FleetTelemetry:
        answered = np.full((1, 6, 2), 10, dtype=np.int64)
        latency_le = all_at_once(answered)
        latency_le[:, 0, :, :, :-1] = 0 if now_s > 20.0 else 10
        return with_traffic(seen, LAYOUT, answered=answered, latency_le=latency_le)

    result = run(make_configuration(configuration, FLEET, QUICK), script(LAYOUT, 160, late))
    assert result.quarantined()[-1].tolist() == [True, False, False, False, False, False]
    assert (result.tables()[:, :, 0] == 1.0).all()
    assert all(decision.judgement.certified.all() for decision in result.decisions)


@pytest.mark.parametrize("configuration", ["hysteresis", "sequential"])
def test_a_slow_kernel_is_left_on_the_slice_that_it_is_slow_on(configuration: str) -> None:
    """Late answers on one slice, on every replica: the gateway shows which, and no replica is blamed."""

    def late(seen: FleetTelemetry, now_s: float) -> FleetTelemetry:
        answered = np.full((1, 6, 2), 10, dtype=np.int64)
        latency_le = all_at_once(answered)
        latency_le[:, :3, 1, :, :-1] = 0 if now_s > 20.0 else 10
        return with_traffic(seen, LAYOUT, answered=answered, latency_le=latency_le)

    result = run(make_configuration(configuration, FLEET, QUICK), script(LAYOUT, 160, late))
    assert not result.quarantined().any()
    assert (result.tables()[:, 0, 0] == 1.0).all()
    assert result.tables()[:, 1, 0].min() == 0.0


def test_a_replica_that_starts_is_not_hung() -> None:
    """Time before a replica was ready does not count, however long it was away."""

    def restart(seen: FleetTelemetry, now_s: float) -> FleetTelemetry:
        state, answered = seen.replica_state.copy(), seen.answered.copy()
        state[:, 0] = int(ReplicaState.STARTING) if 5.0 < now_s <= 40.0 else int(ReplicaState.READY)
        answered[:, 0] = 0 if 5.0 < now_s <= 44.0 else 10
        return replace(standing(seen, *[0] * (5.0 < now_s <= 44.0)), replica_state=state, answered=answered)

    result = run(make_configuration("fixed", FLEET, QUICK), script(LAYOUT, 60, restart))
    assert QuarantineReason.HUNG not in {int(one.quarantine_reason[0, 0]) for one in result.decisions}


def test_readmission_needs_recertification_and_time() -> None:
    """A replica comes back only after its time, with clean evidence, and one per kernel at a time."""
    result = run(
        make_configuration("fixed", FLEET, QUICK), script(LAYOUT, 120, drift(LAYOUT, [1], 5.0, 50.0))
    )
    out = result.quarantined()[:, 1]
    begin, end = int(np.argmax(out)), len(out) - int(np.argmax(out[::-1]))
    assert out[begin:end].all()
    assert end > 50  # still drifting before that
    assert not out[-1]
    assert end - begin >= 20


def test_a_hung_replica_that_went_idle_does_not_come_back() -> None:
    """Once its requests have timed out nothing runs on it; without an answered probe it stays out."""

    def hang(seen: FleetTelemetry, now_s: float) -> FleetTelemetry:
        answered, running = seen.answered.copy(), seen.running.copy()
        answered[:, 0] = 0
        running[:, 0] = 3.0 if now_s < 30.0 else 0.0
        told = standing(seen, *[0] * (now_s <= 150.0))
        return replace(told, answered=answered, running=running)

    out = run(make_configuration("fixed", FLEET, QUICK), script(LAYOUT, 200, hang)).quarantined()[:, 0]
    assert out[20:150].all()
    assert not out[-1]


@pytest.mark.parametrize(("held", "comes_back"), [(0.9, False), (0.0, True), (np.nan, True)])
def test_a_replica_whose_blocks_are_not_freed_does_not_come_back(held: float, comes_back: bool) -> None:
    """It hung and answers probes again; as long as its KV blocks are in use it would hang again."""

    def leaks(seen: FleetTelemetry, now_s: float) -> FleetTelemetry:
        answered, running, used = seen.answered.copy(), seen.running.copy(), seen.kv_used_ratio.copy()
        answered[:, 0] = 0
        running[:, 0], seen.waiting[:, 0] = (3.0 if now_s < 30.0 else 0.0), 0.0
        used[:, 0] = held
        return replace(
            standing(seen, *[0] * (now_s < 30.0)), answered=answered, running=running, kv_used_ratio=used
        )

    out = run(make_configuration("fixed", FLEET, QUICK), script(LAYOUT, 120, leaks)).quarantined()[:, 0]
    assert out[20:30].all()
    assert bool(out[60:].all()) is not comes_back


def test_a_kernel_that_fails_as_a_whole_is_down() -> None:
    """When every replica in rotation fails, the kernel is at level fallback and loses its certificate."""

    def failing(seen: FleetTelemetry, now_s: float) -> FleetTelemetry:
        if now_s != 3.0:
            return seen
        failed = seen.failed.copy()
        failed[:, :3] = 1
        return replace(seen, failed=failed, consecutive_failed=np.array([[9, 9, 9, 0, 0, 0]]))

    result = run(make_configuration("threshold", FLEET, QUICK), script(LAYOUT, 30, failing))
    assert result.tables()[2, :, 1].tolist() == [1.0, 1.0]
    assert result.tables()[10, :, 1].tolist() == [1.0, 1.0]  # no traffic, no failures: no way back yet
    assert result.tables()[-1, :, 0].tolist() == [1.0, 1.0]


@settings(max_examples=15)
@given(st.integers(0, 2**32 - 1))
def test_one_replica_of_every_ready_kernel_stays_in_rotation(seed: int) -> None:
    """For any telemetry, quarantine never takes the last ready replica of a kernel."""
    rng = np.random.Generator(np.random.PCG64(seed))

    def chaos(seen: FleetTelemetry, _now_s: float) -> FleetTelemetry:
        seen.probes.values[..., 0] = rng.choice([0.01, 0.5], seen.probes.valid.shape)
        return replace(
            seen,
            failed=rng.integers(0, 2, seen.failed.shape),
            consecutive_failed=rng.integers(0, 9, seen.consecutive_failed.shape),
            answered=rng.integers(0, 2, seen.answered.shape),
            gateway=replace(seen.gateway, failed=rng.integers(0, 9, seen.gateway.failed.shape)),
        )

    result = run(make_configuration("fixed", FLEET, QUICK), script(LAYOUT, 40, chaos))
    kept = ~result.quarantined().reshape(-1, 2, 3)
    assert kept.any(axis=2).all()
