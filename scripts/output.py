"""Where commands put their results: folders that are ready before work, files that are whole or absent."""

from __future__ import annotations

import os
from pathlib import Path

from contracts.errors import DocumentError, Problem


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
    """Write ``text`` to ``path`` through a temporary file beside it; DocumentError leaves nothing behind."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)
    except OSError as error:
        raise _refused(path, "a writable file", error) from None
    finally:
        _forget(temporary)


def _forget(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return  # its folder cannot be used at all, so nothing was left there


def _refused(path: Path, expected: str, error: OSError) -> DocumentError:
    return DocumentError(
        [Problem(str(path), 0, "", expected, error.strerror or str(error), "name another place")]
    )
