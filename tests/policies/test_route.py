"""A ``RoutePolicy`` document drives: the policy, its shield settings and its meta-contract."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

import policies.route
import scripts.e5.route
from contracts.documents import RoutePolicy
from contracts.errors import DocumentError
from contracts.loading.loader import load_as
from contracts.loading.shipped import SHIPPED_ARTEFACT
from contracts.loading.uris import resolve_uri
from policies.route import CoverageGaps, route_setup
from scripts.cli.main import app
from scripts.e5.configurations import route_configuration
from scripts.e5.route import load_route
from scripts.e5.run.experiment import Options, plan_run
from simulator.drive import ControllerDriver
from simulator.fleet import run_episodes
from simulator.world.scenario import load_scenario
from tests.support.documents.documents_written import envelope, write_yaml
from tests.support.fleets.e5_world import write_suite
from tests.support.fleets.synthetic import scenario_document, write_world

META = "package:contracts/library/meta-contract.yaml"
SHIPPED = "package:contracts/library/route-policy.yaml"


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    """A short scenario without faults."""
    return write_world(tmp_path, scenario_document(horizon_s=20.0))


@pytest.fixture
def meta(tmp_path: Path) -> Path:
    """The shipped meta-contract with known-good as the baseline, which needs no certificate."""
    document = yaml.safe_load(resolve_uri(META, "").read_text())
    document["spec"]["baseline"] = "fixed_known_good"
    del document["spec"]["certification"]
    return write_yaml(tmp_path / "meta.yaml", document)


def write(folder: Path, **changes: Any) -> Path:
    """A document in ``folder`` under which uniform proposals drive."""
    spec = {
        "description": "tests only",
        "policy": "shield-alone",
        "mode": "enforce",
        "pool": "any",
        "contract": "synthetic-contract",
        "meta_contract": "meta.yaml",
        "route": {"name": "chat"},
    }
    return write_yaml(folder / "route.yaml", envelope("RoutePolicy", "chat", spec | changes))


def table_of(file: Path, scenario: Path) -> np.ndarray:
    """Table in force [T, S, K + 1] when the document drives the scenario."""
    world = load_scenario(scenario)
    route = load_route(str(file), str(scenario), world)
    return np.asarray(run_episodes(world, ControllerDriver(route.setup), (1,))[0].table)


@pytest.mark.usefixtures("meta")
@pytest.mark.parametrize("most", [0.2, 0.05])
def test_the_shield_uses_the_documents_settings(scenario: Path, most: float) -> None:
    """No row moves by more in a tick than the document allows, and some row by exactly that."""
    file = write(scenario.parent, shield={"max_weight_move_per_tick": most})
    moves = 0.5 * np.abs(np.diff(table_of(file, scenario), axis=0)).sum(axis=2)
    assert moves.max() == pytest.approx(most)


@pytest.mark.usefixtures("meta")
@pytest.mark.parametrize("asked", [{}, {"hang_timeouts": 0}, {"own_clocks": "usual"}])
def test_hangs_and_clocks_are_set_by_the_document(scenario: Path, asked: dict[str, Any]) -> None:
    """By default three timeouts are a hang (0: no probes), and steps are compared with certified ones."""
    file = write(scenario.parent, **asked)
    setup = route_setup(load_as(RoutePolicy, file), str(file), load_scenario(scenario).setup)
    assert all(getattr(setup, name) == told for name, told in {"hang_timeouts": 3, **asked}.items())


@pytest.mark.usefixtures("meta")
def test_the_stricter_of_shield_and_meta_contract_holds(scenario: Path) -> None:
    """A document may not loosen what the meta-contract requires."""
    file = write(scenario.parent, shield={"max_weight_move_per_tick": 0.9, "min_dwell_s": 60.0})
    setup = load_route(str(file), str(scenario), load_scenario(scenario)).setup
    limits = setup.options.limits
    assert (limits.max_move_ratio, limits.min_dwell_s) == (0.25, 60.0)
    assert setup.meta is not None


@pytest.mark.usefixtures("meta")
def test_observing_decides_and_moves_nothing(scenario: Path, tmp_path: Path) -> None:
    """In mode observe the first decisions are those of mode enforce, and the answers are those of fixed."""
    found = {}
    for mode in ("observe", "enforce"):
        file, out = write(scenario.parent, mode=mode), tmp_path / mode
        arguments = ["simulate", str(scenario), "--route-policy", str(file), "--json", "--out", str(out)]
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output
        found[mode] = json.loads(result.stdout)
        assert (found[mode]["mode"], found[mode]["policy"]) == (mode, "shield-alone")
    lines = {mode: (tmp_path / mode / "decisions.jsonl").read_text().splitlines() for mode in found}
    assert json.loads(lines["observe"][0])["moves"] == json.loads(lines["enforce"][0])["moves"] != []
    still = CliRunner().invoke(app, ["simulate", str(scenario), "--policy", "fixed", "--json"])
    assert found["observe"]["episodes"] == json.loads(still.stdout)["episodes"]
    assert found["enforce"]["episodes"] != found["observe"]["episodes"]


@pytest.mark.usefixtures("meta")
def test_observing_is_reported_with_what_would_have_happened(tmp_path: Path) -> None:
    """Nothing is executed, so nothing recovers; the report has the decisions' lag and the enforced episodes.

    Both are in the summary, in the log and in the explanation.
    """
    fault: dict[str, Any] = {
        "name": "bad",
        "kind": "requantise",
        "condition": "requantise-w3",
        "onset_s": 40.0,
    }
    fault["target"] = {"kernel": "bf16"}
    scenario = write_world(tmp_path, scenario_document(faults=[fault], horizon_s=160.0))
    found = {}
    for mode in ("observe", "enforce"):
        route = write(tmp_path, policy="threshold", mode=mode)
        words = [
            "simulate",
            str(scenario),
            "--json",
            "--out",
            str(tmp_path / mode),
            "--route-policy",
            str(route),
        ]
        found[mode] = json.loads(CliRunner().invoke(app, words).stdout)
    assert "would_have" not in found["enforce"]
    told = found["observe"]["would_have"]
    assert told["episodes"] == found["enforce"]["episodes"]
    assert found["observe"]["mean"]["unrecovered"] == 1.0
    assert 0.0 < told["decision_lag_s"][0] < 120.0
    log = tmp_path / "observe" / "decisions.jsonl"
    assert {json.loads(line)["executed"] for line in log.read_text().splitlines()} == {False}
    from_log = CliRunner().invoke(app, ["explain", str(log)])
    assert "mode observe (nothing below was executed)" in from_log.stdout
    assert "observed, not executed" in from_log.stdout
    route = write(tmp_path, policy="threshold", mode="observe")
    again = CliRunner().invoke(app, ["explain", str(scenario), "--route-policy", str(route)])
    assert again.exit_code == 0, again.output
    assert "nothing executed, not recovered" in again.stdout
    assert "  its decisions: acted on after" in again.stdout
    assert "  had they been enforced: acted on after" in again.stdout


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown policy": ({"policy": "nope"}, "unknown policy 'nope'"),
    "another contract": ({"contract": "other"}, "expected synthetic-contract"),
    "another tick": ({"tick_s": 2.0}, "spec.tick_s"),
    "no meta-contract": ({"meta_contract": "none.yaml"}, "none.yaml"),
    "learned without artefact": ({"policy": "learned"}, "expected a manifest"),
    "an artefact that nobody reads": ({"artifact": {"uri": "a.yaml", "sha256": "0" * 64}}, "built in"),
}


@pytest.mark.usefixtures("meta")
@pytest.mark.parametrize("how", REFUSED)
def test_documents_that_do_not_fit_are_refused(scenario: Path, how: str) -> None:
    """The error names the field, what was expected, and what was found."""
    change, said = REFUSED[how]
    with pytest.raises(DocumentError) as error:
        load_route(str(write(scenario.parent, **change)), str(scenario), load_scenario(scenario))
    assert said in str(error.value)


@pytest.mark.usefixtures("meta")
def test_an_artefact_must_be_the_pinned_one(scenario: Path) -> None:
    """A manifest with another hash than the document's is refused before it is read."""
    (scenario.parent / "a.yaml").write_text("kind: PolicyArtifact\n")
    pinned = {"uri": "a.yaml", "sha256": hashlib.sha256(b"another").hexdigest()}
    file = write(scenario.parent, policy="learned", artifact=pinned)
    with pytest.raises(DocumentError, match="pins another content"):
        load_route(str(file), str(scenario), load_scenario(scenario))


def test_enforcing_needs_a_certified_baseline(scenario: Path, tmp_path: Path) -> None:
    """Without the baseline's certificate, or with one for other settings, a policy may only observe."""
    (tmp_path / "meta.yaml").write_text(resolve_uri(META, "").read_text())
    world = load_scenario(scenario)
    with pytest.raises(DocumentError, match="its certificate"):
        load_route(str(write(tmp_path)), str(scenario), world)
    assert load_route(str(write(tmp_path, mode="observe")), str(scenario), world).observes
    shipped = resolve_uri("package:contracts/library/policies/hysteresis-certificate.json", "").read_text()
    (tmp_path / "policies").mkdir()
    place = tmp_path / "policies" / "hysteresis-certificate.json"
    place.write_text(json.dumps(json.loads(shipped) | {"subject_sha256": "0" * 64}))
    with pytest.raises(DocumentError, match="as it is set today"):
        load_route(str(write(tmp_path)), str(scenario), world)


def test_the_shipped_document_drives_the_fleet_of_e5() -> None:
    """Pool, contract and meta-contract fit, and the pinned policy is the shipped one.

    It and the baseline have their present certificates.
    """
    uri = "package:contracts/library/suites/e5-base.yaml"
    world = load_scenario(resolve_uri(uri, ""))
    route = load_route(SHIPPED, uri, world)
    assert not route.observes
    assert route.setup.policy.policy_id == f"learned:artefact={resolve_uri(SHIPPED_ARTEFACT, '')}"
    other = load_as(RoutePolicy, resolve_uri(SHIPPED, "")).model_copy(deep=True)
    assert route_setup(other, str(resolve_uri(SHIPPED, "")), world.setup).options == route.setup.options


@pytest.mark.parametrize(
    ("gaps", "driver", "fallback"),
    [
        (CoverageGaps(), "learned", "hysteresis"),
        (CoverageGaps(policy=("a gap",)), "hysteresis", "hysteresis"),
        (CoverageGaps(baseline=("a gap",)), "learned", "fixed"),
        (CoverageGaps(policy=("a gap",), baseline=("a gap",)), "fixed", "fixed"),
    ],
)
def test_no_policy_drives_a_fleet_outside_its_certificate(
    gaps: CoverageGaps, driver: str, fallback: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outside the policy's ranges the baseline drives; outside the baseline's, the home table."""
    uri = "package:contracts/library/suites/e5-base.yaml"
    world = load_scenario(resolve_uri(uri, ""))
    monkeypatch.setattr(policies.route, "coverage_gaps", lambda *_: gaps)
    monkeypatch.setattr(scripts.e5.route, "coverage_gaps", lambda *_: gaps)
    route = load_route(SHIPPED, uri, world)
    assert route.setup.baseline is not None
    assert route.setup.policy.policy_id.partition(":")[0] == driver
    assert route.setup.baseline.policy_id == fallback
    assert len(route.gaps) == len(gaps.policy) + len(gaps.baseline)
    assert all("selvage policy certify" in gap for gap in route.gaps)


def test_policy_and_route_policy_exclude_each_other(scenario: Path) -> None:
    """Naming a policy in both ways is refused."""
    arguments = ["simulate", str(scenario), "--policy", "fixed", "--route-policy", SHIPPED]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code != 0


@pytest.mark.usefixtures("meta")
@pytest.mark.parametrize("mode", ["enforce", "observe"])
def test_a_configuration_of_e5_drives_as_simulate_does(scenario: Path, mode: str) -> None:
    """The document's configuration has the tables of its own route, shield settings and mode included."""
    file = write(scenario.parent, mode=mode, shield={"max_weight_move_per_tick": 0.05})
    world = load_scenario(scenario)
    route = load_route(str(file), str(scenario), world)
    found = run_episodes(world, route_configuration(str(file)).driver(world), (1,))[0]
    expected = run_episodes(world, route.driver(), (1,))[0]
    assert found.policy == "route-policy-chat"
    assert np.array_equal(found.table, expected.table)
    moves = 0.5 * np.abs(np.diff(found.table, axis=0)).sum(axis=2).max()
    assert moves == pytest.approx(0.05 if mode == "enforce" else 0.0)


@pytest.mark.usefixtures("meta")
def test_e5_runs_a_document_after_the_suites_configurations(tmp_path: Path) -> None:
    """The document is the last configuration, runs on every scenario, and is part of the stored command."""
    suite, out = write_suite(tmp_path, 120.0, sweep=[], sweep_scenarios=[]), tmp_path / "out"
    file = write(tmp_path, policy="threshold")
    words = ["e5", "--suite", str(suite), "--policies", "fixed", "--seeds", "2", "--jobs", "1", "--json"]
    result = CliRunner().invoke(app, [*words, "--route-policy", str(file), "--out", str(out)])
    assert result.exit_code == 0, result.output
    content = json.loads(result.stdout)
    assert content["header"]["policies"] == ["fixed-bare", "fixed", "route-policy-chat"]
    assert content["header"]["route_policy_sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    assert f"--route-policy {file}" in content["header"]["command"]
    assert content["results"]["route-policy-chat"]["mttr_s"]["n"] > 0


@pytest.mark.usefixtures("meta")
def test_e5_refuses_a_document_for_another_pool(tmp_path: Path) -> None:
    """A scenario whose pool is not the document's ends the run before anything is simulated."""
    suite = write_suite(tmp_path, 120.0)
    document = yaml.safe_load((tmp_path / "scenario.yaml").read_text())
    pool = document["spec"].pop("pool")
    write_yaml(tmp_path / "pool.yaml", envelope("KernelPool", "mine", pool))
    document["spec"]["pool_uri"] = "pool.yaml"
    write_yaml(tmp_path / "scenario.yaml", document)
    options = Options(out=tmp_path / "out", suite=suite, route_policy=str(write(tmp_path, pool="other")))
    with pytest.raises(DocumentError, match=r"spec\.pool"):
        plan_run(options)
    write(tmp_path, pool="mine")
    assert plan_run(options).configurations[-1].name == "route-policy-chat"
