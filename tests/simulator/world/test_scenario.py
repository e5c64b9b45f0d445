"""Compilation of scenarios, and measured tables."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from contracts.assess.samples import load_samples, save_samples
from contracts.errors import DocumentError
from simulator.world.compiled_scenario import CompiledScenario
from simulator.world.scenario import load_scenario
from tests.support.documents.documents_written import write_yaml
from tests.support.fleets.synthetic import pool_spec, scenario_document, write_world
from tests.support.fleets.synthetic_kernels import CONDITIONS, KERNELS, SLICES, write_samples

FAULT: dict[str, object] = {
    "name": "bad",
    "kind": "requantise",
    "condition": "requantise-w4",
    "onset_s": 10.0,
    "target": {"kernel": "bf16"},
}


def refused(folder: Path, **changes: object) -> str:
    """Message with which the changed scenario is refused."""
    path = write_world(folder, scenario_document(**changes))  # type: ignore[arg-type]
    with pytest.raises(DocumentError) as caught:
        load_scenario(path)
    return str(caught.value)


def test_prompts_have_one_use_each(world: CompiledScenario) -> None:
    """Traffic, probe and certify prompts share no id, and each slice has its own of each."""
    prompts = world.prompts
    assert not set(prompts.traffic.tolist()) & set(prompts.probe.tolist())
    for index in range(len(SLICES)):
        assert prompts.traffic_of(index).size
        assert prompts.probe_of(index).size


def test_conditions_are_in_increasing_drift(world: CompiledScenario) -> None:
    """A higher condition index is a worse measured state; 0 is healthy."""
    for table in world.tables:
        assert table.conditions[0] == "healthy"
        assert (np.diff(table.drift[1:]) >= 0.0).all()
        assert sorted(table.conditions) == sorted(CONDITIONS)


def test_truth_is_judged_on_traffic_prompts_only(tmp_path: Path, world: CompiledScenario) -> None:
    """Changing every probe or certify value changes no truth table, changing traffic values does."""
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
    """A ramp rises through the measured doses of its fault up to the named one, in increasing drift."""
    ramp = FAULT | {"shape": "ramp", "ramp": {"rise_s": 9.0}}
    scenario = load_scenario(write_world(tmp_path, scenario_document(faults=[ramp])))
    names = [scenario.tables[1].conditions[i] for i in scenario.plans[0].ladders[0]]
    assert names == ["requantise-w8", "requantise-w6", "requantise-w4"]
    assert [change.at_s for change in scenario.fault_changes] == [10.0, 13.0, 16.0]


def test_a_slice_without_a_home_is_not_served_unless_it_has_traffic(tmp_path: Path) -> None:
    """A pool may serve part of the contract's slices; its traffic may name no others."""
    pool = pool_spec() | {"home": [{"slice": "code", "kernel": "bf16"}]}
    document = scenario_document(pool=pool)
    spec = cast(dict[str, dict[str, object]], document["spec"])
    spec["workload"]["slice_mix"] = [{"slice": "code", "share": 1.0}]
    scenario = load_scenario(write_world(tmp_path, document))
    assert scenario.layout.slices == scenario.contract.slices == ("code",)
    assert "add it to the slices with a home" in refused(tmp_path, pool=pool)


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
    """A kernel, one replica, a zone, several kernels or no target select the stated replicas."""
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


def test_declared_means_inform_only_the_controller(tmp_path: Path, world: CompiledScenario) -> None:
    """Twice the tokens declared: lower derived capacities, the same engine, demand and requests."""
    document = scenario_document()
    spec = document["spec"]
    assert isinstance(spec, dict)
    told = spec["workload"] | {"declared": {"prompt_tokens": 512.0, "output_tokens": 128.0}}
    other = load_scenario(write_world(tmp_path, {**document, "spec": spec | {"workload": told}}))
    assert (other.capacity_rps < world.capacity_rps).all()
    assert other.setup.capacity_rps.tobytes() == other.capacity_rps.tobytes()
    assert other.demand == world.demand
    assert other.engine.step_model.tobytes() == world.engine.step_model.tobytes()
    assert other.workload.prompt_tokens == world.workload.prompt_tokens


def test_drift_is_in_the_workload_and_in_the_true_demand(tmp_path: Path, world: CompiledScenario) -> None:
    """Prompts that triple up to the horizon are twice as long on average; the declared values stay."""
    document = scenario_document()
    spec = document["spec"]
    assert isinstance(spec, dict)
    drifting = spec["workload"] | {"drift": {"prompt_factor": 3.0}}
    other = load_scenario(write_world(tmp_path, {**document, "spec": spec | {"workload": drifting}}))
    assert other.workload.drift is not None
    assert other.workload.drift.over_s == other.horizon_s
    assert other.demand.prompt_tokens == 2.0 * world.demand.prompt_tokens
    assert other.demand.output_tokens == world.demand.output_tokens
    assert other.capacity_rps.tobytes() == world.capacity_rps.tobytes()


def test_a_pool_in_its_own_document_compiles_alike(tmp_path: Path, world: CompiledScenario) -> None:
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
