"""The page of results shows the results of runs and the shipped files."""

from __future__ import annotations

import re
from typing import Any

from scripts.e5.configurations import tuned
from scripts.e5.pages.policies import PAGE, label, run_tables, tuning_table
from tests.support.paths import DOCS

MEASURES = ("mttr_s", "quality_preservation", "false_switches_per_slice_month", "failed_ratio")


def leaf(mean: float) -> dict[str, float]:
    """A mean with limits a tenth below and above."""
    return {"mean": mean, "ci_low": mean - 0.1, "ci_high": mean + 0.1}


def compared() -> dict[str, Any]:
    """The parts of a comparison that the page reads."""
    known = {name: dict.fromkeys(MEASURES, leaf(0.5)) for name in ("learned", "sequential", tuned()[0])}
    known["sequential"] |= {"false_switches_per_slice_month": leaf(5546.42)}
    others = {name: dict.fromkeys(MEASURES, leaf(-0.25)) for name in known if name != "learned"}
    groups = {"silent_numeric": {"configurations": known}, "visible": {"configurations": known}}
    return {"candidate": "learned", "groups": groups, "differences": others}


def test_the_page_shows_the_tuned_settings_that_ship() -> None:
    """The table of tuned settings is made of the shipped files."""
    assert "\n".join(tuning_table()) in (DOCS / PAGE).read_text()


def test_a_run_fills_two_tables() -> None:
    """Every configuration has its row in the given order; differences have signs, and name no candidate."""
    found = run_tables(compared(), "e5", ["sequential", "learned", "unknown", tuned()[0]])
    assert [line.split(" | ")[0] for line in found["e5"][2:]] == [
        "| sequential",
        "| learned",
        "| burn-rate tuned",
    ]
    assert (
        "| sequential | 50.00 % | 0.5 (0.4 to 0.6) | 5,546.4 (5,546.3 to 5,546.5) | 0.5 | 5,546.4 |"
        in found["e5"]
    )
    assert found["e5-differences"][2].startswith(
        "| sequential | −0.2 (−0.3 to −0.1) | −25.000 (−35.000 to −15.000)"
    )
    assert len(found["e5-differences"]) == 4


def test_the_page_has_the_heads_that_a_run_writes() -> None:
    """Heads on the page are those of the command, so that filling it changes figures alone."""
    text = (DOCS / PAGE).read_text()
    for mark in ("e5", "heldout"):
        for name, lines in run_tables(compared(), mark, ["learned"]).items():
            shown = re.search(rf"<!-- begin {name} -->\n(.*?)\n(.*?)\n", text)
            assert shown is not None
            assert list(shown.groups()) == lines[:2]


def test_configurations_have_short_names() -> None:
    """Tuned settings are called by their policy; other settings stand as code."""
    assert label(tuned()[0]) == "burn-rate tuned"
    assert label("informed:program=0") == "`informed:program=0`"
    assert label("learned") == "learned"
