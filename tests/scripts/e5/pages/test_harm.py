"""The page of harm shows the results of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from contracts.errors import DocumentError
from scripts.e5.pages.harm import COMMON, PAGE, SHOWN, main, tables
from scripts.e5.scores.harm import HARM


def content(policies: tuple[str, ...]) -> dict[str, Any]:
    """A run of two scenarios; in the second the policy is 12.5 points worse."""
    bounds = {"calm": {"mean": 0.0, "limit": -0.1, "n": 3}, "crowd": {"mean": -12.5, "limit": -30.0, "n": 3}}
    scenarios = {name: dict.fromkeys(HARM, bound) for name, bound in bounds.items()}
    leaf = {"mean": 0.5, "ci_low": None, "ci_high": None, "n": 3}
    rows = {
        name: {policy: dict.fromkeys(SHOWN, leaf) for policy in ("fixed-bare", *policies)} for name in bounds
    }
    return {
        "harm": {"note": "none", "policies": {policy: {"scenarios": scenarios} for policy in policies}},
        "header": {
            "policies": ["fixed-bare", *policies],
            "suite": "e5-common",
            "scenarios": [{"name": name} for name in bounds],
        },
        "scenarios": rows,
    }


def test_the_worst_scenario_stands_first_with_its_limit() -> None:
    """Rows of useful tokens rise from the worst; goodput is in percent, in the order of the suite."""
    found = tables(content(("mover",)))
    assert found["useful-ratio"][2:] == [
        "| crowd | −12.50 (at least −30.00) |",
        "| calm | +0.00 (at least −0.10) |",
    ]
    assert found["goodput-ratio"][2] == "| calm | 50.0 | 50.0 |"


def test_a_run_without_a_comparison_is_refused() -> None:
    """Without a comparison there is no page."""
    with pytest.raises(DocumentError, match="fixed-bare"):
        tables(content(()))


def test_faults_that_many_share_have_tables_of_their_own(tmp_path: Path) -> None:
    """The tables of the stress part stay as they are."""
    marks = [f"<!-- begin {name} -->\nold\n<!-- end {name} -->" for name in ("useful-ratio", *SHOWN)]
    marks += [f"<!-- begin common-{name} -->\n<!-- end common-{name} -->" for name in COMMON]
    (tmp_path / PAGE).write_text("\n".join(marks))
    run = tmp_path / "e5.json"
    run.write_text(json.dumps(content(("mover",))))
    main(tmp_path, run, common=True)
    page = (tmp_path / PAGE).read_text()
    assert page.count("old") == len(SHOWN) + 1
    assert page.count("crowd") == len(COMMON)


def test_a_run_of_another_suite_fills_nothing(tmp_path: Path) -> None:
    """The page says which suites it shows."""
    (tmp_path / PAGE).write_text("as it was")
    run = tmp_path / "e5.json"
    run.write_text(json.dumps(content(("mover",))))
    with pytest.raises(DocumentError, match="expected e5-stress, got e5-common"):
        main(tmp_path, run)
    assert (tmp_path / PAGE).read_text() == "as it was"
