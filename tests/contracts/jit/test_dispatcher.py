"""Compiled functions have a door for the interpreter where it calls them, and only there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from contracts.jit import compiled
from contracts.jit.dispatcher import has_door
from tests.support.paths import ROOT


@compiled
def _inner(x):
    return x + 1


@compiled
def _outer(x):
    return 2 * _inner(x)


def doors_by_types(function: object) -> dict[str, bool]:
    """Which compiled versions have one."""
    return {str(types): has_door(version) for types, version in getattr(function, "overloads", {}).items()}


def doors(function: object) -> list[bool]:
    """The same without the types."""
    return list(doors_by_types(function).values())


def test_a_function_has_no_door_until_the_interpreter_calls_it() -> None:
    """Called by compiled code it has none; a call from Python gives it one, and equal results."""
    assert _outer(3) == 8
    assert doors(_outer) == [True]
    assert doors(_inner) == [False]
    assert _inner(3) == 4
    assert doors(_inner) == [True]
    assert _outer(4) == 10


def test_types_have_doors_of_their_own() -> None:
    """A call with integers opens nothing for floats, and compiled code finds an open version again."""
    assert _inner(1) == 2
    assert _outer(0.5) == 3.0
    assert doors_by_types(_inner) == {
        "(float64,)": False,
        "(int64,)": True,
    }
    assert _inner(0.5) == 1.5
    assert _outer(1) == 4


PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
import pair
for call in sys.argv[2:]:
    print(getattr(pair, call)(3))
print(sum(pair.inner.stats.cache_misses.values()), sum(pair.inner.stats.cache_hits.values()))
"""


@pytest.mark.timeout(120)
def test_a_kept_version_without_a_door_is_compiled_anew_once(tmp_path: Path) -> None:
    """By processes one after the other: through compiled code, from Python, and so on."""
    text = "from contracts.jit import compiled\n\n\n@compiled\ndef inner(x):\n    return x + 1\n\n\n"
    text += "@compiled\ndef outer(x):\n    return 2 * inner(x)\n"
    (tmp_path / "pair.py").write_text(text)
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "code"), "PYTHONPATH": str(ROOT)}

    def run(*calls: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(tmp_path), *calls],
            env=environment, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stdout.split("\n")[:-1]

    assert run("outer") == ["8", "1 0"]
    assert run("inner") == ["4", "1 0"]
    assert run("inner", "outer") == ["4", "8", "0 1"]
    assert run("outer", "inner") == ["8", "4", "0 1"]
