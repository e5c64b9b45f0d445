"""The import rules: kept by the tree, and able to notice a breach."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from shutil import copytree, ignore_patterns

import pytest

ROOT = Path(__file__).resolve().parent.parent
LAYERS = ("contracts", "controller", "simulator", "faults", "policies", "live", "k8s", "scripts")
LINT = "from importlinter.cli import lint_imports_command; lint_imports_command()"


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter over the packages in ``folder``."""
    return subprocess.run(
        [sys.executable, "-P", "-c", LINT, "--no-cache"],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def copied_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources in a folder that a test may spoil."""
    folder = tmp_path_factory.mktemp("tree")
    for name in LAYERS:
        copytree(ROOT / name, folder / name, ignore=ignore_patterns("__pycache__", "library"))
    (folder / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    return folder


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("contracts/units.py", "import time"),
        ("controller/ports.py", "import simpy"),
        ("simulator/__init__.py", "import policies"),
        ("faults/__init__.py", "import controller.ports"),
        ("live/__init__.py", "import simulator"),
        ("policies/__init__.py", "import torch"),
        ("k8s/__init__.py", "import scripts.warm"),
    ],
)
def test_planted_breach_is_found(copied_tree: Path, file: str, line: str) -> None:
    """An import against the arrows is reported with its file."""
    path = copied_tree / file
    text = path.read_text()
    path.write_text(f"{text}\n{line}\n")
    try:
        done = lint(copied_tree)
    finally:
        path.write_text(text)
    assert done.returncode == 1
    module = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    assert f"{module} -> {line.removeprefix('import ')}" in done.stdout
