"""Laws of scenario compilation, of measured tables, of probes, and of the ground truth."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import DocumentError
from contracts.samples import load_samples, save_samples
from faults.effects import ReplicaEffect
from simulator.capacity import Demand, capacity_rps, steady_batch, step_s
from simulator.probes import Probes, probe_share
from simulator.scenario import load_scenario
from simulator.tables import clause_broken
from simulator.truth import expected_latencies_ms, numeric_or_observability, runtime
from simulator.world import CompiledScenario
from tests.synthetic import (
    CONDITIONS,
    KERNELS,
    SLICES,
    contract_document,
    pool_spec,
    scenario_document,
    write_samples,
    write_world,
    write_yaml,
)

FAULT: dict[str, object] = {
    "name": "bad", "kind": "requantise", "condition": "requantise-w4", "onset_s": 10.0,
    "target": {"kernel": "bf16"},
}  # fmt: skip


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> CompiledScenario:
    """The synthetic scenario."""
    return load_scenario(write_world(tmp_path_factory.mktemp("world")))


def refused(folder: Path, **changes: object) -> str:
    """Message with which the changed scenario is refused."""
    path = write_world(folder, scenario_document(**changes))  # type: ignore[arg-type]
    with pytest.raises(DocumentError) as caught:
        load_scenario(path)
    return str(caught.value)


def test_prompts_play_one_part_each(world: CompiledScenario) -> None:
    """Traffic, probe and certify prompts share no id, and each slice has its own of each."""
    prompts = world.prompts
    assert not set(prompts.traffic.tolist()) & set(prompts.probe.tolist())
    for index in range(len(SLICES)):
        assert prompts.traffic_of(index).size
        assert prompts.probe_of(index).size


def test_conditions_are_in_increasing_drift(world: CompiledScenario) -> None:
    """A higher condition index is a worse measured state, the healthy one being 0."""
    for table in world.tables:
        assert table.conditions[0] == "healthy"
        assert (np.diff(table.drift[1:]) >= 0.0).all()
        assert sorted(table.conditions) == sorted(CONDITIONS)


def test_truth_is_judged_on_traffic_prompts_only(tmp_path: Path, world: CompiledScenario) -> None:
    """Spoiling every probe and certify value changes no truth table, spoiling traffic values does."""
    for spoiled, changes in (("probe", False), ("certify", False), ("traffic", True)):
        folder = tmp_path / spoiled
        folder.mkdir()
        path = write_world(folder)
        samples = load_samples(folder / "bf16.npz")
        values = samples.values.copy()
        values[:, samples.rows(spoiled)] *= 1000.0
        sha = save_samples(folder / "bf16.npz", replace(samples, values=values))
        profile = folder / "bf16.yaml"
        text = profile.read_text().splitlines()
        at = text.index("  samples:")
        text[at + 2] = f"    sha256: {sha}"
        profile.write_text("\n".join(text))
        other = load_scenario(path)
        assert (not np.array_equal(other.violating, world.violating)) == changes


def test_ladder_climbs_measured_doses_of_one_fault(tmp_path: Path) -> None:
    """A ramp climbs the measured doses of the named fault up to the named one, in increasing drift."""
    ramp = FAULT | {"shape": "ramp", "ramp": {"rise_s": 9.0}}
    scenario = load_scenario(write_world(tmp_path, scenario_document(faults=[ramp])))
    names = [scenario.tables[1].conditions[i] for i in scenario.plans[0].ladders[0]]
    assert names == ["requantise-w8", "requantise-w6", "requantise-w4"]
    assert [change.at_s for change in scenario.fault_changes] == [10.0, 13.0, 16.0]


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ({"kernel": "bf16"}, {"bf16-0", "bf16-1", "bf16-2"}),
        ({"kernel": "bf16", "replica": 1}, {"bf16-1"}),
        ({"zone": "z1"}, {"fp32-1", "bf16-1", "int8-1"}),
        ({"kernels": ["bf16", "int8"], "zone": "z1"}, {"bf16-1", "int8-1"}),
        ({}, {f"{kernel.name}-{i}" for kernel in KERNELS for i in range(3)}),
    ],
)
def test_targets_select_replicas(tmp_path: Path, target: dict[str, object], expected: set[str]) -> None:
    """A kernel, one replica, a zone, several kernels or nothing at all select what they say."""
    faults = [{"name": "s", "kind": "slow", "dose": 2.0, "onset_s": 1.0, "target": target}]
    scenario = load_scenario(write_world(tmp_path, scenario_document(faults=faults)))
    assert {scenario.layout.replicas[i] for i in scenario.plans[0].replicas} == expected


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"faults": [FAULT | {"condition": "requantise-w9"}]}, "requantise-w4"),
        ({"faults": [FAULT | {"target": {"kernel": "nope"}}]}, "nope"),
        ({"faults": [FAULT | {"target": {"kernel": "bf16", "replica": 7}}]}, "replica"),
        ({"faults": [{"name": "h", "kind": "http_errors", "dose": 1.5, "onset_s": 1.0}]}, "dose"),
        ({"changes": [{"kind": "scale_down", "kernel": "bf16", "replicas": 9, "at_s": 1.0}]}, "replicas"),
        ({"horizon_s": 60.5}, "tick"),
        ({"pool": pool_spec() | {"home": [{"slice": "code", "kernel": "bf16"}]}}, "home"),
    ],
)
def test_bad_scenarios_are_refused(tmp_path: Path, changes: dict[str, object], part: str) -> None:
    """Each mistake across documents is refused with a message that names it, its file and its line."""
    message = refused(tmp_path, **changes)
    assert part in message
    assert re.search(r"scenario\.yaml:[1-9]\d* spec\.", message)


def test_missing_and_swapped_files_are_refused(tmp_path: Path) -> None:
    """A missing profile, a missing samples file and other samples than the pinned ones are refused."""
    path = write_world(tmp_path)
    write_samples(tmp_path / "bf16.npz", KERNELS[1], seed=99)
    with pytest.raises(DocumentError, match="sha256"):
        load_scenario(path)
    (tmp_path / "bf16.npz").unlink()
    with pytest.raises(DocumentError, match="bf16"):
        load_scenario(path)
    (tmp_path / "bf16.yaml").unlink()
    with pytest.raises(DocumentError, match="bf16"):
        load_scenario(path)


def test_probe_metrics_are_those_of_the_contract(world: CompiledScenario) -> None:
    """Probes carry what the contract judges and nothing else."""
    assert world.layout.probe_metrics == ("kl_mean@full_vocab", "tv_mean@full_vocab", "top1_flip@full_vocab")
    assert len(contract_document()["spec"]["clauses"]) == 6  # type: ignore[index]


@given(seed=st.integers(0, 2**31))
def test_probe_budget_is_kept(world: CompiledScenario, seed: int) -> None:
    """Every replica gets its stated probes per second, all within their tick, round robin over slices."""
    probes, replicas = Probes(world, [seed]), len(world.layout.replicas)
    computed, mine = 0, []
    for tick in range(world.ticks):
        probes.open(tick, np.zeros((1, replicas), dtype=np.int64), np.ones((1, replicas), dtype=np.bool_))
        at_s = probes.at_s[probes.due]
        assert ((at_s > tick) & (at_s <= tick + 1)).all()
        computed += at_s.size
        mine += world.prompts.probe_slice[probes.unit[0, 4:5][probes.due[0, 4:5]]].tolist()
    assert abs(computed - replicas * world.horizon_s) <= replicas
    assert (np.diff(mine) % len(SLICES) == 1).all()


def test_probes_replay_measured_values(world: CompiledScenario) -> None:
    """A probe's values are those measured of its kernel, condition and prompt, to the last bit."""
    probes = Probes(world, [5])
    shape = (1, len(world.layout.replicas))
    condition = np.zeros(shape, dtype=np.int64)
    condition[0, 3] = 7
    probes.open(0, condition, np.ones(shape, dtype=np.bool_))
    seen = probes.close(np.ones(shape, dtype=np.bool_))
    for slot in np.flatnonzero(seen.valid[0]):
        replica = int(seen.replica[0, slot])
        table = world.tables[int(world.layout.replica_kernel[replica])]
        unit = int(np.flatnonzero(world.prompts.probe_ids == seen.prompt[0, slot])[0])
        measured = table.probe[condition[0, replica], unit]
        assert any(np.array_equal(seen.values[0, slot], repeat) for repeat in measured)


def test_a_probe_sees_the_condition_at_its_instant(world: CompiledScenario) -> None:
    """A change within a tick shows in the probes computed after it, not in those before."""
    shape = (1, len(world.layout.replicas))
    nothing, everyone = np.zeros(shape, dtype=np.int64), np.ones(shape, dtype=np.bool_)
    for at_s, hit in ((0.0, True), (1.0, False)):
        probes = Probes(world, [5])
        probes.open(0, nothing, everyone)
        probes.change(0, 3, at_s, 7, True)
        changed, clean = probes.close(everyone), Probes(world, [5])
        clean.open(0, nothing, everyone)
        differs = (changed.values != clean.close(everyone).values).any(axis=2)[0]
        assert differs.any() == (hit and bool(probes.due[0, 3]))


def test_repeat_noise_is_off_unless_stated(tmp_path: Path, world: CompiledScenario) -> None:
    """Without repeat noise a prompt repeats bit for bit; with it values scatter by the stated ratio."""
    shape = (1, len(world.layout.replicas))
    noisy = replace(world, telemetry=world.telemetry.model_copy(update={"repeat_noise": 0.1}))
    runs = []
    for scenario in (world, noisy):
        probes = Probes(scenario, [5])
        values = []
        for tick in range(40):
            probes.open(tick, np.zeros(shape, dtype=np.int64), np.ones(shape, dtype=np.bool_))
            values.append(probes.close(np.ones(shape, dtype=np.bool_)).values)
        runs.append(np.stack(values))
    ratio = np.log(runs[1] / runs[0])
    assert 0.08 < ratio.std() < 0.12


@given(
    st.tuples(*[st.floats(1e-6, 1e-2)] * 4),
    st.floats(10.0, 2000.0),
    st.floats(2.0, 500.0),
    st.floats(1.0, 64.0),
)
def test_steady_batch_inverts_throughput(
    model: tuple[float, ...], prompt: float, output: float, batch: float
) -> None:
    """At the rate that a batch carries, the steady state is that batch."""
    coefficients = np.array(model)
    demand = Demand(prompt_tokens=prompt, output_tokens=output)
    rate = batch / (output * step_s(coefficients, demand, batch))
    assert steady_batch(coefficients, demand, 1e9, rate) == pytest.approx(batch, rel=1e-6)


@given(st.tuples(*[st.floats(1e-6, 1e-2)] * 4), st.floats(1.0, 4.0))
def test_capacity_falls_with_slower_steps(model: tuple[float, ...], factor: float) -> None:
    """A replica whose steps take longer never carries more."""
    demand = Demand(prompt_tokens=256.0, output_tokens=64.0)
    coefficients = np.array(model)
    fast = capacity_rps(coefficients, demand, 64.0, 0.1)
    assert capacity_rps(coefficients * factor, demand, 64.0, 0.1) <= fast * (1 + 1e-9)
    shares = [probe_share(model[None], 1.0, 64.0)[0] for model in (coefficients, coefficients * factor)]
    assert shares[0] <= shares[1]


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
    """Dead, hung, failing or hopelessly slow replicas break runtime promises; silent faults do not."""
    assert runtime(world, 1, effect).all() == broken
    assert runtime(world, 1, effect).any() == broken


def test_expected_latency_grows_with_each_fault(world: CompiledScenario) -> None:
    """Slower steps and added delay never shorten the expected latency."""
    healthy = expected_latencies_ms(world, 1, ReplicaEffect())
    for effect in (ReplicaEffect(step_time_factor=2.0), ReplicaEffect(http_latency_ms=5.0)):
        assert (expected_latencies_ms(world, 1, effect) >= healthy).all()


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=30), st.integers(0, 2))
def test_clauses_ignore_what_was_not_measured(
    world: CompiledScenario, values: list[float], clause: int
) -> None:
    """Adding unmeasured units changes no verdict, and unmeasured units alone break nothing."""
    known = np.array([values])
    padded = np.concatenate([known, np.full((1, 3), np.nan)], axis=1)
    verdict = clause_broken(known, world.contract, clause)
    assert np.array_equal(clause_broken(padded, world.contract, clause), verdict)
    assert not clause_broken(np.full((1, 4), np.nan), world.contract, clause).any()


def test_a_pool_written_apart_compiles_alike(tmp_path: Path, world: CompiledScenario) -> None:
    """A pool in its own document gives the same world as the same pool inline."""
    document = scenario_document()
    spec = document["spec"]
    assert isinstance(spec, dict)
    pool = spec.pop("pool")
    write_yaml(tmp_path / "pool.yaml", {**document, "kind": "KernelPool", "spec": pool})
    path = write_world(tmp_path, {**document, "spec": spec | {"pool_uri": "pool.yaml"}})
    other = load_scenario(path)
    assert other.layout.replicas == world.layout.replicas
    assert other.capacity_rps.tobytes() == world.capacity_rps.tobytes()
