"""The pages that show true capacities are filled from the benchmark's figures alone."""

from __future__ import annotations

from pathlib import Path
from shutil import copy

import pytest

from scripts import capacity_page
from scripts.bench import capacity
from tests.support.paths import DOCS

FIGURES: dict[str, object] = {
    "seed": 1,
    "a/true_rps": 10.0,
    "a/model_rps": 9.5,
    "a/ratio": 0.95,
    "b/true_rps": 0.0,
    "b/model_rps": 2.0,
    "b/ratio": float("nan"),
}


def test_the_tables_of_both_pages_are_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kernel has a row or a column; a kernel that carries nothing has no ratio."""
    for name in ("simulator.md", "capacity.md"):
        copy(DOCS / name, tmp_path / name)
    monkeypatch.setattr(capacity, "run", lambda _: FIGURES)
    capacity_page.main(tmp_path)
    assert "| a | 10.00 | 9.50 | 0.95 |\n| b | 0.00 | 2.00 | – |" in (tmp_path / "simulator.md").read_text()
    assert "| `e5-base` | 0.95 | – |\n| `e5-stress-half-mix` |" in (tmp_path / "capacity.md").read_text()
