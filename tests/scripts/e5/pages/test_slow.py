"""The table of slow replicas and builds shows the results of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from contracts.errors import DocumentError
from scripts.e5.pages.slow import main, slow_table


def content(suite: str = "e5-slow") -> dict[str, Any]:
    """A run of one scenario, in which one of two policies has an MTTR."""
    found = {"mttr_s": {"mean": 31.25, "ci_low": 28.04, "ci_high": 1234.5, "n": 20}}
    none = {"mttr_s": {"mean": None, "ci_low": None, "ci_high": None, "n": 0}}
    return {
        "header": {"policies": ["fixed", "mover"], "suite": suite, "scenarios": [{"name": "one-of-four"}]},
        "scenarios": {"one-of-four": {"fixed": none, "mover": found}},
    }


def test_each_scenario_has_a_row_with_limits_per_policy() -> None:
    """A policy without an incident has a dash."""
    assert slow_table(content())[0] == "| MTTR, s | fixed | mover |"
    assert slow_table(content())[2:] == ["| one-of-four | – | 31.2 (28.0 to 1,234.5) |"]


def test_the_page_is_filled_by_the_run_of_its_suite_alone(tmp_path: Path) -> None:
    """A run of another suite is refused and leaves the page as it was."""
    page, run = tmp_path / "page.md", tmp_path / "e5.json"
    page.write_text("<!-- begin slow -->\nold\n<!-- end slow -->")
    run.write_text(json.dumps(content("e5")))
    with pytest.raises(DocumentError, match="expected e5-slow, got e5"):
        main(page, run)
    assert "old" in page.read_text()
    run.write_text(json.dumps(content()))
    main(page, run)
    assert "one-of-four" in page.read_text()
