"""One byte of any input altered: drills, evaluations and training refuse it, or print another hash."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from contracts.errors import DocumentError
from controller.encoding.encoder import Encoder
from policies.certify.artifact_files import write_artefact
from policies.learned.choosing import InputLayout
from policies.offline.transitions import Transitions, save_transitions
from policies.train.recipe import load_recipe
from scripts.drill.documents import read_drill, targets_of
from scripts.drill.inputs import input_hashes
from scripts.train.inputs import training_inputs
from simulator.world import kernel_measurements
from tests.hostile.test_files import selvage
from tests.policies.learned.test_runner import TRAINING, content
from tests.policies.offline.test_transitions import made_up
from tests.support.documents.documents_written import envelope, write_yaml
from tests.support.fleets.synthetic import pool_spec, scenario_document, write_world
from tests.support.fleets.synthetic_kernels import KERNELS
from tests.support.paths import ROOT

TRACE = ROOT / "tests" / "data" / "azure_trace_synthetic.csv"
RECIPE: dict[str, object] = {
    "description": "tests only",
    "episodes": {"scenarios": ["scenario.yaml"], "horizon_s": 21.0, "fleets": 2, "kernels_max": 4},
    "behaviour_cloning": {"teacher": "gym:onnx=teacher.onnx"},
}
#: Documents of the folder's fleet.
FLEET = {f"{kernel.name}{suffix}" for kernel in KERNELS for suffix in (".yaml", ".npz")}
WORLD = FLEET | {"contract.yaml", "pool.yaml", "prompts.jsonl", "trace.csv"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory: a drill, a recipe and a log over one fleet, every part a file."""
    document: Any = scenario_document()
    del document["spec"]["pool"]
    document["spec"]["pool_uri"] = "pool.yaml"
    document["spec"]["workload"] |= {"arrivals": "trace", "trace_uri": "trace.csv"}
    shutil.copy(TRACE, tmp_path / "trace.csv")
    write_yaml(tmp_path / "pool.yaml", envelope("KernelPool", "synthetic", pool_spec()))
    write_world(tmp_path, document)
    write_yaml(tmp_path / "recipe.yaml", envelope("TrainingRecipe", "tiny", RECIPE))
    write_yaml(tmp_path / "drill.yaml", envelope("FaultDrill", "crash", drill_spec()))
    (tmp_path / "teacher.onnx").write_bytes(b"a network")
    (tmp_path / "log.jsonl").write_text('{"slice": "code", "column": "latency_ms", "value": 48.25}\n' * 30)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def drill_spec() -> dict[str, object]:
    """A crash under the requests of a trace."""
    fault = {"name": "crash", "kind": "crash", "onset_s": 10.0, "duration_s": 10.0}
    return {
        "description": "tests only",
        "pool": "synthetic",
        "pool_uri": "pool.yaml",
        "contract": "contract.yaml",
        "load": {"arrivals": "trace", "trace_uri": "trace.csv", "rate_rps": 4.0},
        "faults": [fault | {"target": {"kernel": KERNELS[0].name, "replica": 0}}],
        "steady_state": [{"name": "answers", "metric": "failure_rate", "threshold": 0.02}],
        "time_to_live_s": 60.0,
    }


def drilled(folder: Path) -> object:
    """The hashes in ``drill.json``, and why the simulator would not run the drill."""
    read = read_drill(str(folder / "drill.yaml"))
    return input_hashes(read, "gym:onnx=teacher.onnx"), targets_of(read)["sim"]


def trained(folder: Path) -> object:
    """The hashes in ``training.json``."""
    return training_inputs(load_recipe(folder / "recipe.yaml"), folder / "recipe.yaml")


def judged(folder: Path) -> object:
    """The hashes that ``contract evaluate`` prints of a profile and a log; None for bad input."""
    done = selvage("contract", "evaluate", folder / "contract.yaml", "bf16.yaml", "log.jsonl", "--json")
    found = json.loads(done.stdout)
    hashes = ("contract_sha256", "profile_sha256", "inputs")
    return [found[key] for key in hashes] if "inputs" in found else None


@pytest.mark.parametrize(
    ("what", "leads_to"),
    [
        (drilled, WORLD | {"drill.yaml", "teacher.onnx"}),
        (trained, WORLD | {"recipe.yaml", "scenario.yaml", "teacher.onnx"}),
        (judged, {"contract.yaml", "bf16.yaml", "bf16.npz", "log.jsonl"}),
    ],
    ids=["drill", "train", "contract evaluate"],
)
def test_no_byte_that_a_result_rests_on_changes_unnoticed(
    what: Callable[[Path], object], leads_to: set[str], folder: Path
) -> None:
    """Every file behind the result is noticed, and no other is in the list."""
    before = what(folder)
    noticed = {path.name for path in folder.rglob("*") if path.is_file() and _altered(what, path) != before}
    assert noticed == leads_to


def _altered(what: Callable[[Path], object], path: Path) -> object:
    """The result after one flipped bit in the middle of ``path``."""
    whole = path.read_bytes()
    altered = bytearray(whole)
    altered[len(whole) // 2] ^= 1
    path.write_bytes(altered)
    try:
        return _found(what, Path.cwd())
    finally:
        path.write_bytes(whole)


def _found(what: Callable[[Path], object], folder: Path) -> object:
    """``what`` as a new process would find it; None if it is refused."""
    kernel_measurements._profile.cache_clear()
    try:
        return what(folder)
    except DocumentError:
        return None


def test_a_drill_prints_them(tmp_path: Path) -> None:
    """``drill run --json`` has every hash, and that of the code; no supervisor without ``--meta``."""
    done = selvage("drill", "run", "crash", "--json", "--out", tmp_path / "out")
    found = json.loads(done.stdout)
    assert found == json.loads((tmp_path / "out" / "drill.json").read_text())
    expected = input_hashes(read_drill("crash"), "hysteresis")
    assert {key: found[key] for key in expected} == expected
    assert all(expected[key] for key in set(expected) - {"trace_sha256", "meta_contract_sha256"})
    assert found["sources_sha256"]


def logged(seed: int) -> Transitions:
    """Five meaningless ticks in the input shape of the network ``content``."""
    rng = np.random.default_rng(seed)
    size = InputLayout(encoder=Encoder(kernels_max=4, slices=2)).size
    seen = rng.normal(size=(6, size)).astype(np.float32)
    return replace(made_up(seed=seed), observation=seen, choice=rng.integers(0, 5, (5, 2)))


@pytest.mark.parametrize("altered", ["log", "artefact", "network"])
def test_no_byte_of_a_log_or_an_artefact_changes_unnoticed(altered: str, tmp_path: Path) -> None:
    """``offline evaluate`` refuses it or names another sha256."""
    manifest = write_artefact(tmp_path / "art", "own", content(), "Untrained.", TRAINING)
    logs = tmp_path / "logs"
    logs.mkdir()
    for seed in range(2):
        save_transitions(logs / f"{seed}.npz", logged(seed))
    words = ("offline", "evaluate", logs, manifest, "--judge-steps", "1")
    before = selvage(*words)
    assert before.exit_code == 0, before.output
    shown = json.loads(before.stdout)
    assert set(shown["logs_sha256"]) == {"0.npz", "1.npz"}
    path = {"log": logs / "1.npz", "artefact": manifest, "network": manifest.with_suffix(".onnx")}[altered]
    changed = bytearray(path.read_bytes())
    changed[len(changed) // 2] ^= 1
    path.write_bytes(changed)
    after = selvage(*words)
    if after.exit_code == 0:
        again = json.loads(after.stdout)
        keys = ("artefact_sha256", "logs_sha256")
        assert [again[key] for key in keys] != [shown[key] for key in keys]
    else:
        assert after.exit_code == 2
