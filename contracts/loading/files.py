"""Atomic writing of files, JSON in one canonical form, and sha256 hashes; used by every layer.

JSON has no NaN and no infinities: ``plain`` writes them as null. ``canonical_text`` is the form that is
hashed (sorted keys, no spaces); it refuses what ``plain`` would write as null, because a hash must not lose a
difference.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from contracts.regular_files import hash_regular

#: The "previous hash" of the first entry of a hash chain.
GENESIS = "0" * 64


def plain(value: Any) -> Any:
    """``value`` as JSON can hold it: None for NaN and infinities, lists for tuples, else unchanged."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def json_text(value: Any, *, indent: int | None = None) -> str:
    """``value`` as JSON with sorted keys and null for NaN and infinities; equal values give equal text."""
    return json.dumps(plain(value), sort_keys=True, indent=indent, allow_nan=False)


def canonical_text(value: Any) -> str:
    """The form of ``value`` that is hashed; ValueError where a number is NaN or infinite."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def canonical_sha256(value: Any) -> str:
    """sha256 (hex) of ``canonical_text``; ValueError where a number is NaN or infinite."""
    return hashlib.sha256(canonical_text(value).encode()).hexdigest()


def write_json(path: Path, value: Any, *, indent: int | None = None) -> str:
    """Write ``json_text`` and a line end to ``path``, as ``write_pinned`` does; returns its sha256 (hex)."""
    return write_pinned(path, f"{json_text(value, indent=indent)}\n".encode())


def write_pinned(path: Path, content: bytes, *, durable: bool = False) -> str:
    """Write ``content`` to ``path`` through a temporary file beside it; returns its sha256 (hex).

    Raises OSError and leaves nothing behind where the file cannot be written. durable: as of ``written``.
    """
    with written(path, durable=durable) as stream:
        stream.write(content)
    return hashlib.sha256(content).hexdigest()


def write_texts(folder: Path, texts: Mapping[str, str]) -> list[Path]:
    """Write ``texts`` (name -> content) into ``folder``, which is made if necessary; returns the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        write_pinned(folder / name, text.encode())
    return [folder / name for name in texts]


@contextmanager
def written(path: Path, *, durable: bool = False) -> Iterator[BinaryIO]:
    """Context with a stream whose content replaces ``path`` at its end; after an error nothing is changed.

    durable: flush to the disk before the rename, so that a power cut leaves the old file or the new one.
    Raises OSError if the file cannot be written, or if ``path`` is a device or a pipe, which the rename would
    destroy.
    """
    if is_stream(path):
        raise OSError(errno.EINVAL, "a device or a pipe", str(path))
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as stream:
            yield stream
            if durable:
                stream.flush()
                os.fsync(stream.fileno())
        os.replace(temporary, path)
    finally:
        _forget(temporary)


def is_stream(path: Path) -> bool:
    """Whether ``path`` is a device, a pipe or a socket, which a rename would destroy."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return False  # nothing is there, or writing will raise
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _forget(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return  # its folder cannot be used at all, so nothing was left there


def sha256_of(path: Path) -> str:
    """sha256 (hex) of the content of ``path``; OSError where it is no regular file."""
    return hash_regular(path)
