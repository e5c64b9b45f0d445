"""The table on what servers' answers cost compares two runs of the same faults."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from contracts.errors import DocumentError
from scripts.e5.pages.answers import MARK, MEASURES, TWENTY, WHOLE, answers_lines, main
from scripts.e5.pages.policies import PAGE
from tests.support.paths import DOCS


def run(contract: str, mean: float, *, seeds: int = 3, scenario: str = "three-bits") -> dict[str, Any]:
    """A run of one silent numeric fault and a control, under two policies and none."""
    leaf = {"mean": mean, "ci_low": mean - 1.0, "ci_high": mean + 1.0, "n": 3}
    policies = ["fixed-bare", "mover", *(["extra"] if contract == TWENTY else [])]
    return {
        "header": {
            "contract": contract,
            "policies": policies,
            "seed": 1,
            "seeds": seeds,
            "scenarios": [
                {"name": scenario, "group": "silent_numeric"},
                {"name": "quiet", "group": "control"},
            ],
        },
        "groups": {"silent_numeric": {name: dict.fromkeys(MEASURES, leaf) for name in policies}},
    }


def test_each_policy_of_both_runs_has_one_row() -> None:
    """Whole rows stand before 20 tokens; a policy of one run alone, and the one without moves, have none."""
    lines = answers_lines(run(WHOLE, 80.0), run(TWENTY, 70.0))
    assert lines[0] == "Silent numeric faults: 1 scenarios, 3 paired seeds."
    both = "80.0 (79.0 to 81.0) | 70.0 (69.0 to 71.0)"
    assert lines[4:] == [f"| mover | {both} | {both} |"]


@pytest.mark.parametrize("other", [{"seeds": 4}, {"scenario": "four-bits"}])
def test_runs_that_cannot_be_compared_are_refused(other: dict[str, Any]) -> None:
    """Other seeds or other faults make a difference that no answer made."""
    with pytest.raises(DocumentError, match="--whole"):
        answers_lines(run(WHOLE, 80.0, **other), run(TWENTY, 70.0))


def test_the_page_is_filled_by_one_run_of_each_contract(tmp_path: Path) -> None:
    """Runs in the wrong order are refused and leave the page as it was."""
    page = tmp_path / PAGE
    page.write_text(f"above\n<!-- begin {MARK} -->\nold\n<!-- end {MARK} -->\nbelow")
    twenty, whole = tmp_path / "twenty.json", tmp_path / "whole.json"
    twenty.write_text(json.dumps(run(TWENTY, 70.0)))
    whole.write_text(json.dumps(run(WHOLE, 80.0)))
    with pytest.raises(DocumentError, match=r"header\.contract"):
        main(tmp_path, whole, twenty)
    assert "old" in page.read_text()
    main(tmp_path, twenty, whole)
    assert page.read_text().startswith("above")
    assert page.read_text().endswith("below")
    assert "| mover |" in page.read_text()


def test_the_page_has_the_heads_that_the_command_writes() -> None:
    """So filling it changes figures alone."""
    heads = answers_lines(run(WHOLE, 80.0), run(TWENTY, 70.0))[2:4]
    assert "\n".join(heads) in (DOCS / PAGE).read_text().split(f"<!-- begin {MARK} -->")[1]
