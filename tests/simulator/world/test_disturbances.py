"""How faults and changes show in telemetry and in what is served."""

from __future__ import annotations

import numpy as np
import pytest

from contracts.telemetry import ReplicaState
from simulator.fleet import run_episodes
from tests.support.fleets.simulated_fleets import CHANGES, FAULTS, Build, FixedDriver, arrays_of


def test_a_numeric_fault_shows_only_in_probe_values(build: Build) -> None:
    """Telemetry of a silently wrong fleet equals that of a healthy one except for the probed values."""
    scenario, plain = build(faults=[FAULTS["requantise"]]), build()
    wrong, right = FixedDriver(scenario), FixedDriver(plain)
    run_episodes(scenario, wrong, [4])
    run_episodes(plain, right, [4])
    for one, other in zip(wrong.seen, right.seen, strict=True):
        for (name, left), (_, healthy) in zip(arrays_of(one), arrays_of(other), strict=True):
            if name != "probes.values":
                assert left.tobytes() == healthy.tobytes(), name
    assert not np.array_equal(wrong.seen[-1].probes.values, right.seen[-1].probes.values)


def test_a_crashed_replica_comes_back_after_its_cold_start(build: Build) -> None:
    """Discovery reports ready, dead for the fault's duration, starting for the cold start, then ready."""
    crash = FAULTS["crash"] | {"duration_s": 10.0, "target": {"kernel": "bf16", "replica": 1}}
    scenario = build(faults=[crash], horizon_s=60.0)
    driver = FixedDriver(scenario)
    (record,) = run_episodes(scenario, driver, [1])
    states = [ReplicaState(int(seen.replica_state[0, 4])) for seen in driver.seen]
    expected = [ReplicaState.READY] * 10 + [ReplicaState.DEAD] * 10
    expected += [ReplicaState.STARTING] * 20 + [ReplicaState.READY] * 20
    assert states == expected
    assert record.runtime_violating[10:20, 4].all()
    assert not record.runtime_violating[20:, 4].any()
    assert record.answered_by[41:, 4].sum() > 0


def test_a_hung_replica_stays_ready_and_returns_no_probe(build: Build) -> None:
    """Health checks of a hung engine report ready, its metrics still answer, but it computes nothing."""
    hang = FAULTS["hang"] | {"target": {"kernel": "bf16", "replica": 0}}
    scenario = build(faults=[hang], horizon_s=30.0)
    driver = FixedDriver(scenario)
    (record,) = run_episodes(scenario, driver, [1])
    last = driver.seen[-1]
    assert last.replica_state[0, 3] == ReplicaState.READY
    assert not last.probes.valid[0, last.probes.replica[0] == 3].any()
    assert last.scraped_at_ms[0, 3] > 20_000.0
    assert record.answered_by[12:, 3].sum() == 0
    assert record.runtime_violating[-1, 3].all()


def test_reset_streams_of_a_hung_replica_fail_or_move_at_once(build: Build) -> None:
    """Requests of a hung replica end at the reset and not at their timeout, each counted once."""
    hang = FAULTS["hang"] | {"target": {"kernel": "bf16", "replica": 0}}
    scenario = build(faults=[hang], horizon_s=60.0)
    left, cut = (FixedDriver(scenario, out_from={3: 15}, resets=resets) for resets in (False, True))
    (waits,), (moves,) = run_episodes(scenario, left, [1]), run_episodes(scenario, cut, [1])
    np.testing.assert_array_equal(waits.offered, moves.offered)
    held = left.seen[15].running[0, 3] + left.seen[15].waiting[0, 3]
    assert held > 0.0
    assert waits.failed[:15].sum() == moves.failed[:15].sum()
    assert waits.failed[16:].sum() > 0
    assert moves.failed[16:].sum() == 0
    assert moves.failed[15].sum() <= held
    assert moves.answered.sum() + moves.failed.sum() >= waits.answered.sum() + waits.failed.sum()
    assert moves.answered.sum() + moves.failed.sum() <= moves.offered.sum()
    assert cut.seen[-1].running[0, 3] + cut.seen[-1].waiting[0, 3] == 0.0


def test_lost_telemetry_is_stale_not_bad(build: Build) -> None:
    """A replica that loses its telemetry turns stale; its last values stay, and it still answers."""
    scenario = build(faults=[FAULTS["telemetry_loss"]], horizon_s=40.0)
    driver = FixedDriver(scenario)
    (record,) = run_episodes(scenario, driver, [1])
    last = driver.seen[-1]
    assert (last.scraped_at_ms[0, 3:6] <= 10_000.0).all()
    assert (last.scraped_at_ms[0, 6:9] > 30_000.0).all()
    assert (last.fingerprint_match[0] == 1.0).all()
    assert not last.probes.valid[0, np.isin(last.probes.replica[0], (3, 4, 5))].any()
    assert record.answered_by[20:, 3:6].sum() > 0
    assert record.failed.sum() == 0
    assert not record.violating.any()


def test_scrapes_come_late_and_lose_nothing(build: Build) -> None:
    """Histograms arrive in the order of scrapes; a lost one's counts come with the next, none twice."""
    scenario = build(changes=[CHANGES[5]], horizon_s=60.0)
    driver = FixedDriver(scenario)
    (record,) = run_episodes(scenario, driver, [6])
    shown = sum(seen.latency_le[0, :, 0, -1] for seen in driver.seen)
    answered = np.cumsum(record.answered_by.sum(axis=2), axis=0)
    assert (shown <= answered[-1]).all()
    assert (shown >= answered[40]).all()
    known = driver.seen[20:]
    ages_ms = [seen.now_ms[0] - seen.scraped_at_ms[0] for seen in known]
    assert np.min(ages_ms) >= 500.0
    assert (np.diff([seen.scraped_at_ms[0] for seen in known], axis=0) >= 0.0).all()


def test_wrong_fingerprint_and_missing_fields_show_in_their_fields(build: Build) -> None:
    """Observability faults reach telemetry in their own fields, and the truth as silent violations."""
    faults = [FAULTS["wrong_fingerprint"], FAULTS["trace_fields_missing"]]
    scenario = build(faults=faults)
    driver = FixedDriver(scenario)
    (record,) = run_episodes(scenario, driver, [1])
    last = driver.seen[-1]
    assert (last.fingerprint_match[0, 3:6] == 0.0).all()
    assert (last.trace_fields_ratio[0, 3:6] == 0.5).all()
    assert record.violating[-1, 3:6].all()
    assert not record.violating[:10].any()


def test_scaling_changes_the_serving_replicas(build: Build) -> None:
    """New replicas serve after their cold start, removed ones drain first, and nothing fails."""
    scenario = build(changes=CHANGES[1:3], horizon_s=60.0)
    driver = FixedDriver(scenario)
    (record,) = run_episodes(scenario, driver, [1])
    places = [record.replicas.index(name) for name in ("bf16-3", "bf16-4")]
    first, second = places
    assert record.answered_by[:12, places].sum() == 0
    assert record.answered_by[13:20, first].sum() > 0
    assert driver.seen[-1].replica_state[0, second] == ReplicaState.ABSENT
    assert driver.seen[-1].replica_state[0, first] == ReplicaState.READY
    assert record.failed.sum() == 0
    assert record.accelerator_s[0].sum() == 9.0
    assert record.accelerator_s[-1].sum() == 10.0


def test_a_rolling_restart_loses_no_request(build: Build) -> None:
    """Every replica of the kernel restarts in turn, drained first, and no request fails."""
    scenario = build(changes=CHANGES[:1], horizon_s=60.0)
    driver = FixedDriver(scenario)
    (record,) = run_episodes(scenario, driver, [1])
    states = np.stack([seen.replica_state[0, 6:9] for seen in driver.seen])
    assert ((states == ReplicaState.STARTING).any(axis=0)).all()
    assert ((states == ReplicaState.READY).sum(axis=1) >= 1).all()
    assert record.failed.sum() == 0


def test_a_surge_only_speeds_up_the_same_requests(build: Build) -> None:
    """Before its onset a surge changes nothing, and during it about factor times as many requests arrive."""
    surge = {"kind": "surge", "at_s": 100.0, "duration_s": 100.0, "factor": 3.0}
    scenario, plain = build(changes=[surge], horizon_s=200.0), build(horizon_s=200.0)
    (surged,) = run_episodes(scenario, FixedDriver(scenario), [1])
    (clean,) = run_episodes(plain, FixedDriver(plain), [1])
    assert surged.offered[:100].tobytes() == clean.offered[:100].tobytes()
    assert surged.offered[100:].sum() == pytest.approx(3.0 * clean.offered[100:].sum(), rel=0.15)
