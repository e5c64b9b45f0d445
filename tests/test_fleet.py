"""Laws of the simulated fleet: what may change a result, and what must not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields

import numpy as np
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from contracts.documents.scenario import Scenario
from contracts.episode import EpisodeRecord
from contracts.loader import load_text
from contracts.telemetry import FleetTelemetry, ReplicaState
from controller.ports import RoutingPlan
from faults.catalogue import CATALOGUE
from policies.baselines import make_arm
from simulator.drive import ControllerDriver
from simulator.fleet import run_episodes
from simulator.scenario import compile_scenario
from simulator.world import CompiledScenario
from tests.synthetic import scenario_document, write_world

HORIZON_S = 40.0
Fault = dict[str, object]
#: One fault of every kind, at a dose that does something.
FAULTS: dict[str, Fault] = {
    kind: {
        "name": kind.replace("_", "-"), "kind": kind, "onset_s": 10.0,
        "target": {} if kind == "load_surge" else {"kernel": "bf16"},
    }
    | ({"condition": "requantise-w4"} if entry.measured else {"dose": entry.dose.default})
    for kind, entry in CATALOGUE.items()
}  # fmt: skip
FAULTS["correlated"]["target"] = {"kernels": ["bf16", "int8"]}
CHANGES: list[dict[str, object]] = [
    {"kind": "rolling_restart", "kernel": "int8", "at_s": 5.0, "step_s": 7.0, "cold_start_s": 3.0},
    {"kind": "scale_up", "kernel": "bf16", "at_s": 8.0, "replicas": 2, "cold_start_s": 4.0},
    {"kind": "scale_down", "kernel": "bf16", "at_s": 20.0},
    {"kind": "cache_flush", "kernel": "bf16", "at_s": 15.5},
    {"kind": "surge", "at_s": 12.0, "duration_s": 10.0, "factor": 2.0},
    {"kind": "lost_scrapes", "at_s": 11.0, "duration_s": 15.0, "ratio": 0.8},
]


@dataclass
class FixedDriver:
    """Keeps one table and rotation for ever and remembers the telemetry; for laws of the world alone."""

    scenario: CompiledScenario
    weights: list[float] | None = None
    out_from: dict[int, int] = field(default_factory=dict)
    seen: list[FleetTelemetry] = field(default_factory=list)
    policy_id: str = "test"
    capacity_move: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(1, dtype=np.bool_))

    def begin(self, batch: int) -> RoutingPlan:
        self.seen.clear()
        self.capacity_move = np.zeros(batch, dtype=np.bool_)
        kernels, slices, replicas = self.scenario.layout.shape
        table = np.zeros((batch, slices, kernels + 1))
        if self.weights is None:
            table[:, np.arange(slices), self.scenario.home] = 1.0
        else:
            table[:] = self.weights
        self._plan = RoutingPlan(
            table=table,
            in_rotation=np.ones((batch, replicas), dtype=np.bool_),
            version=np.zeros(batch, dtype=np.int64),
        )
        return self._plan

    def step(self, telemetry: FleetTelemetry) -> RoutingPlan:
        self.seen.append(telemetry)
        in_rotation = self._plan.in_rotation.copy()
        for replica, tick in self.out_from.items():
            in_rotation[:, replica] &= len(self.seen) < tick
        return RoutingPlan(table=self._plan.table, in_rotation=in_rotation, version=self._plan.version)


Build = Callable[..., CompiledScenario]


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Compiles scenarios over one synthetic world."""
    folder = tmp_path_factory.mktemp("world")
    path = write_world(folder)

    def compiled(**changes: object) -> CompiledScenario:
        document = scenario_document(**({"horizon_s": HORIZON_S} | changes))  # type: ignore[arg-type]
        text = yaml.safe_dump(document)
        scenario = load_text(text, str(path))
        assert isinstance(scenario, Scenario)
        return compile_scenario(scenario, str(path))

    return compiled


def same(one: EpisodeRecord, other: EpisodeRecord, skip: tuple[str, ...] = ()) -> None:
    """Assert that two records agree byte for byte."""
    for entry in fields(EpisodeRecord):
        if entry.name in skip:
            continue
        left, right = getattr(one, entry.name), getattr(other, entry.name)
        if isinstance(left, np.ndarray):
            assert left.tobytes() == right.tobytes(), entry.name
        else:
            assert left == right, entry.name


def drive(scenario: CompiledScenario, policy: str = "hysteresis") -> ControllerDriver:
    """The project's controller over ``scenario``."""
    return ControllerDriver(make_arm(policy, scenario.setup))


def once(scenario: CompiledScenario, seed: int) -> EpisodeRecord:
    """One episode under the default policy."""
    return run_episodes(scenario, drive(scenario), [seed])[0]


@pytest.mark.parametrize("kind", sorted(set(CATALOGUE) - {"kernel_regression"}))
def test_dose_zero_changes_nothing(build: Build, kind: str) -> None:
    """A fault at its neutral dose leaves every byte of the episode as it was without it."""
    neutral = FAULTS[kind] | {"dose": CATALOGUE[kind].dose.neutral}
    scenario, plain = build(faults=[neutral]), build()
    same(once(scenario, 3), once(plain, 3))


@pytest.mark.parametrize("kind", sorted(set(CATALOGUE) - {"load_surge"}))
def test_a_fault_moves_no_arrival(build: Build, kind: str) -> None:
    """With any fault the same requests arrive at the same instants with the same lengths."""
    scenario, plain = build(faults=[FAULTS[kind]]), build()
    (faulty,) = run_episodes(scenario, FixedDriver(scenario), [5])
    (clean,) = run_episodes(plain, FixedDriver(plain), [5])
    assert faulty.offered.tobytes() == clean.offered.tobytes()
    assert faulty.offered_tokens.tobytes() == clean.offered_tokens.tobytes()


@pytest.mark.parametrize("policy", ["hysteresis", "breaker", "threshold"])
def test_results_do_not_depend_on_the_batch(build: Build, policy: str) -> None:
    """Fleets advanced together end as each would alone, with faults and every kind of change going on."""
    faults = [FAULTS["requantise"], FAULTS["crash"] | {"duration_s": 6.3, "target": {"kernel": "fp32"}}]
    scenario = build(faults=faults, changes=CHANGES)
    together = run_episodes(scenario, drive(scenario, policy), [7, 8, 9])
    alone = [run_episodes(scenario, drive(scenario, policy), [seed])[0] for seed in (7, 8, 9)]
    split = run_episodes(scenario, drive(scenario, policy), [7, 8, 9], batch=2)
    for one, other, third in zip(together, alone, split, strict=True):
        same(one, other)
        same(one, third)


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    kinds=st.lists(st.sampled_from(sorted(FAULTS)), max_size=3, unique=True),
    chosen=st.lists(st.sampled_from(CHANGES), max_size=3, unique_by=lambda change: str(change["kind"])),
    seed=st.integers(0, 2**31),
)
def test_every_request_ends_once(
    build: Build, kinds: list[str], chosen: list[dict[str, object]], seed: int
) -> None:
    """Offered requests end at most once, whatever goes on, and a second run gives the same bytes."""
    scenario = build(faults=[FAULTS[kind] for kind in kinds], changes=chosen, horizon_s=24.0)
    (record,) = run_episodes(scenario, drive(scenario), [seed])
    ended = record.answered + record.failed + record.shed
    assert (np.cumsum(record.offered, axis=0) >= np.cumsum(ended, axis=0)).all()
    assert record.answered.sum() == record.answered_by.sum()
    assert (record.exposed_in_flight <= record.exposed).all()
    same(record, once(scenario, seed))


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
    """What the table gives to nobody is shed, and nothing else is."""
    scenario = build(horizon_s=60.0)
    (record,) = run_episodes(scenario, FixedDriver(scenario, weights=[0.0, 0.5, 0.0, 0.5]), [1])
    offered, shed = record.offered.sum(), record.shed.sum()
    assert abs(shed / offered - 0.5) < 4.0 * np.sqrt(0.25 / offered)
    (record,) = run_episodes(scenario, FixedDriver(scenario), [1])
    assert record.shed.sum() == 0


def test_a_replica_out_of_rotation_gets_no_new_request(build: Build) -> None:
    """After quarantine a replica answers only what it had, and goes on returning probes."""
    scenario = build(horizon_s=60.0)
    driver = FixedDriver(scenario, out_from={4: 20})
    (record,) = run_episodes(scenario, driver, [2])
    assert record.answered_by[:20, 4].sum() > 0
    assert record.answered_by[40:, 4].sum() == 0
    assert not record.in_rotation[20:, 4].any()
    assert record.quarantined[20:, 4].all()
    late = driver.seen[-1].probes
    assert late.valid[0, late.replica[0] == 4].all()


def test_a_numeric_fault_shows_in_probe_values_alone(build: Build) -> None:
    """Telemetry of a silently wrong fleet equals that of a healthy one but for the probed values."""
    scenario, plain = build(faults=[FAULTS["requantise"]]), build()
    wrong, right = FixedDriver(scenario), FixedDriver(plain)
    run_episodes(scenario, wrong, [4])
    run_episodes(plain, right, [4])
    for one, other in zip(wrong.seen, right.seen, strict=True):
        for entry in fields(FleetTelemetry):
            if entry.name != "probes":
                assert getattr(one, entry.name).tobytes() == getattr(other, entry.name).tobytes(), entry.name
        for name in ("replica", "slice", "prompt", "sampled_at_ms", "valid"):
            assert getattr(one.probes, name).tobytes() == getattr(other.probes, name).tobytes()
    assert not np.array_equal(wrong.seen[-1].probes.values, right.seen[-1].probes.values)


def test_a_controller_moves_away_from_a_wrong_kernel(build: Build) -> None:
    """End to end: a requantised kernel is left, and fewer answers are exposed than under a fixed table."""
    scenario = build(faults=[FAULTS["requantise"]], horizon_s=200.0)
    (moved,) = run_episodes(scenario, drive(scenario, "threshold"), [0])
    (fixed,) = run_episodes(scenario, drive(scenario, "fixed-bare"), [0])
    assert moved.table[-1, 0, 1] == 0.0
    assert moved.exposed.sum() < 0.6 * fixed.exposed.sum()
    assert moved.excess_tv_tokens.sum() < fixed.excess_tv_tokens.sum()


def test_a_crashed_replica_comes_back_after_its_cold_start(build: Build) -> None:
    """Discovery says ready, dead for the fault's duration, starting for the cold start, then ready."""
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
    """Health checks of a hung engine say ready, its metrics still answer, but it computes nothing."""
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


def test_lost_telemetry_is_old_not_bad(build: Build) -> None:
    """A replica that loses its telemetry turns stale; what is known of it stays, its answers go on."""
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
    """Histograms arrive in the order of scrapes, a lost one's counts with the next, none twice."""
    scenario = build(changes=[CHANGES[5]], horizon_s=60.0)
    driver = FixedDriver(scenario)
    (record,) = run_episodes(scenario, driver, [6])
    shown = sum(seen.latency_le[0, :, :, 0, -1] for seen in driver.seen)
    answered = np.cumsum(record.answered_by, axis=0)
    assert (shown <= answered[-1]).all()
    assert (shown >= answered[40]).all()
    known = driver.seen[20:]
    ages_ms = [seen.now_ms[0] - seen.scraped_at_ms[0] for seen in known]
    assert np.min(ages_ms) >= 500.0
    assert (np.diff([seen.scraped_at_ms[0] for seen in known], axis=0) >= 0.0).all()


def test_wrong_fingerprint_and_missing_fields_show_as_such(build: Build) -> None:
    """Observability faults reach telemetry through their own fields and the truth as silent violations."""
    faults = [FAULTS["wrong_fingerprint"], FAULTS["trace_fields_missing"]]
    scenario = build(faults=faults)
    driver = FixedDriver(scenario)
    (record,) = run_episodes(scenario, driver, [1])
    last = driver.seen[-1]
    assert (last.fingerprint_match[0, 3:6] == 0.0).all()
    assert (last.trace_fields_ratio[0, 3:6] == 0.5).all()
    assert record.violating[-1, 3:6].all()
    assert not record.violating[:10].any()


def test_scaling_changes_who_serves(build: Build) -> None:
    """Replicas that come serve after their cold start, those that go drain first, and nothing fails."""
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


@pytest.mark.parametrize("tick_s", [0.1, 0.7, 2.0])
def test_any_tick_length_will_do(build: Build, tick_s: float) -> None:
    """Ticks that binary numbers cannot hold exactly keep the independence of batch and the event order."""
    crash = FAULTS["crash"] | {"onset_s": 3.3, "duration_s": 2.2, "target": {"kernel": "fp32"}}
    changes = [CHANGES[0] | {"at_s": 2.2, "step_s": 1.1, "cold_start_s": 0.7}]
    horizon_s = round(30 * tick_s, 9)
    scenario = build(
        faults=[crash] if horizon_s > 3.3 else [], changes=changes, tick_s=tick_s, horizon_s=horizon_s
    )
    together = run_episodes(scenario, drive(scenario), [1, 2])
    for seed, record in zip((1, 2), together, strict=True):
        same(record, once(scenario, seed))


def test_a_surge_only_speeds_up_the_same_requests(build: Build) -> None:
    """Before its onset a surge changes nothing, and during it about factor times as many requests arrive."""
    surge = {"kind": "surge", "at_s": 100.0, "duration_s": 100.0, "factor": 3.0}
    scenario, plain = build(changes=[surge], horizon_s=200.0), build(horizon_s=200.0)
    (surged,) = run_episodes(scenario, FixedDriver(scenario), [1])
    (clean,) = run_episodes(plain, FixedDriver(plain), [1])
    assert surged.offered[:100].tobytes() == clean.offered[:100].tobytes()
    assert surged.offered[100:].sum() == pytest.approx(3.0 * clean.offered[100:].sum(), rel=0.15)
