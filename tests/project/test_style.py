"""House rules that no linter checks: sizes, parameters, test docstrings, forbidden content."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.paths import ROOT, SHIPPED_SOURCES

SOURCES = [*SHIPPED_SOURCES, *sorted((ROOT / "tests").rglob("*.py"))]
MODULE_LINES, FUNCTION_LINES, PARAMETERS, IGNORES = 300, 40, 7, 20
#: Least lines of a module.
LEAST_MODULE_LINES = 60
#: The shorter modules, and why each is a separate file.
SHORT_MODULES = {
    # At the bottom of their layer: below every room that asks them.
    "contracts/cache_folder.py": "doctor asks it where numba does not even import",
    "contracts/home.py": "the build and doctor ask it where nothing is installed",
    "contracts/loading/shipped.py": "where every layer finds the documents that ship",
    "contracts/rng.py": "every random stream comes from here, and importing it compiles nothing",
    "contracts/units.py": "the only place with a factor of 1000, and what numbers mean everywhere",
    "controller/detect/step_time.py": "the e-value of one scrape, below the detectors that sum it",
    "controller/judge/kernels/at_rest.py": "what certificates say of a fleet before its first tick",
    "controller/perceive/identity.py": "what servers state of themselves, below who believes it",
    "k8s/operator/status/log_fields.py": "what log lines may name, for the operator and its process alike",
    "live/errors.py": "what every room of live raises",
    "live/exposition.py": "reads Prometheus's text for rooms that stand above each other; needs its parser",
    "live/origins.py": "whom we may call: artefacts, webhooks and Prometheus ask the same question",
    "scripts/bisection.py": "one search of the highest rate for neighbours that may not import each other",
    # Edges: their importers do not need a library.
    "policies/artefacts.py": "joins registry and certificates for whoever loads artefacts, with onnxruntime",
    "policies/offline/recipes.py": "settings that the command shows without torch",
    "scripts/drill/kinds.py": "what one command shows of the catalogue",
    "scripts/drill/sim.py": "a drill where the extra of live servers is not installed",
    "scripts/e5/pages/evidence.py": "one table of one page",
    "scripts/e5/pages/slow.py": "one table of one page",
    "scripts/train/inputs.py": "what training and search print, without the library that trains",
    # Run, mounted or loaded by their own name.
    "contracts/rules/profile.py": "rules of one kind of document, imported when one of that kind is judged",
    "faults/inside/logits.py": "vLLM's command line names it, in every manifest of servers for drills",
    "faults/inside/worker.py": "vLLM's command line names it, in every manifest of servers for drills",
    "live/fleet/watchdog.py": "a process of its own, started by its path, of the standard library alone",
    "scripts/cli/oci.py": "a command of its own",
    "scripts/cli/suite.py": "a command of its own",
    "scripts/rooms.py": "`python -m scripts.rooms`, which fills a page and imports nothing of what it lists",
    "scripts/setup/bootstrap.py": "runs before anything is installed, on Pythons that it then refuses",
    "scripts/setup/wheel.py": "runs inside an environment that holds nothing but pip",
    "selvage_fleet/__main__.py": "the entry point of the command",
    # The facade, whose parts are imported when they are first used.
    "selvage_fleet/documents.py": "documents are loaded and judged without a simulator",
    "selvage_fleet/environment.py": "Gymnasium imports it by name",
    "selvage_fleet/extending.py": "what plug-ins register with",
}

#: Compiled passes whose docstrings say what a split would cost.
WAIVED_FUNCTIONS: dict[str, set[str]] = {}


def named(path: Path) -> str:
    """Path of a source relative to the project."""
    return path.relative_to(ROOT).as_posix()


Definition = ast.FunctionDef | ast.AsyncFunctionDef


class Function(NamedTuple):
    """A function or method, async or not, as the rules need it."""

    name: str
    body_lines: int
    parameters: int
    compiled: bool
    told: bool


@cache
def functions(path: Path) -> list[Function]:
    """Every function and method of a source, which is parsed once for all rules."""
    found = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, Definition)]
    return [
        Function(f.name, body_lines(f), parameters(f), is_compiled(f), bool(ast.get_docstring(f)))
        for f in found
    ]


def body_lines(function: Definition) -> int:
    """Lines of a function without its decorators and its docstring."""
    lines = (function.end_lineno or 0) - function.lineno + 1
    if ast.get_docstring(function) is not None:
        lines -= (function.body[0].end_lineno or 0) - function.body[0].lineno + 1
    return lines


def parameters(function: Definition) -> int:
    """Parameters of a function, ``self`` and ``cls`` apart."""
    given = function.args.posonlyargs + function.args.args + function.args.kwonlyargs
    return len([one for one in given if one.arg not in ("self", "cls")])


def is_compiled(function: Definition) -> bool:
    """Whether a function is compiled: its cells stand for registers, not for a reader."""
    return any("compiled" in ast.unparse(decorator) for decorator in function.decorator_list)


def test_functions_that_wait_are_counted_too(tmp_path: Path) -> None:
    """An ``async def`` is measured as any other function (negative control)."""
    (tmp_path / "long.py").write_text("async def long(a, *, b):\n" + "    await a\n" * 41)
    (long,) = functions(tmp_path / "long.py")
    assert (long.name, long.parameters, long.body_lines > FUNCTION_LINES) == ("long", 2, True)


@pytest.mark.parametrize("path", SOURCES, ids=named)
def test_modules_and_functions_stay_small(path: Path) -> None:
    """A module has at most 300 lines, a function at most 40 without its docstring."""
    assert len(path.read_text().splitlines()) <= MODULE_LINES
    waived = WAIVED_FUNCTIONS.get(named(path), set())
    assert not [f.name for f in functions(path) if f.body_lines > FUNCTION_LINES and f.name not in waived]


def test_short_modules_have_a_reason() -> None:
    """Only the listed modules are short, each with a reason; any other must be merged."""
    own = [p for p in SOURCES if "tests" not in p.parts and p.name != "__init__.py"]
    short = {named(p) for p in own if len(p.read_text().splitlines()) < LEAST_MODULE_LINES}
    assert short == set(SHORT_MODULES)


@pytest.mark.parametrize("path", [p for p in SOURCES if "tests" not in p.parts], ids=named)
def test_functions_take_few_parameters(path: Path) -> None:
    """A function that is not compiled takes at most seven parameters."""
    assert not [f.name for f in functions(path) if f.parameters > PARAMETERS and not f.compiled]


@pytest.mark.parametrize("path", [p for p in SOURCES if p.name.startswith("test_")], ids=named)
def test_every_test_says_its_law(path: Path) -> None:
    """Each test function has a docstring."""
    tests = [f for f in functions(path) if f.name.startswith("test_")]
    assert not [f.name for f in tests if not f.told]


def test_a_public_class_name_stands_once() -> None:
    """A class name is defined once: two classes with one meaning must be merged, others renamed."""
    homes: dict[str, list[str]] = {}
    for path in (p for p in SOURCES if "tests" not in p.parts):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(named(path))
    assert not {name: files for name, files in homes.items() if len(files) > 1}


def test_the_type_checker_is_rarely_told_to_look_away() -> None:
    """At most twenty ``type: ignore`` comments in all."""
    told = re.compile(r"#\s*type:\s*" + "ignore")
    found = [
        f"{named(p)}:{n}"
        for p in SOURCES
        for n, line in enumerate(p.read_text().splitlines(), 1)
        if told.search(line)
    ]
    assert len(found) <= IGNORES, found
