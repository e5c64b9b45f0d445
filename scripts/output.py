"""Output of commands: folders checked before work, whole files or none, tables of pages.

A page's tables are between ``<!-- begin NAME -->`` and ``<!-- end NAME -->``. Text around the marks is
unchanged, so a page and the run that it shows agree.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from contracts.errors import DocumentError, refusal
from contracts.loading.files import is_stream, json_text, write_pinned

#: Least width of a printed table if the output is not a terminal.
TABLE_WIDTH = 118


def ready_folder(folder: Path) -> None:
    """Make ``folder`` and check that files can be made in it; DocumentError before any work is lost."""
    probe = folder / f".selvage.{os.getpid()}.tmp"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise _refusal(folder, "a folder that can be written", error) from None


def refuse_to_replace(place: Path | None, command: str) -> None:
    """DocumentError if ``place`` exists already: a document that may have been edited by hand."""
    if place is not None and place.exists():
        hint = "name another, or add --force"
        raise refusal(command, "a file that is not there yet", str(place), hint, path="--out")


def ready_file(path: Path) -> None:
    """Make the folder of ``path`` and check that a file can be written there; DocumentError before any work.

    A device or a pipe is accepted unchanged.
    """
    if is_stream(path):
        return
    try:
        ready_folder(_behind_links(path).parent)
    except OSError as error:
        raise _refusal(path, "a writable file", error) from None
    if path.is_dir():
        raise _refusal(path, "a writable file", IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR)))


def write_whole(path: Path, text: str) -> None:
    """Write ``text`` to ``path`` as ``write_pinned`` does; DocumentError if the file cannot be written.

    A link is kept and its target written; a device or a pipe (``/dev/stdout``) is written in place.
    """
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write ``content`` to ``path`` as ``write_whole`` does."""
    try:
        if is_stream(path):
            path.write_bytes(content)
        else:
            write_pinned(_behind_links(path), content)
    except OSError as error:
        raise _refusal(path, "a writable file", error) from None


def _behind_links(path: Path) -> Path:
    """The target of ``path``; OSError for circular links."""
    found = Path(os.path.realpath(path)) if path.is_symlink() else path
    if found.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    return found


def write_json(path: Path, value: Any, *, indent: int | None = None) -> None:
    """Write ``json_text`` and a line end to ``path``; DocumentError if the file cannot be written."""
    write_whole(path, f"{json_text(value, indent=indent)}\n")


def _refusal(path: Path, expected: str, error: OSError) -> DocumentError:
    return refusal(path, expected, error.strerror or str(error), "name another place")


def fill(page: Path, tables: Mapping[str, list[str]]) -> None:
    """Put each table's lines between its marks; DocumentError unless ``page`` has exactly one such pair."""
    text = page.read_text(encoding="utf-8")
    for name, lines in tables.items():
        text = filled(text, name, "\n".join(lines), page.name)
    write_whole(page, text)


def filled(text: str, name: str, body: str, page: str) -> str:
    """``text`` with ``body`` between the marks of ``name``; ``page``: its name in errors."""
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    if text.count(begin) != 1 or text.count(end) != 1:
        raise refusal(page, f"one {begin} and one {end}", "something else", "put them back")
    before, rest = text.split(begin)
    return f"{before}{begin}\n{body}\n{end}{rest.split(end)[1]}"


def table(head: Iterable[str], rows: Iterable[Iterable[str]], *, numbers: bool = False) -> list[str]:
    """Lines of a Markdown table; ``numbers``: every column but the first is aligned to the right."""
    names = list(head)
    rule = ["---"] + ["---:" if numbers else "---"] * (len(names) - 1)
    lines = [" | ".join(cells) for cells in (names, rule, *(list(row) for row in rows))]
    return [f"| {line} |" for line in lines]
