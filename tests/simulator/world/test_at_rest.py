"""Kernels that break the contract without any fault are reported before anything runs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from contracts.documents import Scenario
from contracts.loading.loader import load_as
from contracts.loading.uris import resolve_uri
from scripts.cli.main import app
from simulator.world.at_rest import broken_at_rest
from simulator.world.scenario import load_scenario
from tests.support.documents.own_fleet import KERNELS, write_own_fleet

#: Mean KL of the home kernel without faults, against a hard limit of 2e-3 nats.
SICK = (replace(KERNELS[0], drift_kl=2.5e-3), KERNELS[1])


@pytest.fixture
def sick(tmp_path: Path) -> Path:
    """A scenario whose home kernel breaks its contract when healthy."""
    return write_own_fleet(tmp_path, horizon_s=20.0, kernels=SICK)


def test_clause_and_numbers_are_reported(sick: Path) -> None:
    """Every slice of the unhealthy home, with the measured mean and the limit it breaks."""
    found = broken_at_rest(load_as(Scenario, sick).spec, str(sick))
    kl = {each.slice: each for each in found if each.clause_id == "N-kl"}
    assert set(kl) == {"support", "sql"}
    assert kl["sql"].hard
    assert kl["sql"].value == pytest.approx(2.5e-3, rel=0.2)
    assert (kl["sql"].limit, kl["sql"].unit) == (2e-3, "nats")


def test_it_agrees_with_the_ground_truth(sick: Path) -> None:
    """A slice is named exactly where the compiled scenario's healthy condition violates at its home."""
    world = load_scenario(sick)
    violating = {
        name for place, name in enumerate(world.layout.slices) if world.violating[world.home[place], 0, place]
    }
    assert {each.slice for each in world.at_rest} == violating == {"support", "sql"}


@pytest.mark.parametrize("uri", ["package:contracts/library/suites/e5-base.yaml"])
def test_shipped_fleets_keep_their_contract_at_rest(uri: str) -> None:
    """Nothing is reported of a fleet with healthy homes."""
    file = resolve_uri(uri, "")
    assert broken_at_rest(load_as(Scenario, file).spec, str(file)) == ()


def test_validate_and_simulate_report_it_first(sick: Path) -> None:
    """Both name clause and numbers before anything else, and the summary contains them."""
    validated = CliRunner().invoke(app, ["contract", "validate", str(sick)])
    assert validated.exit_code == 0
    assert validated.stderr.splitlines()[0].startswith(
        "broken at rest: fast, home of support, breaks N-kl (hard)"
    )
    run = CliRunner().invoke(app, ["simulate", str(sick), "--json"])
    assert run.exit_code == 0, run.output
    assert run.stderr.splitlines()[0].startswith("broken at rest: fast, home of support")
    told = json.loads(run.stdout)["broken_at_rest"]
    assert {each["clause_id"] for each in told} >= {"N-kl"}


def test_a_healthy_fleet_gets_no_report(tmp_path: Path) -> None:
    """No line about rest where every home keeps its contract."""
    validated = CliRunner().invoke(app, ["contract", "validate", str(write_own_fleet(tmp_path))])
    assert "broken at rest" not in validated.stderr
