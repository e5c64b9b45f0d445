"""Where the project's own files lie."""

from __future__ import annotations

from pathlib import Path

from contracts.home import LAYERS, PACKAGE

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
LIBRARY = ROOT / "contracts" / "library"
DATA = ROOT / "tests" / "data"
#: Folders of what is shipped, and the sources in them.
FOLDERS = (*LAYERS, PACKAGE)
SHIPPED_SOURCES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
