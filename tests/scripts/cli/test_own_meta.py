"""``--meta`` on every command that runs a policy: an own meta-contract applies, and never silently."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from contracts.documents import RoutePolicy
from contracts.documents.artifact import Training
from contracts.errors import DocumentError
from contracts.loading.loader import load_as
from contracts.loading.shipped import SHIPPED_META
from contracts.loading.uris import resolve_uri
from live.fleet.state import FleetFolder
from policies.certify.artifact_files import write_artefact
from policies.offline.transitions import load_all
from policies.registry import make_configuration
from policies.supervised import meta_sha256, own_meta, supervised_by_uri
from scripts.cli.main import app
from scripts.drill.healer import RunningController
from scripts.e5.configurations import BASELINE_CONFIGURATION, parse_configurations
from scripts.e5.run.jobs import compiled
from scripts.e5.suite import expand_suite, load_suite
from tests.policies.certify.test_certificate import certificate
from tests.support.documents.documents_written import write_yaml
from tests.support.documents.own_meta import MOVE_RATIO, write_own_meta
from tests.support.fleets.e5_world import write_suite

SHIPPED = meta_sha256(SHIPPED_META)


def run(*words: str | Path) -> Result:
    """Result of ``selvage words``."""
    return CliRunner().invoke(app, [str(word) for word in words])


def content(*words: str | Path) -> dict[str, Any]:
    """Output of ``selvage words``, which must succeed."""
    done = run(*words)
    assert done.exit_code in (0, 1), done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture
def meta(tmp_path: Path) -> Path:
    """The own meta-contract."""
    return write_own_meta(tmp_path)


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A suite of two minutes beside its scenario."""
    return write_suite(tmp_path, 120.0, sweep=[], sweep_scenarios=[])


def largest_move(folder: Path) -> float:
    """Largest change of one weight within one tick of the decision log in ``folder``."""
    rows = [json.loads(line) for line in (folder / "decisions.jsonl").read_text().splitlines()]
    return max(abs(float(move["after"]) - float(move["before"])) for row in rows for move in row["moves"])


def test_simulate_keeps_the_policy_by_it(suite: Path, meta: Path, tmp_path: Path) -> None:
    """Uniform proposals move in steps as small as the own meta-contract requires, and the summary pins it."""
    words = ("simulate", suite.with_name("scenario.yaml"), "--policy", "shield-alone", "--json")
    bare = content(*words, "--out", tmp_path / "bare")
    kept = content(*words, "--out", tmp_path / "kept", "--meta", meta)
    assert (bare["meta_contract_sha256"], kept["meta_contract_sha256"]) == (None, meta_sha256(str(meta)))
    assert largest_move(tmp_path / "kept") <= MOVE_RATIO + 1e-9
    assert largest_move(tmp_path / "bare") > 2.0 * MOVE_RATIO


def test_e5_keeps_every_policy_but_the_baseline_by_it(suite: Path, meta: Path, tmp_path: Path) -> None:
    """Every configuration runs under the own meta-contract, the fleet without moves under none; command and
    header say so.
    """
    words = ("e5", "--suite", suite, "--policies", "shield-alone", "--seeds", "1", "--jobs", "1", "--json")
    found = content(*words, "--out", tmp_path / "out", "--meta", meta)
    assert found["header"]["meta_contract_sha256"] == meta_sha256(str(meta))
    assert f"--meta {meta}" in found["header"]["command"]
    bare = content(*words, "--out", tmp_path / "bare")
    assert bare["header"]["meta_contract_sha256"] is None
    assert found["results"][BASELINE_CONFIGURATION] == bare["results"][BASELINE_CONFIGURATION]
    assert found["results"]["shield-alone"] != bare["results"]["shield-alone"]
    world = compiled(expand_suite(*load_suite(suite), None)[0])
    still, moved = parse_configurations(["shield-alone"], str(meta))
    assert still.setup(world).meta is None
    setup = moved.setup(world)
    assert setup.meta is not None
    assert (setup.meta.name, setup.options.limits.max_move_ratio) == ("own-meta", MOVE_RATIO)


def test_an_offline_log_is_kept_by_it(suite: Path, meta: Path, tmp_path: Path) -> None:
    """The log was recorded under the own meta-contract, and every log says so."""
    scenario, more = suite.with_name("scenario.yaml"), ("--policy", "shield-alone", "--seeds", "1")
    words = ("offline", "record", scenario, *more, "--explore", "0")
    bare = content(*words, "--out", tmp_path / "bare")
    kept = content(*words, "--out", tmp_path / "kept", "--meta", meta)
    assert (bare["meta_contract_sha256"], kept["meta_contract_sha256"]) == ([], [meta_sha256(str(meta))])
    assert kept["reward_mean"] != bare["reward_mean"]
    (log,) = load_all((tmp_path / "kept").glob("*.npz"))
    assert log.header.meta_contract_sha256 == meta_sha256(str(meta))


def manifest(folder: Path, meta_contract: str | None, *, certified: bool = False) -> Path:
    """An artefact that names ``meta_contract``; its certificate is the shipped meta-contract's."""
    proof = certificate().model_copy(update={"meta_contract_sha256": SHIPPED}) if certified else None
    training = Training(command="a test", seeds=(0,))
    path = write_artefact(folder, "mine", b"no network", "Nobody's.", training, proof)
    document = yaml.safe_load(path.read_text())
    if meta_contract is not None:
        document["spec"]["meta_contract"] = meta_contract
    return write_yaml(path, document)


def test_evaluate_refuses_an_artefact_of_another(suite: Path, meta: Path, tmp_path: Path) -> None:
    """Named in the manifest or bound by the certificate: both meta-contracts are compared."""
    other = write_own_meta(tmp_path / "other", "other-meta", 0.1)
    for place, named, certified in (("a", str(other), False), ("b", None, True)):
        mine = manifest(tmp_path / place, named, certified=certified)
        words = ("policy", "evaluate", mine, "--suite", suite, "--seeds", "1", "--out", tmp_path / "out")
        done = run(*words, "--meta", meta)
        assert done.exit_code == 2, done.output
        said = " ".join(done.output.split())
        assert f"{meta_sha256(str(meta))}, of --meta {meta}" in said
        assert str(meta_sha256(str(other)) if named else SHIPPED) in said
        assert "selvage policy certify learned:onnx=FILE --meta" in said
        assert not (tmp_path / "out").exists()


def test_a_policy_serves_under_the_meta_contract_of_its_artefact(meta: Path, tmp_path: Path) -> None:
    """``--supervised`` and drills use the manifest's own if it names one, else the shipped one."""
    mine = manifest(tmp_path / "art", str(meta))
    assert Path(own_meta(f"learned:artefact={mine}")) == meta
    assert own_meta("learned") == own_meta("hysteresis") == SHIPPED_META
    assert own_meta("learned:onnx=mine.onnx") == SHIPPED_META


def test_the_shipped_policy_is_refused_under_another(suite: Path, meta: Path) -> None:
    """A policy certified under the shipped meta-contract is refused under another one."""
    world = compiled(expand_suite(*load_suite(suite), None)[0])
    with pytest.raises(DocumentError, match="of the shipped one"):
        supervised_by_uri(str(meta), "learned", make_configuration("hysteresis", world.setup), "tests")


def test_a_simulated_drill_is_kept_by_it(meta: Path) -> None:
    """The result pins the own meta-contract; without a healing policy ``--meta`` is refused."""
    words = ("drill", "run", "three-bits", "--policy", "shield-alone", "--json")
    bare, kept = content(*words), content(*words, "--meta", meta)
    assert kept["meta_contract_sha256"] == meta_sha256(str(meta))
    assert bare["meta_contract_sha256"] is None
    assert kept["measures"] != bare["measures"]
    refused = run("drill", "run", "three-bits", "--policy", "none", "--meta", meta)
    assert refused.exit_code == 2
    assert "--meta: expected a policy that it keeps" in refused.output


@pytest.mark.parametrize("named", [True, False])
def test_a_live_drill_pins_it_in_its_document(meta: Path, tmp_path: Path, named: bool) -> None:
    """The RoutePolicy of a controller of servers pins the requested one, or the artefact's own."""
    mine = manifest(tmp_path / "art", None if named else str(meta))
    healer = RunningController(
        folder=FleetFolder(path=tmp_path / "fleet"),
        pool="live-pool",
        policy=f"learned:artefact={mine}",
        meta=str(meta) if named else "",
        contract=resolve_uri("package:contracts/library/serving-pool.yaml", ""),
        say=lambda _: None,
    )
    spec = load_as(RoutePolicy, healer.document()).spec
    assert Path(spec.meta_contract) == meta
    assert spec.meta_contract_sha256 == meta_sha256(str(meta))
    assert spec.policy == "learned"
    assert spec.artifact is not None
    assert Path(spec.artifact.uri) == mine


REFUSED = {
    "simulate": ("simulate", "{scenario}", "--meta", "none.yaml"),
    "e5": ("e5", "--suite", "{suite}", "--policies", "fixed", "--out", "{out}", "--meta", "none.yaml"),
    "drill": ("drill", "run", "three-bits", "--meta", "none.yaml"),
    "local": ("e5", "--target", "local", "--out", "{out}", "--meta", "none.yaml"),
    "offline": ("offline", "record", "{scenario}", "--out", "{out}", "--meta", "none.yaml"),
    "beside": ("simulate", "{scenario}", "--route-policy", "x.yaml", "--meta", "none.yaml"),
}


@pytest.mark.parametrize("how", REFUSED)
def test_what_is_no_meta_contract_is_refused_before_anything_runs(
    suite: Path, tmp_path: Path, how: str
) -> None:
    """Exit code 2, and nothing is written."""
    places = {"suite": suite, "scenario": suite.with_name("scenario.yaml"), "out": tmp_path / "out"}
    done = run(*(word.format(**places) for word in REFUSED[how]))
    assert done.exit_code == 2, done.output
    assert "--meta" in done.output if how == "beside" else "none.yaml" in done.output
    assert not (tmp_path / "out").exists()
