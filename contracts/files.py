"""Files that documents pin: written at once or not at all, known by their sha256."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path


def write_pinned(path: Path, content: bytes) -> str:
    """Write ``content`` to ``path`` through a temporary file beside it; returns its sha256 (hex)."""
    partial = path.with_name(f"{path.name}.partial")
    partial.write_bytes(content)
    os.replace(partial, path)
    return hashlib.sha256(content).hexdigest()


def sha256_of(path: Path) -> str:
    """sha256 (hex) of the content of ``path``."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
