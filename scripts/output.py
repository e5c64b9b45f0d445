"""Where commands put what they make: folders that are ready before work, whole files or none."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from contracts.errors import DocumentError, Problem
from contracts.loading.files import json_text, write_pinned


def ready_folder(folder: Path) -> None:
    """Make ``folder`` and check that files can be made in it; DocumentError before any work is lost."""
    probe = folder / f".selvage.{os.getpid()}.tmp"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise _refused(folder, "a folder that can be written", error) from None


def write_whole(path: Path, text: str) -> None:
    """Write ``text`` to ``path`` as ``write_pinned`` does; DocumentError where the file cannot be written."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write ``content`` to ``path`` as ``write_whole`` does."""
    try:
        write_pinned(path, content)
    except OSError as error:
        raise _refused(path, "a writable file", error) from None


def write_json(path: Path, value: Any, *, indent: int | None = None) -> None:
    """Write ``json_text`` and a line end to ``path``; DocumentError where the file cannot be written."""
    write_whole(path, f"{json_text(value, indent=indent)}\n")


def _refused(path: Path, expected: str, error: OSError) -> DocumentError:
    return DocumentError(
        [Problem(str(path), 0, "", expected, error.strerror or str(error), "name another place")]
    )
