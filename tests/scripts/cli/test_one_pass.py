"""``selvage contract validate`` reports all problems of a document of any kind in one pass."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from contracts.documents import KernelPool, Metadata, Scenario
from contracts.loading.loader import dump_text, load_as
from scripts.cli.main import app
from tests.support.fleets.synthetic import write_world

SUITE = """apiVersion: selvage.dev/v1alpha1
kind: Suite
metadata: {name: suite}
spec:
  description: tests only
  base: scenario.yaml
  scenarios:
"""
DRILL = """apiVersion: selvage.dev/v1alpha1
kind: FaultDrill
metadata: {name: "my drill"}
spec:
  description: tests only
  pool: own
  pool_uri: pool.yaml
  contract: gone.yaml
  faults:
    - {name: a, kind: crash, onset_s: 5.0, target: {kernel: nobody}}
    - {name: b, kind: crash, onset_s: soon}
  steady_state:
    - {name: h, metric: failure_rate, threshold: 0.05, slice: nowhere}
  time_to_live_s: 60.0
"""
RECIPE = """apiVersion: selvage.dev/v1alpha1
kind: TrainingRecipe
metadata: {name: own}
spec:
  description: tests only
  episodes: {scenarios: [scenario.yaml, gone.yaml], fleets: 0, detector: nobody}
  behaviour_cloning: {teacher: "hysteresis:dwel_s=3"}
  baselines: [sequential, nobody]
"""
ROUTE = """apiVersion: selvage.dev/v1alpha1
kind: RoutePolicy
metadata: {name: own}
spec:
  description: tests only
  policy: nobody
  pool: own
  contract: "own contract"
  meta_contract: gone.yaml
  route: {name: chat}
  freeze: {until: "2030-13-01T00:00:00Z", reason: tests only}
"""
AT_ONCE = {
    DRILL: {
        "metadata.name": "'my drill'",
        "spec.contract": "gone.yaml",
        "spec.faults[0].target.kernel": "bf16",
        "spec.faults[1].onset_s": "'soon'",
        "spec.steady_state[0].slice": "'nowhere'",
    },
    RECIPE: {
        "spec.episodes.scenarios[1]": "gone.yaml",
        "spec.episodes.fleets": "0",
        "spec.episodes.detector": "'nobody'",
        "spec.behaviour_cloning.teacher": "dwel_s",
        "spec.baselines[1]": "'nobody'",
    },
    ROUTE: {
        "spec.policy": "'nobody'",
        "spec.contract": "'own contract'",
        "spec.meta_contract": "gone.yaml",
        "spec.freeze.until": "2030-13",
    },
}


def run(*arguments: str | Path) -> Result:
    """``selvage contract ARGUMENTS``."""
    return CliRunner().invoke(app, ["contract", *map(str, arguments)])


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """A folder with synthetic profiles, contract and scenario."""
    write_world(tmp_path)
    return tmp_path


def own_pool(world: Path) -> None:
    """The scenario's pool as a separate file."""
    scenario = load_as(Scenario, world / "scenario.yaml")
    assert scenario.spec.pool is not None
    name = Metadata(name="own")
    (world / "pool.yaml").write_text(dump_text(KernelPool(metadata=name, spec=scenario.spec.pool)))
    spec = scenario.spec.model_copy(update={"pool": None, "pool_uri": "pool.yaml"})
    (world / "apart.yaml").write_text(dump_text(scenario.model_copy(update={"spec": spec})))


@pytest.mark.parametrize("text", AT_ONCE, ids=["drill", "recipe", "route"])
def test_fields_rules_and_references_are_told_in_one_pass(text: str, world: Path) -> None:
    """For every kind, problems within fields, between fields, and of references are reported together."""
    own_pool(world)
    (world / "bad.yaml").write_text(text, encoding="utf-8")
    result = run("validate", "--json", world / "bad.yaml")
    (found,) = json.loads(result.stdout)
    told = {one["path"]: f"{one['expected']} {one['actual']}" for one in found["problems"]}
    assert result.exit_code == 2
    assert set(told) == set(AT_ONCE[text])
    assert [path for path, said in AT_ONCE[text].items() if said not in told[path]] == []


def test_a_pool_of_its_own_file_is_asked_for_kernels_and_slices(world: Path) -> None:
    """A scenario is refused for a kernel or slice missing from its pool, wherever the pool is."""
    own_pool(world)
    apart = world / "apart.yaml"
    assert run("validate", apart).exit_code == 0
    fault = "faults:\n  - {name: f, kind: crash, target: {kernel: nobody}, onset_s: 1.0}"
    apart.write_text(apart.read_text().replace("faults: []", fault))
    result = run("validate", apart)
    assert result.exit_code == 2
    assert "spec.faults[0].target.kernel: expected one of the pool's kernels" in result.stderr


def test_scenarios_of_a_suite_are_held_against_their_own_base(world: Path) -> None:
    """A fault's kernel must be in the pool of its scenario's base, which may be another."""
    own_pool(world)
    other = world / "other.yaml"
    text = (world / "scenario.yaml").read_text()
    other.write_text(text.replace("name: bf16", "name: half").replace("kernel: bf16", "kernel: half"))
    crash = "      faults: [{name: f, kind: crash, target: {kernel: half}, onset_s: 1.0}]\n"
    suite = world / "suite.yaml"
    suite.write_text(SUITE + "    - name: a\n      base: other.yaml\n" + crash)
    assert run("validate", suite).exit_code == 0
    suite.write_text(SUITE + "    - name: a\n" + crash)
    assert "spec.scenarios[0].faults[0].target.kernel" in run("validate", suite).stderr
