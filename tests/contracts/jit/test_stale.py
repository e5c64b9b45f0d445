"""Compiled code is never stale: an edit of another file's constant acts; without one nothing is compiled.

Every check runs in its own process, as a user's next command does.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from shutil import copytree, ignore_patterns

import pytest

from tests.support.fresh_python import printed
from tests.support.paths import ROOT

#: Calls ``f`` of module ``pair.user``; prints its result and whether its code was loaded.
CALL = """
import json
from pair.user import f
value = f(1.0)
print(json.dumps([value, sum(f.stats.cache_hits.values()), sum(f.stats.cache_misses.values())]))
"""
#: Calls a small pass of the sequential detector, which freezes constants of ``evidence``.
EXCESS = """
import json
import numpy as np
from controller.detect.clauses import Kind
from controller.detect.sequential.alarms import _excess
from controller.detect.sequential.evidence import CLAUSE, WIDTH
clauses = np.zeros(1, dtype=CLAUSE)
clauses["kind"], clauses["null_mean"] = int(Kind.BETTING), 0.5
value = _excess(np.array([0.0] * (WIDTH - 2) + [2.0, 5.0]), clauses[0], 1.0)
print(json.dumps([value, sum(_excess.stats.cache_hits.values())]))
"""


def checkout(folder: Path, *layers: str, ignored: str = "__pycache__") -> Path:
    """Copy of some layers, without compiled code, or without the ``ignored`` files."""
    for layer in layers:
        copytree(ROOT / layer, folder / layer, ignore=ignore_patterns(ignored))
    return folder


def edit(file: Path, before: str, after: str) -> None:
    """Replace the only ``before`` in ``file``, keeping its modification time, as an installation may."""
    text, times = file.read_text(encoding="utf-8"), (file.stat().st_atime_ns, file.stat().st_mtime_ns)
    assert text.count(before) == 1
    file.write_text(text.replace(before, after), encoding="utf-8")
    os.utime(file, ns=times)


@pytest.fixture
def pair(tmp_path: Path) -> Path:
    """Checkout of the compiling decorator with a function that freezes another module's constant."""
    (tmp_path / "contracts").mkdir()
    for name in ("__init__.py", "cache_folder.py", "home.py"):
        (tmp_path / "contracts" / name).write_bytes((ROOT / "contracts" / name).read_bytes())
    checkout(tmp_path, "contracts/jit")
    (tmp_path / "pair").mkdir()
    for name, text in {
        "__init__": "",
        "constants": "FACTOR = 2.0\n",
        "callee": "from contracts.jit import compiled\nfrom pair.constants import FACTOR\n\n\n"
        "@compiled\ndef scaled(x):\n    return FACTOR * x\n",
        "user": "from contracts.jit import compiled\nfrom pair.callee import scaled\n\n\n"
        "@compiled\ndef f(x):\n    return scaled(x) + 1.0\n",
        "other": "UNRELATED = 1\n",
    }.items():
        (tmp_path / "pair" / f"{name}.py").write_text(text)
    return tmp_path


@pytest.mark.slow
def test_an_edited_constant_of_another_file_acts(pair: Path) -> None:
    """A callee was compiled with a constant two files away; edited, it acts in the next process.

    Without an edit, or after one of a file that is not imported, the code is loaded and nothing compiled.
    """
    assert json.loads(printed("-c", CALL, folder=pair)) == [3.0, 0, 1]
    assert json.loads(printed("-c", CALL, folder=pair)) == [3.0, 1, 0]
    edit(pair / "pair" / "other.py", "1", "2")
    assert json.loads(printed("-c", CALL, folder=pair)) == [3.0, 1, 0]
    edit(pair / "pair" / "constants.py", "2.0", "5.0")
    assert json.loads(printed("-c", CALL, folder=pair)) == [6.0, 0, 1]
    edit(pair / "pair" / "constants.py", "5.0", "2.0")
    assert json.loads(printed("-c", CALL, folder=pair)) == [3.0, 1, 0]


@pytest.mark.slow
def test_an_index_that_names_missing_types_is_no_error(pair: Path) -> None:
    """A function called with a caller's named tuple is recompiled when that type no longer exists."""
    caller = "from typing import NamedTuple\nimport pair.callers as me\nfrom pair.generic import first\n"
    (pair / "pair" / "generic.py").write_text(
        "from contracts.jit import compiled\n\n\n@compiled\ndef first(pair):\n    return pair[0]\n"
    )
    look = "from pair import callers; print(callers.first(callers.{0}(3.0, 4.0)))"
    for name in ("Left", "Right"):
        (pair / "pair" / "callers.py").write_text(
            f"{caller}class {name}(NamedTuple):\n    a: float\n    b: float\n"
        )
        assert float(printed("-c", look.format(name), folder=pair)) == 3.0


@pytest.mark.slow
def test_two_checkouts_share_no_code(pair: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Two installations given one cache folder keep their code apart."""
    other, shared = tmp_path_factory.mktemp("other"), tmp_path_factory.mktemp("cache")
    copytree(pair, other, dirs_exist_ok=True, ignore=ignore_patterns("__pycache__"))
    edit(other / "pair" / "constants.py", "2.0", "5.0")
    for folder, value in ((pair, 3.0), (other, 6.0)) * 2:
        assert json.loads(printed("-c", CALL, folder=folder, NUMBA_CACHE_DIR=str(shared)))[0] == value
    assert json.loads(printed("-c", CALL, folder=pair, NUMBA_CACHE_DIR=str(shared))) == [3.0, 1, 0]


@pytest.mark.slow
def test_an_edited_constant_of_the_evidence_acts_where_alarms_are_raised(tmp_path: Path) -> None:
    """Columns of a cell are constants of ``evidence``; where they are swapped, ``alarms`` follows."""
    folder = checkout(tmp_path, "contracts", "controller")
    assert json.loads(printed("-c", EXCESS, folder=folder)) == [2.0, 0]
    assert json.loads(printed("-c", EXCESS, folder=folder)) == [2.0, 1]
    evidence = folder / "controller" / "detect" / "sequential" / "evidence.py"
    edit(evidence, "= LEVEL + 1, LEVEL + 2", "= LEVEL + 2, LEVEL + 1")
    assert json.loads(printed("-c", EXCESS, folder=folder)) == [0.0, 0]


@pytest.mark.slow
def test_an_edited_callee_changes_what_a_command_prints(tmp_path: Path) -> None:
    """``selvage simulate`` follows an edit of a function that compiled functions of other files call.

    The copy includes this checkout's compiled code, so that only what the edit affects is compiled.
    """
    layers = ("contracts", "controller", "faults", "policies", "simulator", "scripts")
    folder = checkout(tmp_path, *layers, ignored="*.pyc")
    command = (
        "simulate",
        "package:contracts/library/scenarios/silent-requantise.yaml",
        "--policy",
        "threshold",
        "--json",
    )
    before = printed("-m", "scripts.cli.main", *command, folder=folder)
    assert printed("-m", "scripts.cli.main", *command, folder=folder) == before
    edit(folder / "controller" / "cells.py", "found |= cells[b, u, x]", "found = False")
    assert printed("-m", "scripts.cli.main", *command, folder=folder) != before
