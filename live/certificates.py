"""Whose certificates are believed."""

from __future__ import annotations

import ssl
from pathlib import Path


def trusted(ca_file: Path | None) -> ssl.SSLContext:
    """The usual authorities, and those of ``ca_file`` (PEM) beside them; OSError where it cannot be read."""
    found = ssl.create_default_context()
    if ca_file is not None:
        found.load_verify_locations(ca_file)
    return found
