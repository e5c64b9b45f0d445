"""House rules that no linter knows: sizes, test docstrings, what a file may not contain."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = (
    "contracts", "controller", "simulator", "faults", "policies", "live", "k8s", "scripts", "tests",
)  # fmt: skip
SOURCES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
MODULE_LINES, FUNCTION_LINES = 400, 60

#: Compiled code pays for calls; the oracle mirrors it name by name.
WAIVED = {"simulator/engine_kernels.py", "simulator/oracle.py"}


def named(path: Path) -> str:
    """Path of a source relative to the project."""
    return path.relative_to(ROOT).as_posix()


def functions(path: Path) -> list[ast.FunctionDef]:
    """Every function and method of a source."""
    return [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)]


@pytest.mark.parametrize("path", [p for p in SOURCES if named(p) not in WAIVED], ids=named)
def test_modules_and_functions_stay_small(path: Path) -> None:
    """A module has at most 400 lines, a function at most 60 with its docstring."""
    assert len(path.read_text().splitlines()) <= MODULE_LINES
    long = [f.name for f in functions(path) if (f.end_lineno or 0) - f.lineno >= FUNCTION_LINES]
    assert not long


@pytest.mark.parametrize("path", [p for p in SOURCES if p.name.startswith("test_")], ids=named)
def test_every_test_says_its_law(path: Path) -> None:
    """Each test function has a docstring."""
    tests = [f for f in functions(path) if f.name.startswith("test_")]
    assert not [f.name for f in tests if not ast.get_docstring(f)]
