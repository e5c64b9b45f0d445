"""An own policy all the way: suites, certificates, artefact, and a route that it drives, for an own pool."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

pytest.importorskip("torch")

from contracts.documents import MetaContract
from contracts.loading.loader import document_sha256, load_as
from policies.certify.artifact_files import write_artefact
from scripts.cli.main import app
from tests.policies.learned.test_runner import TRAINING, content
from tests.support.documents_written import envelope, write_yaml
from tests.support.own_fleet import SLICES, write_own_fleet

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

#: What two seeds cannot show, and an untrained network need not.
LOOSE = {
    "M-false-switches": 1e6,
    "M-demotions": 1.0,
    "M-switch-rate": 1000.0,
    "M-oscillation": 1000.0,
    "M-decision-latency": 1e4,
    "M-detection-lag": 1e4,
    "M-mttr": 1e4,
    "M-shed": 1.0,
    "M-never-empty": 1e6,
}


def run(*words: str | Path) -> Result:
    """``selvage words``, which must succeed."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return result


def loosened(meta: Path) -> None:
    """Clauses that a reduced certificate can pass; shorter incidents, so that the walk takes a minute."""
    document: dict[str, Any] = yaml.safe_load(meta.read_text())
    for clause in document["spec"]["clauses"]:
        clause["threshold"] = LOOSE.get(clause["id"], clause["threshold"])
    del document["spec"]["certification"]["inputs_sha256"]
    write_yaml(meta, document)
    for name, horizon_s in (("incidents", 130.0), ("quiet", 7200.0)):
        base = meta.with_name(f"{name}-base.yaml")
        scenario: dict[str, Any] = yaml.safe_load(base.read_text())
        scenario["spec"]["horizon_s"] = horizon_s
        write_yaml(base, scenario)
        suite = meta.with_name(f"{name}.yaml")
        rows: dict[str, Any] = yaml.safe_load(suite.read_text())
        rows["spec"]["scenarios"] = [
            row | ({"changes": []} if name == "incidents" else {}) for row in rows["spec"]["scenarios"][:2]
        ]
        write_yaml(suite, rows)


def route_document(folder: Path, manifest: Path, meta: Path, mode: str) -> Path:
    """A RoutePolicy for the own pool that pins manifest and meta-contract."""
    spec: dict[str, object] = {
        "description": "an own policy",
        "policy": "learned",
        "artifact": {
            "uri": str(manifest.relative_to(folder)),
            "sha256": hashlib.sha256(manifest.read_bytes()).hexdigest(),
        },
        "mode": mode,
        "pool": "own-pool",
        "contract": "own-contract",
        "meta_contract": str(meta.relative_to(folder)),
        "meta_contract_sha256": document_sha256(load_as(MetaContract, meta)),
        "route": {"name": "chat"},
    }
    return write_yaml(folder / f"{mode}.yaml", envelope("RoutePolicy", "own", spec))


def test_an_own_policy_is_certified_and_drives_an_own_route(tmp_path: Path) -> None:
    """From a scenario of one's own to a certified policy in force, every command with exit code 0."""
    scenario = write_own_fleet(tmp_path)
    run("policy", "suite", scenario, "--out", tmp_path / "certify", "--seeds", "2", "--quiet-days", "0.1")
    meta = tmp_path / "certify" / "meta-contract.yaml"
    loosened(meta)
    bare = write_artefact(tmp_path / "art", "own", content(slices=len(SLICES)), "Untrained.", TRAINING)
    watched = run(
        "simulate", scenario, "--route-policy", route_document(tmp_path, bare, meta, "observe"), "--json"
    )
    assert "observing without a certificate" in watched.stderr
    assert json.loads(watched.stdout)["uncertified"]
    held = tmp_path / "certify" / "policies" / "hysteresis-certificate.json"
    run("policy", "certify", "hysteresis", "--meta", meta, "--out", held)
    proof = tmp_path / "certificate.json"
    run("policy", "certify", f"learned:onnx={tmp_path / 'art' / 'own.onnx'}", "--meta", meta, "--out", proof)
    out = tmp_path / "certified"
    exported = run(
        "policy", "export", bare, "--name", "own", "--certificate", proof, "--meta", meta, "--out", out
    )
    manifest = Path(exported.stdout.strip())
    assert run("policy", "show", manifest).stdout.rstrip().endswith("accepted")
    driven = run(
        "simulate", scenario, "--route-policy", route_document(tmp_path, manifest, meta, "enforce"), "--json"
    )
    found = json.loads(driven.stdout)
    assert (found["mode"], found["uncertified"]) == ("enforce", [])
    run("contract", "validate", manifest, meta, tmp_path / "enforce.yaml")
    by_name = run("simulate", scenario, "--policy", f"learned:artefact={manifest}", "--json")
    assert json.loads(by_name.stdout)["episodes"]
