"""The table of visible faults shows the figures of ``bench evidence``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from contracts.errors import DocumentError
from scripts.e5.pages.evidence import evidence_table, main


def figures() -> dict[str, Any]:
    """A control, and a fault that only the new evidence finds and that nobody can end in one seed."""
    none = {"action_s": 773.0, "probes": 773, "scrapes": 154, "mttr_s": None, "recovered": 0}
    found = {"action_s": 12.5, "probes": 12, "scrapes": 2, "mttr_s": 31.4, "recovered": 2, "infeasible": 1}
    return {
        "policy": "sequential",
        "quiet/before/false_switches": 0,
        "quiet/new/false_switches": 1,
        **{f"slow/before/{key}": value for key, value in (none | {"false_switches": 2}).items()},
        **{f"slow/new/{key}": value for key, value in (found | {"false_switches": 0}).items()},
        **{f"slow/informed/{key}": value for key, value in (found | {"mttr_s": 8.0}).items()},
    }


def test_faults_have_rows_of_every_form_and_controls_only_false_switches() -> None:
    """Controls come last; what is not there is empty."""
    table = evidence_table(figures())
    assert table[2] == "| `slow` | 773 | 12 | 12 |  | 31 | 8 | 0 | 2 | 2 | 2 | 0 |  | 1 |"
    assert table[3] == "| `quiet` |  |  |  |  |  |  |  |  |  | 0 | 1 |  |  |"
    assert len(table) == 4


def test_the_page_is_filled_by_figures_of_this_benchmark_alone(tmp_path: Path) -> None:
    """Figures of another benchmark are refused and leave the page as it was."""
    page, found = tmp_path / "page.md", tmp_path / "evidence.json"
    page.write_text("<!-- begin evidence -->\nold\n<!-- end evidence -->")
    found.write_text(json.dumps({"ticks_per_s": 1.0}))
    with pytest.raises(DocumentError, match="figures of `bench evidence`"):
        main(page, found)
    assert "old" in page.read_text()
    found.write_text(json.dumps(figures()))
    main(page, found)
    assert "`slow`" in page.read_text()
    assert "old" not in page.read_text()
