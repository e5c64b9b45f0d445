"""The sources that compiled code may contain: all that a module reaches, and a hash over them.

numba looks only at the file of the function that is called, but a compiled function contains the code and the
constants of every module that it reaches. So the stamp of a file is a hash over its own source, the sources
of all project modules that it imports, directly or not, and the versions of numba and numpy: after an edit of
a constant or a change of version the code is compiled anew. Imports are read from the text, also those inside
functions; a module that is imported by a computed name is not seen.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numba
import numpy as np

from contracts.home import HOME

_COMMENT = re.compile(r"#[^\n]*")
_IMPORT = re.compile(
    r"[ \t]*(?:from[ \t]+(\.*)([\w.]*)[ \t]*\bimport\b[ \t]*(\([^)]*\)|[^;\n]+)|import[ \t]+([^;\n]+))"
)
_NAME = re.compile(r"\w+")


@cache
def source_stamp(file: Path) -> str:
    """Hex sha256 of all sources that the compiled code of ``file`` may contain; see the module."""
    digest = hashlib.sha256(f"numba {numba.__version__} numpy {np.__version__}".encode())
    digest.update("\n".join(sorted(_read(path).line for path in reached(file))).encode())
    return digest.hexdigest()


def reached(file: Path) -> set[Path]:
    """Files of project modules that ``file`` imports, directly or not; itself included.

    A file outside of the project also reaches the other modules of its own package.
    """
    found, todo = {file}, [file]
    while todo:
        for path in _read(todo.pop()).imported - found:
            found.add(path)
            todo.append(path)
    return found


class _Read(NamedTuple):
    """What one reading of a source file gave. line: its place and sha256."""

    line: str
    imported: frozenset[Path]


@cache
def _read(file: Path) -> _Read:
    content = file.read_bytes()
    place = file.relative_to(HOME) if file.is_relative_to(HOME) else file
    found: set[Path] = set()
    for dots, module, names, plain in _imports(content.decode("utf-8")):
        if plain:
            for part in plain.split(","):
                found.update(_files(part.split(" as ")[0].strip(), file))
        else:
            found.update(_files(_absolute(dots, module, file), file, _NAME.findall(names)))
    return _Read(f"{place} {hashlib.sha256(content).hexdigest()}", frozenset(found))


def _imports(text: str) -> Iterator[tuple[str, str, str, str]]:
    """Leading dots, module and names of every ``from ... import``; last, what follows a plain ``import``."""
    text = _COMMENT.sub("", text.replace("\\\n", " "))
    at = text.find("import")
    while at >= 0:
        begin = text.rfind("\n", 0, at) + 1
        before = text[begin:at]
        found = _IMPORT.match(text, begin + max(before.rfind(";"), before.rfind(":")) + 1)
        if found is not None:
            yield found.group(1) or "", found.group(2) or "", found.group(3) or "", found.group(4) or ""
        at = text.find("import", at + 1)


def _absolute(dots: str, module: str, file: Path) -> str:
    """``module`` without leading dots, resolved from ``file``."""
    if not dots:
        return module
    around = file.parent.relative_to(_outermost(file).parent).parts
    return ".".join((*around[: len(around) + 1 - len(dots)], *filter(None, (module,))))


def _files(dotted: str, file: Path, names: Iterable[str] = ()) -> Iterator[Path]:
    """Files of the module ``dotted`` and the packages around it, and of its ``names`` that are modules.

    file: the importing file. No files for a module outside the project.
    """
    folder, parts = _top(dotted, file)
    for part in parts:
        found = _modules(folder).get(part)
        if found is None:
            return
        yield found
        folder /= part
    inside = _modules(folder) if parts else {}
    yield from (inside[name] for name in names if name in inside)


def _top(dotted: str, file: Path) -> tuple[Path, list[str]]:
    """Folder to begin in, and the names to follow from there."""
    first, *rest = dotted.split(".")
    package = _outermost(file)
    if first == HOME.name and _is_package(HOME):  # installed as one package
        return HOME, rest
    if first == package.name and _is_package(package):
        return package.parent, [first, *rest]
    return HOME, [first, *rest]


@cache
def _outermost(file: Path) -> Path:
    """The outermost package around ``file``; its folder where there is none."""
    folder = file.parent
    while _is_package(folder.parent):
        folder = folder.parent
    return folder


@cache
def _is_package(folder: Path) -> bool:
    return (folder / "__init__.py").is_file()


@cache
def _modules(folder: Path) -> Mapping[str, Path]:
    """File of every module and package in ``folder``; nothing if that is no folder."""
    try:
        with os.scandir(folder) as entries:
            names = {entry.name: entry.is_dir() for entry in entries}
    except OSError:
        return {}
    modules = {name.removesuffix(".py"): folder / name for name in names if name.endswith(".py")}
    packages = (name for name, is_folder in names.items() if is_folder and _is_package(folder / name))
    return modules | {name: folder / name / "__init__.py" for name in packages}
