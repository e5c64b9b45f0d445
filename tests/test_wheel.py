"""The wheel works outside the checkout, in an environment that holds nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from shutil import copy, copytree, ignore_patterns
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).resolve().parent.parent
LAYERS = ("contracts", "controller", "simulator", "faults", "policies", "live", "k8s", "scripts")

TINY_SUITE = """\
apiVersion: selvage.dev/v1alpha1
kind: Suite
metadata: {name: tiny}
spec:
  description: One silent fault of a shipped profile.
  base: package:contracts/library/suites/e5-base.yaml
  policies: [fixed-bare, hysteresis]
  scenarios:
    - name: requantise
      faults:
        - name: w4
          kind: requantise
          target: {kernel: bf16}
          condition: requantise-w4
          onset_s: 131.0
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def run(*command: str | Path, cwd: Path) -> str:
    """Standard output of ``command``; the test fails with its stderr if it does."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))
    }
    done = subprocess.run(
        [*map(str, command)], cwd=cwd, env=kept, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy so that no build leftovers get in or stay behind."""
    source = tmp_path_factory.mktemp("source")
    for name in LAYERS:
        copytree(ROOT / name, source / name, ignore=ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        copy(ROOT / name, source / name)
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, source, cwd=source)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the programs of a clean environment that holds the wheel."""
    folder = tmp_path_factory.mktemp("clean")
    run(sys.executable, "-m", "venv", folder / "venv", cwd=folder)
    programs = folder / "venv" / "bin"
    constraints = ROOT / "requirements" / "constraints.txt"
    run(programs / "python", "-m", "pip", "install", "-qq", "-c", constraints, wheel, cwd=folder)
    return programs


def test_wheel_holds_layers_and_documents_but_no_tests(wheel: Path) -> None:
    """Every layer, the shipped documents and the report template are inside; tests are not."""
    names = ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == set(LAYERS)
    shipped = [
        p for p in (ROOT / "contracts" / "library").rglob("*") if p.is_file() and "__pycache__" not in p.parts
    ]
    assert {str(p.relative_to(ROOT)) for p in shipped} <= set(names)
    assert any(name.startswith("scripts/templates/") for name in names)
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_core_installs_without_torch(installed: Path, tmp_path: Path) -> None:
    """The core brings neither torch nor kopf nor vLLM, and is complete without them."""
    report = json.loads(run(installed / "selvage", "doctor", "--json", cwd=tmp_path))
    states = {check["name"]: check["status"] for check in report["checks"]}
    assert {states[name] for name in ("torch", "kopf", "vllm", "transformers")} == {"not installed"}


def test_missing_part_is_named_with_its_command(installed: Path, tmp_path: Path) -> None:
    """Measuring without the parts it needs is exit code 2 and one line that says how to get them."""
    command = [str(installed / "selvage"), "profile", "--out", str(tmp_path / "out")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert "make setup-test" in done.stderr


def test_commands_run_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    """The version is printed and a shipped contract validates, far from the checkout."""
    assert run(installed / "selvage", "--version", cwd=tmp_path).strip() == "0.1.0"
    shipped = "package:contracts/library/serving-pool.yaml"
    run(installed / "selvage", "contract", "validate", shipped, cwd=tmp_path)


def test_experiment_runs_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    """One seed of E5 gives its JSON and its page, with scenario, contract and profiles from the wheel."""
    (tmp_path / "tiny.yaml").write_text(TINY_SUITE)
    arguments = ("--suite", "tiny.yaml", "--seeds", "1", "--jobs", "1", "--out", "out")
    run(installed / "selvage", "e5", *arguments, cwd=tmp_path)
    results = json.loads((tmp_path / "out" / "e5.json").read_text())["results"]
    assert {"fixed-bare", "hysteresis"} <= set(results)
    assert "<svg" in (tmp_path / "out" / "report.html").read_text()
