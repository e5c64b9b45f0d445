"""One home each: a constant or function with one meaning is defined once, and imported everywhere else."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.project.test_style import named
from tests.support.paths import SHIPPED_SOURCES

#: A measurement states its own seed and sizes; equal choices are a coincidence.
MEASUREMENTS = ("scripts/bench/", "scripts/studies/")
#: Names with one value in several modules, and why each module keeps its own. Only fewer.
ALLOWED = {
    "BLOCKS": "blocks of observations, and blocks of a measurement, come in fours by chance",
    "CONTROL": "the journal's record of a setting, and the incident in which nothing is struck",
    "FORMAT": "each kind of file counts its own versions",
    "KERNELS": "two measurements each choose whom they measure",
    "NOTE": "a drill's note in a folder of this machine, and one in an object of a cluster",
    "POLL_S": "how often each that waits looks is its own affair",
    "PROMPT_TOKENS": "a load that fills servers, and a stream that is timed, have lengths of their own",
    "SERVED": "inside the injected files, whose bytes manifests pin; goes when these change",
    "SHORTEST_TOKEN": "two packages inside vLLM that each stand alone there",
    "WATCH_S": "inside the injected files, whose bytes manifests pin; goes when these change",
}
#: Characters of a function, without its docstring and types, from which a copy is no chance.
WORTH_A_HOME = 100


def functions(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Body of every function with names that it makes itself numbered in their order, and its own name."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            body = node.body[1:] if ast.get_docstring(node) is not None else node.body
            names = [argument.arg for argument in ast.walk(node.args) if isinstance(argument, ast.arg)]
            inside = [one for part in body for one in ast.walk(part) if isinstance(one, ast.Name)]
            names += [name.id for name in inside if isinstance(name.ctx, ast.Store)]
            yield numbered("\n".join(map(ast.unparse, body)), names), node.name


def numbered(text: str, names: list[str]) -> str:
    """``text`` with each of ``names`` replaced by its place among them."""
    places = {name: f"v{place}" for place, name in enumerate(dict.fromkeys(names))}
    return re.sub(r"\b[a-z_]\w*\b", lambda found: places.get(found[0], found[0]), text)


def copies(sources: dict[str, str]) -> list[list[str]]:
    """Functions of ``sources`` that do the same by the same words, as lists of ``path: name``."""
    found: dict[str, list[str]] = {}
    for path, text in sources.items():
        for body, name in functions(ast.parse(text)):
            found.setdefault(body, []).append(f"{path}: {name}")
    return [at for body, at in found.items() if len(at) > 1 and len(body) >= WORTH_A_HOME]


def constants(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Upper-case names of a module, without a leading underscore, with the literals that they stand for."""
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            pairs: list[tuple[ast.expr, ast.expr]] = [(node.target, node.value)]
        elif isinstance(node, ast.Assign):
            pairs = [pair for target in node.targets for pair in unpacked(target, node.value)]
        else:
            continue
        for target, value in pairs:
            if isinstance(target, ast.Name) and target.id.isupper() and is_literal(value):
                yield target.id.lstrip("_"), value


def unpacked(target: ast.expr, value: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    """``A, B = 1, 2`` as two assignments."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        return list(zip(target.elts, value.elts, strict=True))
    return [(target, value)]


def is_literal(value: ast.expr) -> bool:
    """Whether a value is a literal; computed ones such as ``int(Level.GUARD)`` are defined elsewhere."""
    written = any(isinstance(node, ast.Constant) for node in ast.walk(value))
    return written and not any(isinstance(node, (ast.Call, ast.comprehension)) for node in ast.walk(value))


def is_number(value: ast.expr) -> bool:
    """Whether a value is a number, or several."""
    found = [node for node in ast.walk(value) if isinstance(node, ast.Constant)]
    return all(isinstance(node.value, (int, float)) for node in found)


def homes(sources: dict[str, str]) -> dict[tuple[str, str], list[str]]:
    """(Name, value) of every constant of ``sources`` that more than one of them defines, with their paths."""
    found: dict[tuple[str, str], list[str]] = {}
    for path, text in sources.items():
        for name, value in constants(ast.parse(text)):
            if not (path.startswith(MEASUREMENTS) and is_number(value)):
                found.setdefault((name, ast.unparse(value)), []).append(path)
    return {constant: paths for constant, paths in found.items() if len(paths) > 1}


def shipped() -> dict[str, str]:
    """Text of every source outside the tests, by its path."""
    return {named(path): path.read_text(encoding="utf-8") for path in map(Path, SHIPPED_SOURCES)}


def test_a_constant_has_one_home() -> None:
    """No upper-case name has one value in two modules: one imports it, or there are two names."""
    assert not {
        f"{name} = {value}": at for (name, value), at in homes(shipped()).items() if name not in ALLOWED
    }


def test_no_name_is_allowed_in_vain() -> None:
    """Each exception is still in use."""
    assert {name for name, _ in homes(shipped())} >= set(ALLOWED)


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        ("LIMIT_S = 3.0", "_LIMIT_S: float = 3.0", True),
        ("LIMIT_S, MOST = 3.0, 4", "MOST = 4", True),
        ("LIMIT_S = 3.0", "LIMIT_S = 4.0", False),
        ("GUARD = int(Level.GUARD)", "GUARD = int(Level.GUARD)", False),
        ("limit_s = 3.0", "limit_s = 3.0", False),
    ],
)
def test_a_second_home_is_seen(first: str, second: str, found: bool) -> None:
    """Underscores, annotations and tuples hide no second definition; other values and views do not count."""
    assert bool(homes({"live/a.py": first, "scripts/b.py": second})) is found


def test_a_function_has_one_home() -> None:
    """No function of any size stands twice, under whatever names: one module imports it."""
    assert not copies(shipped())


@pytest.mark.parametrize(("most", "found"), [("most", True), ("limit", True), ("most + 1", False)])
def test_a_copied_function_is_seen(most: str, found: bool) -> None:
    """Other names and docstrings hide no copy; another calculation is none (negative control)."""
    text = (
        "def {0}({1}, more: int):\n    '{0}'\n    kept = [one for one in more.values() if one.is_known]\n"
        "    return sum(min(one.count, {2}) for one in kept) / max(1, len(kept) * {2})\n"
    )
    first, name = text.format("first", "most", "most"), most.split()[0]
    assert bool(copies({"a.py": first, "b.py": text.format("_second", name, most)})) is found
