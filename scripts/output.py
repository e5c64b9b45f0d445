"""What commands put out and where: plain JSON, folders that are ready before work, whole files or none."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

from contracts.errors import DocumentError, Problem


def nulled(value: Any) -> Any:
    """``value`` with null for numbers that JSON cannot hold."""
    if isinstance(value, dict):
        return {key: nulled(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [nulled(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


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
