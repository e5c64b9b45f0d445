"""Functions called only by compiled code are compiled and optimised within their callers."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numba import njit
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Flags

from contracts.jit.linking import SwiftFlags
from tests.support.fresh_python import printed

#: Two functions for the interpreter that inline the same parts: one part refers to objects (the type of the
#: printed array, an exception) through another.
FAMILY = """from contracts.jit import compiled


@compiled
def seen(x):
    print(x)
    if x[0] < 0.0:
        raise ValueError("below zero")
    return x[0]


@compiled
def one_more(x):
    return seen(x) + 1.0


@compiled
def twice(x):
    return 2.0 * one_more(x)


@compiled
def thrice(x):
    return 3.0 * one_more(x)
"""
PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
import family
for name in sys.argv[2:]:
    function = getattr(family, name)
    print(function(np.ones(1)))
    try:
        function(-np.ones(1))
    except ValueError as error:
        print(error)
print(sum(sum(getattr(family, name).stats.cache_misses.values()) for name in ("seen", "one_more")))
"""


def freshly_imported(folder: Path) -> ModuleType:
    """``FAMILY`` as a freshly compiled module."""
    path = folder / "family.py"
    path.write_text(FAMILY)
    spec = spec_from_file_location("family", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def runs(function: Any) -> bool:
    """Whether its only version is machine code."""
    (version,) = function.overloads.values()
    return bool(version.library.runs)


def test_only_functions_called_by_the_interpreter_become_machine_code(tmp_path: Path) -> None:
    """Their callees are inlined; a call from Python compiles a callee too."""
    family = freshly_imported(tmp_path)
    assert family.twice(np.ones(1)) == 4.0
    assert [runs(function) for function in (family.twice, family.seen, family.one_more)] == [
        True,
        False,
        False,
    ]
    assert family.seen(np.ones(1)) == 1.0
    assert runs(family.seen)
    assert family.thrice(np.ones(1)) == 6.0


def test_functions_of_others_are_compiled_as_usual() -> None:
    """A plain ``njit`` function has the library that numba gives it."""
    plain = njit(lambda x: x + 1)
    assert plain(1) == 2
    (version,) = plain.overloads.values()
    assert type(version.library) is JITCodeLibrary


def test_inlined_parts_run_in_every_caller(tmp_path: Path) -> None:
    """Objects that they refer to and exceptions they raise: fresh, from disk, in a second caller."""
    (tmp_path / "family.py").write_text(FAMILY)

    def run(*names: str) -> list[str]:
        told = printed("-c", PROGRAM, str(tmp_path), *names, NUMBA_CACHE_DIR=str(tmp_path / "code"))
        return told.split("\n")[:-1]

    twice, thrice = ["[1.]", "4.0", "[-1.]", "below zero"], ["[1.]", "6.0", "[-1.]", "below zero"]
    assert run("twice") == [*twice, "2"]
    assert run("twice") == [*twice, "0"]
    assert run("thrice") == [*thrice, "0"]
    assert run("thrice", "twice") == [*thrice, *twice, "0"]


def flags_of(**values: object) -> Flags:
    """numba's flags with these options."""
    flags = Flags()
    for name, value in values.items():
        setattr(flags, name, value)
    return flags


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ({}, {}),
        ({"nrt": True}, {"nrt": True}),
        ({"nrt": False}, {}),
        ({"nrt": True}, {}),
        ({"boundscheck": True}, {}),
    ],
)
def test_swift_flags_are_equal_where_those_of_numba_are(
    left: dict[str, object], right: dict[str, object]
) -> None:
    """Set or left at its default, an option is compared by value; hashes, values and names are numba's."""
    ours, theirs, plain = SwiftFlags(flags_of(**left)), flags_of(**right), flags_of(**left)
    assert (ours == theirs) == (theirs == ours) == (ours == SwiftFlags(theirs)) == (plain == theirs)
    assert ours == plain
    assert hash(ours) == hash(plain)
    assert ours.values() == plain.values()
    assert ours.get_mangle_string() == plain.get_mangle_string()
    assert ours.copy() == plain
    assert ours != "flags"
