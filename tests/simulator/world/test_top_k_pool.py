"""A pool of kernels measured only on their most probable tokens, from contract to episode."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from contracts.documents import KernelContract, Scenario
from contracts.errors import DocumentError
from contracts.loading.loader import load_as
from contracts.loading.notes import notes
from contracts.loading.profiles import REFUSED_STEP_TIMES
from scripts.cli.main import app
from simulator.world.compiled_scenario import CompiledScenario
from simulator.world.scenario import load_scenario
from tests.support.documents.documents_written import write_yaml
from tests.support.fleets.top_k_pools import write_top_k_scenario
from tests.support.paths import ROOT

RUN = CliRunner()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scenario's file."""
    return write_top_k_scenario(tmp_path_factory.mktemp("top-k"))


@pytest.fixture(scope="module")
def world(path: Path) -> CompiledScenario:
    """The compiled scenario."""
    return load_scenario(path)


def test_loss_and_truth_are_those_of_the_measured_estimator(world: CompiledScenario) -> None:
    """Quality and probes come from the top-k columns, and the scenario says so."""
    assert world.measured_by.quality == "tv_mean@top_k"
    assert all(metric.endswith("@top_k") for metric in world.layout.probe_metrics)
    assert world.measured_by.notes[0].startswith("quality loss and drift are lower bounds")
    assert all(np.isfinite(table.quality).all() for table in world.tables)


def test_lower_bounds_report_no_false_violation(path: Path, world: CompiledScenario) -> None:
    """Healthy kernels keep the contract in both, and what the bound shows broken is broken in full."""
    exact = load_scenario(ROOT / "contracts" / "library" / "scenarios" / "silent-requantise.yaml")
    for bound, full in zip(world.tables, exact.tables, strict=True):
        assert (bound.quality[0] <= full.quality[0] + 1e-9).all()
        for name, broken in zip(bound.conditions, bound.violating, strict=True):
            assert not (broken & ~full.violating[full.conditions.index(name)]).any(), name


def test_the_shipped_pool_is_judged_by_its_contract() -> None:
    """Where everything was measured nothing is replaced or noted."""
    exact = load_scenario(ROOT / "contracts" / "library" / "scenarios" / "silent-requantise.yaml")
    assert exact.measured_by.notes == ()
    assert exact.measured_by.quality == "tv_mean@full_vocab"


@pytest.mark.slow
def test_an_episode_is_simulated_and_names_its_estimator(path: Path) -> None:
    """``simulate`` runs on such a pool; its result names the estimator."""
    done = RUN.invoke(app, ["simulate", str(path), "--policy", "hysteresis", "--json"])
    assert done.exit_code == 0, done.output
    summary = json.loads(done.stdout)
    assert summary["quality_estimator"] == "top_k"
    assert any("lower bound" in line for line in summary["measured_by"])


def test_validation_reports_what_is_only_bounded(path: Path) -> None:
    """The scenario's notes name the kernels with bounds only, and the clauses judged by them."""
    said = "\n".join(note.text for note in notes(load_as(Scenario, path), path.read_text(), str(path)))
    assert "kernel bf16 was measured by its most probable tokens" in said
    assert "judged by top_k in place of the estimator they name" in said


def test_a_pool_without_step_times_is_refused_with_the_next_step(tmp_path: Path) -> None:
    """At validation a note, at compilation an error with the next step."""
    path = write_top_k_scenario(tmp_path, step_times=False)
    said = [note.text for note in notes(load_as(Scenario, path), path.read_text(), str(path))]
    assert any("has no step times" in text for text in said)
    with pytest.raises(DocumentError, match="--no-step-times"):
        load_scenario(path)


def test_refused_step_times_are_reported_with_the_remedy(tmp_path: Path) -> None:
    """If step times were measured and refused, the error does not suggest an option that was not given."""
    path = write_top_k_scenario(tmp_path, step_times=False)
    for name in ("bf16", "fp32"):
        place = path.with_name(f"{name}.yaml")
        document = yaml.safe_load(place.read_text())
        document["spec"]["notes"] = [f"{REFUSED_STEP_TIMES}: predicted ones are known to 68 % only."]
        write_yaml(place, document)
    said = [(note.path, note.text) for note in notes(load_as(Scenario, path), path.read_text(), str(path))]
    assert len(said) == len(set(said))
    with pytest.raises(DocumentError, match=r"they were refused.* --step-half-width") as caught:
        load_scenario(path)
    assert "--no-step-times" not in str(caught.value)


def test_a_contract_is_proposed_from_lower_bounds(path: Path, tmp_path: Path) -> None:
    """``contract propose`` writes clauses of the measured estimator, and says that it is a lower bound."""
    out = tmp_path / "proposed.yaml"
    files = [str(path.parent / f"{name}.yaml") for name in ("bf16", "fp32")]
    done = RUN.invoke(app, ["contract", "propose", *files, "--name", "mine", "--out", str(out)])
    assert done.exit_code == 0, done.output
    clauses = [one for one in load_as(KernelContract, out).spec.clauses if one.family == "N"]
    assert {one.estimator for one in clauses} == {"top_k"}
    assert all("lower bound" in one.reason for one in clauses)
