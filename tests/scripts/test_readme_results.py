"""The README's result section comes from a run, whole, and again the same."""

from __future__ import annotations

from typing import Any

import pytest

from contracts.errors import DocumentError
from scripts.readme_results import BEGIN, COLUMNS, END, fill, plot, section

LEAF = {"mean": 0.5, "ci_low": 0.25, "ci_high": 0.75, "n": 20}
UNKNOWN = {"mean": None, "ci_low": None, "ci_high": None, "n": 0}


def content() -> dict[str, Any]:
    """The parts of an ``e5.json`` that the page reads."""
    return {
        "header": {
            "policies": ["fixed", "hysteresis"], "seeds": 20, "replicas": 12, "kernels": ["a", "b"],
            "horizon_s": 600.0, "command": "selvage e5 --out DIR", "suite_sha256": "5" * 64,
            "contract_sha256": "c" * 64,
            "scenarios": [{"group": "silent_numeric"}, {"group": "control"}],
        },
        "groups": {
            "silent_numeric": {
                "fixed": dict.fromkeys(COLUMNS, UNKNOWN),
                "hysteresis": dict.fromkeys(COLUMNS, LEAF),
            }
        },
        "front": [
            {
                "policy": "fixed", "setting": "", "on_front": True,
                "false_switches": [0.0, 0.0, None], "mttr_s": [590.0, 600.0, 600.0],
            }
        ],
    }  # fmt: skip


def test_table_has_a_row_per_policy_with_limits() -> None:
    """Every policy has its row; what is not known is a dash, never a zero."""
    text = section(content())
    assert "| hysteresis | 50.00 % (25.00 % to 75.00 %)" in text
    assert "| fixed | – (not applicable)" in text
    assert "1 scenarios, 20 paired seeds" in text


def test_filling_twice_changes_nothing_more() -> None:
    """Filling is idempotent and leaves the rest of the page alone."""
    page = f"above\n{BEGIN}\nold\n{END}\nbelow\n"
    once = fill(page, section(content()))
    assert once.startswith("above\n")
    assert once.endswith("\nbelow\n")
    assert "old" not in once
    assert fill(once, section(content())) == once


def test_page_without_markers_is_refused() -> None:
    """Without its markers the page is not touched."""
    with pytest.raises(DocumentError, match="put them back"):
        fill("no markers", "text")


def test_plot_stands_alone() -> None:
    """The image needs no page around it and is the same twice."""
    svg = plot(content())
    assert svg.startswith("<svg")
    assert "currentColor" not in svg
    assert svg == plot(content())
