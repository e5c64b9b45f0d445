"""Every definition of the project is used: code for tests alone belongs under ``tests``."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache

from tests.support.paths import FOLDERS, ROOT, SHIPPED_SOURCES

#: Called by a library, by their name or through a decorator.
CALLED = re.compile(r"command|callback|register|kopf|\bon\.|overload|extending|validator|serializer")
#: Bases that call no method of a class by themselves.
OPEN_BASES = {"Protocol", "NamedTuple", "ABC", "Generic", "StrEnum", "IntEnum", "Enum"}
#: A string that may be a name, not a sentence.
SHORT = 100
#: Names used by tests or not at all that stay all the same, and why. Only fewer.
ALLOWED = {
    "live.kld.inside.endpoint.KldPlugin.attach_router": "vLLM calls it, as every plug-in of a server",
    "live.kld.inside.endpoint.KldPlugin.init_state": "vLLM calls it, as every plug-in of a server",
    "live.measure.backends.vllm_backend.VllmSession.score_by_api": "a test checks the capture by it",
    "live.observe.past.MOST_OUTSIDE": "the bound that the module promises for its default threshold",
}


@cache
def trees() -> dict[str, ast.Module]:
    """Every source outside of tests, by the module's name."""
    found = {}
    for path in SHIPPED_SOURCES:
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        found[name] = ast.parse(path.read_text())
    return found


def defined(tree: ast.Module) -> Iterator[tuple[str, ast.stmt]]:
    """Names that a module defines at its top level, with the statements."""
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            kept = node.name.startswith("__") or CALLED.search(
                " ".join(map(ast.unparse, node.decorator_list))
            )
            if not kept:
                yield node.name, node
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (
                (t.id, node) for t in targets if isinstance(t, ast.Name) and not t.id.startswith("__")
            )


def methods(known: dict[str, ast.Module]) -> Iterator[tuple[str, str]]:
    """(Module and class, name) of methods and properties; those that a library's class asks for apart."""
    classes = [(m, c) for m, tree in known.items() for c in tree.body if isinstance(c, ast.ClassDef)]
    own = {kind.name for _, kind in classes} | OPEN_BASES
    for module, kind in classes:
        bases = {ast.unparse(base).split("[")[0].rsplit(".")[-1] for base in kind.bases}
        for node in kind.body if bases <= own else ():
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                decorators = " ".join(map(ast.unparse, node.decorator_list))
                if not node.name.startswith("__") and not CALLED.search(decorators):
                    yield f"{module}.{kind.name}", node.name


def loaded(node: ast.AST) -> Counter[str]:
    """How often a piece of source reads each name."""
    found = (one for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load))
    return Counter(name.id for name in found)


def called_by_others(tree: ast.Module) -> Iterator[str]:
    """Names that a module imports, picks from an object or writes in a string."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < SHORT:
            yield from re.findall(r"\w+", node.value)


def told() -> set[str]:
    """Words of pages, manifests and settings, which name public or separately started code."""
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), ROOT / "pyproject.toml", ROOT / "Makefile"]
    pages += [p for folder in FOLDERS for e in ("*.yaml", "*.j2", "*.md") for p in (ROOT / folder).rglob(e)]
    return {
        word for page in pages if page.name != "CHANGELOG.md" for word in re.findall(r"\w+", page.read_text())
    }


def unused(known: dict[str, ast.Module]) -> set[str]:
    """Functions, classes, constants and methods named only by their own definition."""
    found = set()
    elsewhere = {name for tree in known.values() for name in called_by_others(tree)} | told()
    for module, tree in known.items():
        reads = loaded(tree)
        for name, node in defined(tree):
            if name not in elsewhere and reads[name] <= loaded(node)[name]:
                found.add(f"{module}.{name}")
    return found | {f"{home}.{name}" for home, name in methods(known) if name not in elsewhere}


def test_what_is_defined_is_used_outside_of_tests() -> None:
    """Every function, class, constant and method is named by other code, a page or a manifest."""
    found = unused(trees())
    assert not found - ALLOWED.keys(), "move to tests/support or delete"
    assert not ALLOWED.keys() - found, "used by now: take them out of the list"


def test_a_function_that_calls_itself_alone_is_found() -> None:
    """A name that only its own definition reads is as unused as an unread one (negative control)."""
    text = (
        "def _spare(n):\n    return _spare(n - 1)\n\n_KEPT_SPARE = 3\n\ndef _busy_one(): ...\n\n_busy_one()\n"
    )
    assert unused({"spare": ast.parse(text)}) == {"spare._spare", "spare._KEPT_SPARE"}


def test_a_method_that_nobody_calls_is_found() -> None:
    """Unless a library's class may call it, a method has a caller (negative control)."""
    text = (
        "class _Own:\n    def _spare(self): ...\n    def _busy_one(self): ...\n\n"
        "class _Heir(_Own):\n    def _spare_too(self): ...\n\n"
        "class _Foreign(json.JSONEncoder):\n    def default(self, o): ...\n\n"
        "_Own()._busy_one(), _Heir, _Foreign\n"
    )
    assert unused({"spare": ast.parse(text)}) == {"spare._Own._spare", "spare._Heir._spare_too"}
