"""Where the project's own files lie."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
LIBRARY = ROOT / "contracts" / "library"
DATA = ROOT / "tests" / "data"
