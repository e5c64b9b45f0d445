"""The wheel works outside the checkout, beside foreign packages of our names, like the checkout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from shutil import copy, copytree, ignore_patterns
from zipfile import ZipFile

import pytest

from contracts.home import LAYERS, PACKAGE
from scripts.setup.one_package import CHECKOUT_ONLY
from tests.support.paths import LIBRARY, ROOT

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

#: Prints the help of every command and subcommand; argument: the module of the root command.
EVERY_HELP = """
import sys
from importlib import import_module
root = import_module(sys.argv[1])
def show(command, words):
    context = command.make_context(" ".join(words), ["--help"], resilient_parsing=True)
    print(command.get_help(context))
    for name in getattr(command, "commands", {}):
        show(command.commands[name], [*words, name])
for name, (modules, _) in root.COMMANDS.items():
    show(root.command_of(name, modules), ["selvage", name])
"""

pytestmark = pytest.mark.slow


def run(*command: str | Path, cwd: Path, path: Path | None = None) -> str:
    """Standard output of ``command``, ``path`` first on Python's path; the test fails if the command does."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))
    }
    kept |= {"COLUMNS": "100"} | ({} if path is None else {"PYTHONPATH": str(path)})
    done = subprocess.run(
        [*map(str, command)], cwd=cwd, env=kept, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the source distribution and the wheel made of it; ``direct`` holds one made of the tree.

    Built from a copy, so that no build leftovers get in or stay behind.
    """
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for name in (*LAYERS, PACKAGE):
        copytree(ROOT / name, source / name, ignore=ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        copy(ROOT / name, source / name)
    build = (sys.executable, "-m", "build", "--no-isolation")
    run(*build, "--outdir", out, source, cwd=source)
    (source / "build" / "lib" / "contracts").mkdir(parents=True, exist_ok=True)
    (source / "build" / "lib" / "contracts" / "left.py").write_text("over = 1\n")
    run(*build, "--wheel", "--outdir", out / "direct", source, cwd=source)
    return out


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    """The wheel that was made of the source distribution."""
    (found,) = built.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the programs of a clean environment that holds the wheel."""
    folder = tmp_path_factory.mktemp("clean")
    run(sys.executable, "-m", "venv", folder / "venv", cwd=folder)
    programs = folder / "venv" / "bin"
    constraints = ROOT / "requirements" / "constraints.txt"
    run(programs / "python", "-m", "pip", "install", "-qq", "-c", constraints, wheel, cwd=folder)
    return programs


@pytest.fixture(scope="module")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of foreign packages with our layers' names; importing one ends the program."""
    folder = tmp_path_factory.mktemp("strangers")
    for name in LAYERS:
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(f"raise SystemExit('a stranger: {name}')\n")
    return folder


def contents(wheel: Path) -> dict[str, bytes]:
    """File name to bytes of everything in ``wheel``."""
    with ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_wheel_holds_one_package(wheel: Path) -> None:
    """One package and its metadata: façade, layers, documents and templates, but no tests and no set-up."""
    names = set(contents(wheel))
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {PACKAGE}
    shipped = [p for p in LIBRARY.rglob("*") if p.is_file() and "__pycache__" not in p.parts]
    assert {f"{PACKAGE}/{p.relative_to(ROOT)}" for p in shipped} <= names
    sources = {p.relative_to(ROOT) for name in LAYERS for p in (ROOT / name).rglob("*.py")}
    left_out = {Path(*name.split(".")[1:]).with_suffix(".py") for name in CHECKOUT_ONLY}
    assert left_out < sources
    assert {f"{PACKAGE}/{p}" for p in sources - left_out} == {
        name for name in names if name.endswith(".py") and name.count("/") > 1
    }
    assert f"{PACKAGE}/py.typed" in names
    assert f"{PACKAGE}/scripts/e5/report/templates/report.html.j2" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    (points,) = (text for name, text in contents(wheel).items() if name.endswith("entry_points.txt"))
    assert b"[gymnasium.envs]\nSelvage = selvage_fleet.environment:register" in points


def test_wheel_of_the_source_distribution_is_the_wheel_of_the_tree(wheel: Path, built: Path) -> None:
    """Both ways give the same files byte for byte, whatever an earlier build left."""
    (direct,) = (built / "direct").glob("*.whl")
    assert contents(wheel) == contents(direct)


def test_core_installs_without_torch(installed: Path, strangers: Path) -> None:
    """The core brings neither torch nor kopf nor vLLM, is complete without them, and nothing hides it."""
    report = json.loads(run(installed / "selvage", "doctor", "--json", cwd=strangers, path=strangers))
    states = {check["name"]: check["status"] for check in report["checks"]}
    assert {states[name] for name in ("torch", "kopf", "vllm", "transformers")} == {"not installed"}
    assert states["selvage-fleet"] == "ok"


def test_missing_part_is_named_with_its_command(installed: Path, tmp_path: Path) -> None:
    """Measuring without the parts it needs is exit code 2 and one line that says how to get them."""
    command = [str(installed / "selvage"), "profile", "--out", str(tmp_path / "out")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert "pip install 'selvage-fleet[" in done.stderr


@pytest.mark.parametrize("command", ["selvage", "selvage-fleet"])
def test_commands_run_from_the_wheel(installed: Path, strangers: Path, command: str) -> None:
    """By both names the version is printed and a shipped contract validates, beside strangers."""
    program = installed / command
    assert run(program, "--version", cwd=strangers, path=strangers).strip() == "0.1.0"
    shipped = "package:contracts/library/serving-pool.yaml"
    run(program, "contract", "validate", shipped, cwd=strangers, path=strangers)


def test_help_of_every_command_is_the_checkouts(installed: Path, strangers: Path) -> None:
    """The help of every command and subcommand of the wheel equals the checkout's."""
    ours = run(sys.executable, "-c", EVERY_HELP, "scripts.cli.main", cwd=ROOT, path=ROOT)
    module = f"{PACKAGE}.scripts.cli.main"
    theirs = run(installed / "python", "-c", EVERY_HELP, module, cwd=strangers, path=strangers)
    assert theirs == ours
    assert ours.count("Usage") > 20


def test_experiment_of_the_wheel_is_the_checkouts(installed: Path, strangers: Path, tmp_path: Path) -> None:
    """One seed of E5 gives the same results, byte for byte, and the same page with its plots."""
    (tmp_path / "tiny.yaml").write_text(TINY_SUITE)
    arguments = ("e5", "--suite", "tiny.yaml", "--seeds", "1", "--jobs", "1", "--out")
    run(installed / "selvage", *arguments, "wheel", cwd=tmp_path, path=strangers)
    run(sys.executable, "-m", "scripts.cli.main", *arguments, "checkout", cwd=tmp_path, path=ROOT)
    ours, theirs = (json.loads((tmp_path / out / "e5.json").read_text()) for out in ("checkout", "wheel"))
    assert {"fixed-bare", "hysteresis"} <= set(theirs["results"])
    assert json.dumps({**theirs, "header": None}) == json.dumps({**ours, "header": None})
    assert "<svg" in (tmp_path / "wheel" / "report.html").read_text()
