"""The README's result section comes completely from a run, and is reproducible."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from contracts.errors import DocumentError
from scripts.e5.pages.readme import (
    COLUMNS,
    MARK,
    PAGE,
    SHORT_MARK,
    SHORT_POLICIES,
    plot,
    section,
    short_section,
)
from scripts.output import filled
from tests.support.paths import ROOT

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


@pytest.mark.parametrize("written", [section, short_section])
def test_a_run_without_the_learned_policy_is_refused(written: Callable[[dict[str, Any]], str]) -> None:
    """The page needs the learned policy, so a run without it does not fill it."""
    known = content()
    del known["groups"]["silent_numeric"]["learned"]
    with pytest.raises(DocumentError, match="make readme"):
        written(known)


def test_the_short_table_has_means_of_four_policies() -> None:
    """From no move to a policy that is told, in that order, whatever else ran, and without limits."""
    known = content()
    rows = known["groups"]["silent_numeric"]
    rows |= dict.fromkeys(("informed", "hysteresis", "fixed-bare"), rows["learned"])
    lines = short_section(known).splitlines()
    assert lines[0] == "| policy | quality preserved | MTTR, s | false switches per slice-month |"
    assert [line.split(" | ")[0] for line in lines[2:]] == [f"| {name}" for name in SHORT_POLICIES]
    assert lines[4] == "| learned | 50.00 % | 0.5 | 0.5 |"


def test_the_short_table_on_the_page_agrees_with_the_long_one() -> None:
    """One run writes both, so a row of the short table has the means of the same row below."""
    tables = dict(re.findall(r"<!-- begin (\S+) -->\n(.*?)<!-- end", (ROOT / PAGE).read_text(), re.DOTALL))
    whole = {cells[0]: cells for cells in map(cells_of, tables[MARK].splitlines()) if len(cells) > 1}
    short = [cells_of(line) for line in tables[SHORT_MARK].splitlines()]
    places = [whole["policy"].index(head) for head in short[0]]
    assert [cells[0] for cells in short[2:]] == list(SHORT_POLICIES)
    for cells in short[2:]:
        assert cells == [whole[cells[0]][place].split(" (")[0] for place in places]


def cells_of(line: str) -> list[str]:
    """Cells of a line of a Markdown table."""
    return line.removeprefix("| ").removesuffix(" |").split(" | ")


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
