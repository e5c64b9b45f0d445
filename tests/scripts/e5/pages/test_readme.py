"""The README's result section comes completely from a run, and is reproducible."""

from __future__ import annotations

from typing import Any

import pytest

from contracts.errors import DocumentError
from scripts.e5.pages.readme import COLUMNS, MARK, PAGE, plot, section
from scripts.output import filled

LEAF = {"mean": 0.5, "ci_low": 0.25, "ci_high": 0.75, "n": 20}
UNKNOWN = {"mean": None, "ci_low": None, "ci_high": None, "n": 0}


def content() -> dict[str, Any]:
    """The parts of an ``e5.json`` that the page reads."""
    return {
        "header": {
            "policies": ["fixed", "learned"],
            "seeds": 20,
            "replicas": 12,
            "kernels": ["a", "b"],
            "horizon_s": 600.0,
            "command": "selvage e5 --out DIR",
            "suite_sha256": "5" * 64,
            "contract_sha256": "c" * 64,
            "scenarios": [{"group": "silent_numeric"}, {"group": "control"}],
        },
        "groups": {
            "silent_numeric": {
                "fixed": dict.fromkeys(COLUMNS, UNKNOWN),
                "learned": dict.fromkeys(COLUMNS, LEAF),
            }
        },
        "front": [
            {
                "policy": "fixed",
                "setting": "",
                "on_front": True,
                "false_switches": [0.0, 0.0, None],
                "mttr_s": [590.0, 600.0, 600.0],
            }
        ],
    }


def test_table_has_a_row_per_policy_with_limits() -> None:
    """Every policy has its row; an unknown value is a dash, never a zero."""
    text = section(content())
    assert "| learned | 50.00 % (25.00 % to 75.00 %)" in text
    assert "| fixed | – (not applicable)" in text
    assert "1 scenarios, 20 paired seeds" in text
    assert "| false switches per slice-month |" in text


def test_a_run_without_the_learned_policy_is_refused() -> None:
    """The page needs the learned policy, so a run without it does not fill it."""
    known = content()
    del known["groups"]["silent_numeric"]["learned"]
    with pytest.raises(DocumentError, match="make readme"):
        section(known)


def test_filling_twice_changes_nothing_more() -> None:
    """Filling is idempotent and leaves the rest of the page alone."""
    page = f"above\n<!-- begin {MARK} -->\nold\n<!-- end {MARK} -->\nbelow\n"
    once = filled(page, MARK, section(content()), PAGE)
    assert once.startswith("above\n")
    assert once.endswith("\nbelow\n")
    assert "old" not in once
    assert filled(once, MARK, section(content()), PAGE) == once


def test_plot_stands_alone() -> None:
    """The image needs no page around it, and two runs give the same file."""
    svg = plot(content())
    assert svg.startswith("<svg")
    assert "currentColor" not in svg
    assert svg == plot(content())
