"""An own policy from start to end: suites, certificates, artefact, and a route that it drives."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

pytest.importorskip("torch")

from contracts.loading.shipped import SHIPPED_ARTEFACT
from policies.certify.artifact_files import write_artefact
from scripts.cli.main import app
from tests.policies.learned.test_runner import TRAINING, content
from tests.support.documents.own_fleet import KERNELS, SLICES, write_own_fleet
from tests.support.documents.reduced_certificate import loosened

pytestmark = pytest.mark.slow


def run(*words: str | Path) -> Result:
    """``selvage words``, which must succeed."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return result


def refused(words: list[str]) -> str:
    """Output of ``selvage words`` when it refuses."""
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2, result.output
    return result.output


def route_document(manifest: Path, scenario: Path, mode: str, *more: str | Path) -> Path:
    """The RoutePolicy that ``selvage policy route`` writes for the own pool."""
    place = scenario.with_name(f"{mode}.yaml")
    run("policy", "route", manifest, scenario, "--mode", mode, "--out", place, *more)
    return place


@pytest.mark.parametrize(
    ("shipped", "slices"),
    [(False, SLICES), (True, SLICES), (True, tuple(f"tenant-{number}" for number in range(8)))],
    ids=["untrained, 2 slices", "shipped, 2 slices", "shipped, 8 slices"],
)
def test_an_own_policy_is_certified_and_drives_an_own_route(
    tmp_path: Path, shipped: bool, slices: tuple[str, ...]
) -> None:
    """From a user's own scenario to a certified policy in force, every command with exit code 0; likewise for
    the shipped network, on kernels and numbers of slices that it never saw.
    """
    kernels = tuple(replace(kernel, slices=slices) for kernel in KERNELS)
    scenario = write_own_fleet(tmp_path, kernels=kernels)
    run("policy", "suite", scenario, "--out", tmp_path / "certify", "--seeds", "2", "--quiet-days", "0.1")
    meta = tmp_path / "certify" / "meta-contract.yaml"
    loosened(meta)
    if shipped:
        words = ("--scenario", scenario, "--name", "own", "--out", tmp_path / "art")
        bare = Path(run("policy", "export", SHIPPED_ARTEFACT, *words).stdout.strip())
    else:
        bare = write_artefact(tmp_path / "art", "own", content(slices=len(slices)), "Untrained.", TRAINING)
    watching = route_document(bare, scenario, "observe", "--meta", meta)
    watched = run("simulate", scenario, "--route-policy", watching, "--json")
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
    driving = route_document(manifest, scenario, "enforce")
    driven = run("simulate", scenario, "--route-policy", driving, "--json")
    found = json.loads(driven.stdout)
    assert (found["mode"], found["uncertified"]) == ("enforce", [])
    run("contract", "validate", manifest, meta, tmp_path / "enforce.yaml")
    by_name = run("simulate", scenario, "--policy", f"learned:artefact={manifest}", "--json")
    assert json.loads(by_name.stdout)["episodes"]
    held.unlink()
    route = ["policy", "route", str(manifest), str(scenario), "--mode", "enforce", "--out", str(driving)]
    assert "name another, or add --force" in refused(route)
    assert "hysteresis-certificate.json" in refused([*route, "--force"])
    suite = ["policy", "suite", str(scenario), "--out", str(meta.parent)]
    assert "name another, or add --force" in refused(suite)
