"""No input of a scenario can change without a refusal or another hash in the results."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from contracts.documents import FileRef
from contracts.errors import DocumentError
from contracts.loading.loader import load_document
from contracts.loading.uris import resolve_uri
from policies.registry import configuration_sha256
from simulator.world import kernel_measurements
from simulator.world.compiled_scenario import CompiledScenario
from simulator.world.scenario import load_scenario
from tests.support.documents.documents_written import envelope, write_yaml
from tests.support.documents.references import reference_problems
from tests.support.fleets.synthetic import pool_spec, scenario_document, write_world
from tests.support.paths import ROOT

LIBRARY = ROOT / "contracts" / "library"
TRACE = ROOT / "tests" / "data" / "azure_trace_synthetic.csv"


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    """A world with pool, contract, profiles, samples, prompts and trace in separate files."""
    document: Any = scenario_document()
    del document["spec"]["pool"]
    document["spec"]["pool_uri"] = "pool.yaml"
    document["spec"]["workload"] |= {"arrivals": "trace", "trace_uri": "trace.csv"}
    shutil.copy(TRACE, tmp_path / "trace.csv")
    write_yaml(tmp_path / "pool.yaml", envelope("KernelPool", "synthetic", pool_spec()))
    return write_world(tmp_path, document)


def hashes(world: CompiledScenario) -> tuple[object, ...]:
    """Every hash that results of ``world`` print."""
    return (world.sha256, world.pool_sha256, world.trace_sha256, world.contract.sha256, *world.profile_sha256)


@pytest.mark.parametrize("share", [0.07, 0.5, 0.93])
def test_no_byte_of_any_input_changes_unnoticed(scenario: Path, share: float) -> None:
    """One byte altered in one file: the scenario is refused, or some hash in the results is another."""
    before, noticed = hashes(load_scenario(scenario)), set()
    for path in sorted(one for one in scenario.parent.iterdir() if one.is_file()):
        content = bytearray(path.read_bytes())
        place = int(share * len(content))
        content[place] ^= 1
        whole = path.read_bytes()
        path.write_bytes(content)
        kernel_measurements._profile.cache_clear()  # as in a new process
        with suppress(DocumentError):
            assert hashes(load_scenario(scenario)) != before, f"{path.name} at {place}"
        path.write_bytes(whole)
        noticed.add(path.suffix)
    assert {".yaml", ".npz", ".jsonl", ".csv"} <= noticed


def test_repeated_prompts_are_another_file(scenario: Path) -> None:
    """Token ids written twice, which once changed every result, do not pass the profile's pin."""
    prompts = scenario.parent / "prompts.jsonl"
    assert prompts.exists()
    prompts.write_text(prompts.read_text().replace("[", "[7, 7, "))
    with pytest.raises(DocumentError, match="sha256"):
        load_scenario(scenario)


def pins(value: object) -> list[FileRef]:
    """Every pinned file in a document's plain form."""
    if isinstance(value, dict):
        own = [FileRef(uri=value["uri"], sha256=value["sha256"])] if {"uri", "sha256"} <= value.keys() else []
        return own + [pin for key, inner in value.items() if key != "training" for pin in pins(inner)]
    if isinstance(value, list):
        return [pin for inner in value for pin in pins(inner)]
    return []


def pinning() -> list[Path]:
    """Shipped documents that pin files."""
    return [path for path in sorted(LIBRARY.rglob("*.yaml")) if pins(yaml.safe_load(path.read_text()))]


@pytest.mark.parametrize("path", pinning(), ids=lambda path: path.name)
def test_every_pin_of_every_shipped_document_is_followed(path: Path, tmp_path: Path) -> None:
    """Each file that a shipped document pins is altered in turn, and following the references finds it."""
    found = pins(yaml.safe_load(path.read_text()))
    document, text = load_document(path), path.read_text()
    for pin in found:
        for each in found:
            target = tmp_path / each.uri
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(resolve_uri(each.uri, path), target)
        altered = bytearray((tmp_path / pin.uri).read_bytes())
        altered[len(altered) // 2] ^= 1
        (tmp_path / pin.uri).write_bytes(altered)
        problems = reference_problems(document, text, str(tmp_path / path.name))
        assert any("sha256" in str(problem) for problem in problems), pin.uri


def test_a_policys_files_are_in_its_hash(tmp_path: Path) -> None:
    """Another network of the same name is another configuration, and so is another setting."""
    shipped = LIBRARY / "policies" / "routing.onnx"
    path = tmp_path / "p.onnx"
    shutil.copy(shipped, path)
    before = configuration_sha256(f"learned:onnx={path}")
    path.write_bytes(path.read_bytes() + b"\0")
    assert configuration_sha256(f"learned:onnx={path}") != before
    assert configuration_sha256("hysteresis") != configuration_sha256("hysteresis:dwell_s=99")
