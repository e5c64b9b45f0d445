"""Build the layers as one package: ``selvage_fleet.contracts``, ``selvage_fleet.controller`` and so on.

The layers are folders at the top of the repository and import each other by folder, so that type checkers,
import rules, editors and readers can follow the imports directly. Installed like that, ``contracts`` or
``scripts`` would lie in the user's site-packages under names that others use too. So the build puts the
layers into the façade's package and rewrites their imports on the way. A hook of setuptools' own ``build_py``
is the smallest place for this: wheels and source distributions use it, and an editable installation
does not, which is right, because there the folders stay in place.

Rewritten are import statements, found by syntax tree; every line keeps its number. A module's name in a
string cannot be followed, so the build refuses one: derive it from ``__name__`` or import the module.
Standard library and setuptools only: it runs before anything is installed.
"""

from __future__ import annotations

import ast
import os
import re
import runpy
import shutil
from pathlib import Path

from setuptools import find_packages
from setuptools.command.build_py import build_py

#: Read by its path: in a build, nothing of the checkout can be imported yet.
_HOME = runpy.run_path(str(Path(__file__).resolve().parents[2] / "contracts" / "home.py"))
LAYERS: tuple[str, ...] = _HOME["LAYERS"]
PACKAGE: str = _HOME["PACKAGE"]
#: Steps that only a checkout can take: they are in the source distribution, but not installed.
CHECKOUT_ONLY = frozenset(
    f"{PACKAGE}.scripts.setup.{name}" for name in ("bootstrap", "lock", "one_package", "steps", "wheel")
)
_FROM, _PLAIN = re.compile(r"from\s+(?=\w)"), re.compile(r"import\s+(?=\w)")


class RewriteError(Exception):
    """A source cannot be moved into the package; the message says where and what to write instead."""


class OnePackage(build_py):
    """``build_py`` that moves the layers into the package, except in an editable installation."""

    packages: list[str] | None
    package_dir: dict[str, str]

    def finalize_options(self) -> None:
        """Add the layers to this command's packages; the distribution itself names one package."""
        super().finalize_options()
        packages, folders = layer_packages(Path())
        self.packages = [*(self.packages or []), *packages]
        self.package_dir = {**self.package_dir, **folders}

    def run(self) -> None:
        """Build into an empty folder: what an earlier build left there would be installed too."""
        if not self.editable_mode:
            shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()

    def build_module(
        self, module: str, module_file: str, package: str | list[str] | tuple[str, ...]
    ) -> tuple[str | os.PathLike[str], bool]:
        """Copy one module, its imports rewritten."""
        name = package if isinstance(package, str) else ".".join(package)
        if f"{name}.{module}" in CHECKOUT_ONLY:
            return module_file, False
        target, copied = super().build_module(module, module_file, package)
        path = Path(target)
        path.write_text(rewritten(path.read_text(encoding="utf-8"), str(module_file)), encoding="utf-8")
        return target, copied


def layer_packages(root: Path) -> tuple[list[str], dict[str, str]]:
    """Packages of all layers below ``root`` by their installed names, and the folder of each layer."""
    inner = [
        f"{PACKAGE}.{layer}" + (f".{name}" if name else "")
        for layer in LAYERS
        for name in ("", *find_packages(str(root / layer)))
    ]
    return inner, {f"{PACKAGE}.{layer}": layer for layer in LAYERS}


def rewritten(text: str, file: str) -> str:
    """``text`` with its imports of layers made imports of ``selvage_fleet``; RewriteError, see the module."""
    tree = ast.parse(text, file)
    _refuse_names_in_strings(tree, file)
    lines = text.splitlines(keepends=True)
    statements = [node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))]
    for node in sorted(statements, key=lambda node: (node.lineno, node.col_offset), reverse=True):
        if _of_layers(node):
            place = node.lineno - 1
            head, rest = _split(lines[place], node.col_offset)
            lines[place] = head + _moved(node, rest, f"{file}:{node.lineno}")
    return "".join(lines)


def _split(line: str, offset: int) -> tuple[str, str]:
    """``line`` before and from ``offset``, which counts bytes as the syntax tree does."""
    raw = line.encode()
    return raw[:offset].decode(), raw[offset:].decode()


def _of_layers(node: ast.Import | ast.ImportFrom) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.level == 0 and _is_ours(node.module or "")
    return any(_is_ours(alias.name) for alias in node.names)


def _is_ours(dotted: str) -> bool:
    return dotted.partition(".")[0] in LAYERS


def _moved(node: ast.Import | ast.ImportFrom, text: str, place: str) -> str:
    """The statement that ``text`` begins with, of a layer inside the package."""
    if isinstance(node, ast.ImportFrom):
        found = _FROM.match(text)
        begin, extra = "from ", f"{PACKAGE}."
    else:
        found = _PLAIN.match(text)
        (alias, *others) = node.names
        if others or ("." in alias.name and not alias.asname):
            raise RewriteError(
                f"{place}: expected one import of a layer, got several names or a dotted one; "
                "write `from LAYER.module import name`"
            )
        begin, extra = ("import ", f"{PACKAGE}.") if "." in alias.name else (f"from {PACKAGE} import ", "")
    if found is None:
        raise RewriteError(f"{place}: expected the module on the line of `import`; write it there")
    return begin + extra + text[found.end() :]


def _refuse_names_in_strings(tree: ast.Module, file: str) -> None:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _names_module(node.value):
            raise RewriteError(
                f"{file}:{node.lineno}: expected no module's name in a string, got {node.value!r}; "
                "derive it from __name__, or import the module"
            )


def _names_module(text: str) -> bool:
    """Whether ``text`` is ``layer.module`` or ``layer.module:name`` of a module that exists."""
    dotted = text.partition(":")[0]
    if not re.fullmatch(r"\w+(\.\w+)+", dotted) or not _is_ours(dotted):
        return False
    path = Path(*dotted.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()
