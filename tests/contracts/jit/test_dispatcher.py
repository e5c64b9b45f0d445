"""Compiled functions get a Python wrapper only where the interpreter calls them."""

from __future__ import annotations

import gc
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from contracts.jit.dispatcher import has_python_wrapper, rare_garbage_collection
from tests.support.fresh_python import printed

#: One compiled function that calls another.
PAIR = """from contracts.jit import compiled


@compiled
def inner(x):
    return x + 1


@compiled
def outer(x):
    return 2 * inner(x)
"""


@pytest.fixture
def pair(tmp_path: Path) -> ModuleType:
    """``PAIR`` as a freshly compiled module; versions loaded from a cache cannot be inspected."""
    path = tmp_path / "pair.py"
    path.write_text(PAIR)
    spec = spec_from_file_location("pair", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def doors_by_types(function: object) -> dict[str, bool]:
    """Which compiled versions have a wrapper, by types."""
    return {
        str(types): has_python_wrapper(version)
        for types, version in getattr(function, "overloads", {}).items()
    }


def doors(function: object) -> list[bool]:
    """The same without the types."""
    return list(doors_by_types(function).values())


def test_a_function_has_no_wrapper_until_the_interpreter_calls_it(pair: ModuleType) -> None:
    """Called by compiled code it has none; a call from Python adds one, with equal results."""
    assert pair.outer(3) == 8
    assert doors(pair.outer) == [True]
    assert doors(pair.inner) == [False]
    assert pair.inner(3) == 4
    assert doors(pair.inner) == [True]
    assert pair.outer(4) == 10


def test_each_type_has_its_own_wrapper(pair: ModuleType) -> None:
    """A call with integers adds none for floats, and compiled code reuses a version with a wrapper."""
    assert pair.inner(1) == 2
    assert pair.outer(0.5) == 3.0
    assert doors_by_types(pair.inner) == {
        "(int64,)": True,
        "(float64,)": False,
    }
    assert pair.inner(0.5) == 1.5
    assert pair.outer(1) == 4


PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
import pair
for call in sys.argv[2:]:
    print(getattr(pair, call)(3))
print(sum(pair.inner.stats.cache_misses.values()), sum(pair.inner.stats.cache_hits.values()))
"""


def test_a_cached_version_without_a_wrapper_is_recompiled_once(tmp_path: Path) -> None:
    """In successive processes: through compiled code, from Python, and so on."""
    (tmp_path / "pair.py").write_text(PAIR)

    def run(*calls: str) -> list[str]:
        told = printed("-c", PROGRAM, str(tmp_path), *calls, NUMBA_CACHE_DIR=str(tmp_path / "code"))
        return told.split("\n")[:-1]

    assert run("outer") == ["8", "1 0"]
    assert run("inner") == ["4", "1 0"]
    assert run("inner", "outer") == ["4", "8", "0 1"]
    assert run("outer", "inner") == ["8", "4", "0 1"]


@pytest.mark.parametrize("before", [(700, 10, 10), (0, 10, 10), (200_000, 5, 5)])
def test_compiling_restores_the_garbage_collection_threshold(before: tuple[int, int, int]) -> None:
    """Rare while it compiles, never where it was switched off, and as before afterwards."""
    usual = gc.get_threshold()
    try:
        gc.set_threshold(*before)
        with rare_garbage_collection():
            assert gc.get_threshold()[0] == (max(before[0], 100_000) if before[0] else 0)
        assert gc.get_threshold() == before
    finally:
        gc.set_threshold(*usual)
