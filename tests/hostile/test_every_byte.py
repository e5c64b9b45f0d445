"""One byte of any input altered: ``e5`` and ``policy certify`` refuse it, or print another hash."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("torch")

from contracts.errors import DocumentError
from contracts.loading.shipped import SHIPPED_META
from contracts.loading.uris import resolve_uri
from contracts.plugins import loaded_sha256
from policies.artefacts import builtin_sha256
from policies.certify.artifact_files import write_artefact
from policies.kinds import POLICIES
from policies.registry import configuration_sha256
from scripts.cli.policy import subject_of
from scripts.e5.run.experiment import Options, header, plan_run
from scripts.e5.run.jobs import compiled
from scripts.train.certify import CertificationRequest, inputs_sha256, plan_certification
from simulator.world import kernel_measurements
from tests.hostile.test_files import selvage
from tests.policies.learned.test_runner import TRAINING, content
from tests.support.documents.documents_written import envelope, write_yaml
from tests.support.documents.plugins import write_plugin
from tests.support.fleets.e5_world import suite_document
from tests.support.fleets.synthetic import pool_spec, scenario_document, write_world
from tests.support.fleets.synthetic_kernels import SLICES
from tests.support.paths import ROOT

CERTIFICATE = ROOT / "contracts" / "library" / "policies" / "hysteresis-certificate.json"
EPISODES = CERTIFICATE.with_name("hysteresis-certificate-episodes.json")
TRACE = ROOT / "tests" / "data" / "azure_trace_synthetic.csv"
PLUGIN = """
from policies.kinds import POLICIES
from policies.registry import BASELINES

POLICIES.register("acme", BASELINES["fixed"])
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Suites whose pool, contract, profiles, prompts, trace, route, artefact and meta-contract are files."""
    document: Any = scenario_document(horizon_s=60.0)
    del document["spec"]["pool"]
    document["spec"]["pool_uri"] = "pool.yaml"
    document["spec"]["workload"] |= {"arrivals": "trace", "trace_uri": "trace.csv"}
    shutil.copy(TRACE, tmp_path / "trace.csv")
    write_yaml(tmp_path / "pool.yaml", envelope("KernelPool", "synthetic", pool_spec()))
    write_world(tmp_path, document)
    surge = {"kind": "surge", "at_s": 20.0, "duration_s": 30.0, "factor": 1.5}
    scenarios = [{"name": "surge", "control": True, "changes": [surge]}]
    write_yaml(
        tmp_path / "suite.yaml", suite_document(scenarios=scenarios, sweep=[], sweep_scenarios=["surge"])
    )
    _write_route(tmp_path)
    return tmp_path


def _write_route(folder: Path) -> None:
    meta: Any = yaml.safe_load(resolve_uri(SHIPPED_META, "").read_text())
    meta["spec"]["certification"] = {
        "incidents": "suite.yaml",
        "quiet": "suite.yaml",
        "quiet_slice_days": 0.01,
    }
    write_yaml(folder / "meta.yaml", meta)
    (folder / "policies").mkdir()
    shutil.copy(CERTIFICATE, folder / "policies")
    manifest = write_artefact(folder / "art", "own", content(slices=len(SLICES)), "Untrained.", TRAINING)
    spec: dict[str, object] = {
        "description": "tests only",
        "policy": "learned",
        "artifact": {"uri": "art/own.yaml", "sha256": hashlib.sha256(manifest.read_bytes()).hexdigest()},
        "pool": "synthetic",
        "contract": "synthetic-contract",
        "meta_contract": "meta.yaml",
        "route": {"name": "chat"},
    }
    write_yaml(folder / "route.yaml", envelope("RoutePolicy", "chat", spec))


def experiment(folder: Path) -> object:
    """The hashes in the header of ``e5.json`` for the folder's suite and route."""
    options = Options(
        out=folder / "out",
        suite=folder / "suite.yaml",
        policies=("fixed-bare", f"learned:onnx={folder / 'art' / 'own.onnx'}"),
        route_policy=str(folder / "route.yaml"),
    )
    return header(plan_run(options), options)


def certification(folder: Path) -> object:
    """The inputs' hashes in a certificate of the folder's network."""
    spec = f"learned:onnx={folder / 'art' / 'own.onnx'}"
    subject, rules = subject_of(spec)
    plan = plan_certification(
        CertificationRequest(
            spec=spec,
            subject=spec,
            subject_sha256=subject,
            rules_sha256=rules,
            command="",
            meta_uri=str(folder / "meta.yaml"),
        )
    )
    return subject, rules, plan.meta.sha256, inputs_sha256(plan)


def _found(what: Callable[[Path], object], folder: Path) -> object:
    """``what`` of the folder as a new process would find it; None if it is refused."""
    kernel_measurements._profile.cache_clear()
    compiled.cache_clear()
    try:
        return what(folder)
    except DocumentError:
        return None


@pytest.mark.parametrize(
    ("what", "unread", "share"),
    [
        (experiment, set(), 0.5),
        (certification, {"route.yaml", "own.yaml", CERTIFICATE.name}, 0.6),
    ],
    ids=["e5", "certify"],
)
def test_no_byte_of_any_input_changes_unnoticed(
    what: Callable[[Path], object], unread: set[str], share: float, folder: Path
) -> None:
    """Contract, pool, profiles, prompts, trace, scenario, suite, route, artefact and meta-contract."""
    before = _found(what, folder)
    assert before is not None
    assert before == _found(what, folder)
    for path in sorted(one for one in folder.rglob("*") if one.is_file()):
        whole = path.read_bytes()
        altered = bytearray(whole)
        altered[int(share * len(whole))] ^= 1
        path.write_bytes(altered)
        found = _found(what, folder)
        path.write_bytes(whole)
        assert (found == before) == (path.name in unread), path.name


@pytest.mark.parametrize("altered", ["certificate", "episodes"])
@pytest.mark.parametrize("share", [0.02, 0.4, 0.9])
def test_no_byte_of_a_certificate_or_its_episodes_changes_unnoticed(
    altered: str, share: float, tmp_path: Path
) -> None:
    """``policy show`` refuses it, or names another sha256 of the file."""
    for path in (CERTIFICATE, EPISODES):
        shutil.copy(path, tmp_path)
    shown = selvage("policy", "show", tmp_path / CERTIFICATE.name)
    assert shown.exit_code == 0, shown.output
    assert hashlib.sha256(CERTIFICATE.read_bytes()).hexdigest() in shown.stdout
    path = tmp_path / (CERTIFICATE if altered == "certificate" else EPISODES).name
    changed = bytearray(path.read_bytes())
    changed[int(share * len(changed))] ^= 1
    path.write_bytes(changed)
    again = selvage("policy", "show", tmp_path / CERTIFICATE.name)
    assert again.exit_code in (1, 2) or again.stdout != shown.stdout
    assert altered == "certificate" or again.exit_code == 1


@pytest.mark.parametrize("forged", ["inputs", "ranges", "another range"])
def test_what_a_certificate_records_of_its_suites_is_drawn_again(forged: str, tmp_path: Path) -> None:
    """``policy show`` refuses inputs other than those of the suites, and ranges wider than theirs."""
    whole = json.loads(CERTIFICATE.read_text())
    if forged == "inputs":
        whole["inputs_sha256"] = "0" * 64
    elif forged == "ranges":
        next(one for one in whole["covers"] if one["name"].startswith("replicas"))["high"] *= 100
    else:
        whole["covers"].append({"name": "threshold of nobody", "low": 0.0, "high": 1.0})
    path = tmp_path / CERTIFICATE.name
    path.write_text(json.dumps(whole))
    shown = selvage("policy", "show", path)
    assert shown.exit_code == 1, shown.output
    assert "certificate.inputs_sha256" in shown.output or "certificate.covers." in shown.output


def test_the_code_of_a_plugin_is_in_every_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another byte in a plug-in's module is another policy, for results and for certificates."""
    write_plugin(tmp_path, "acme_policy", {"selvage_fleet.policies": {"acme": "acme_policy"}}, PLUGIN)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(POLICIES.__dict__, "plugins", raising=False)

    def found() -> tuple[object, ...]:
        try:
            return configuration_sha256("acme"), builtin_sha256("acme"), loaded_sha256()
        finally:  # as in a new process
            POLICIES.pop("acme", None)
            POLICIES.__dict__.pop("plugins", None)
            POLICIES._brought.clear()
            monkeypatch.delitem(sys.modules, "acme_policy")

    before = found()
    with (tmp_path / "acme_policy.py").open("a") as stream:
        stream.write("# another line\n")
    after = found()
    assert all(one != other for one, other in zip(before, after, strict=True))


def test_the_certificate_of_a_plain_network_speaks_of_its_bytes(tmp_path: Path) -> None:
    """A policy that names a file is certified with the file's content, not with its name."""
    path = tmp_path / "plain.onnx"
    path.write_bytes(b"one")
    before = subject_of(f"gym:onnx={path}")
    path.write_bytes(b"two")
    assert subject_of(f"gym:onnx={path}") != before
