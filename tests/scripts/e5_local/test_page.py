"""The table of a run of E5 on real servers on its page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from contracts.errors import DocumentError
from contracts.loading.files import json_text
from scripts.e5_drills.summary import HeaderFacts, summary
from scripts.e5_local.page import MARK, PAGE, live_table, main
from tests.support.fleets.local_suites import planned, played


def test_the_page_shows_the_run_that_was_measured_and_no_other(tmp_path: Path) -> None:
    """Counted results are in their policy's row, with machine and command; a simulated run is refused."""
    plan = planned(tmp_path)
    results = [played(one) for one in plan.episodes]
    content, _ = summary(plan, results, HeaderFacts(command="selvage e5 --target local"))
    run, page = tmp_path / "e5.json", tmp_path / PAGE
    run.write_text(json_text(content))
    page.write_text(f"before\n<!-- begin {MARK} -->\n<!-- end {MARK} -->\nafter\n")
    main(tmp_path, run)
    lines = page.read_text().splitlines()
    assert (lines[0], lines[-1]) == ("before", "after")
    assert "`selvage e5 --target local` on" in lines[2]
    (moved,) = [one.split(" | ") for one in lines if one.startswith("| sequential | silent")]
    (stayed,) = [one.split(" | ") for one in lines if one.startswith("| fixed | silent")]
    assert (moved[2:5], stayed[4]) == (["2", "10", "0 %"], "100 %")
    simulated = {**content, "header": {**content["header"], "target": "sim"}}
    broken: object
    for broken in (simulated, {}, {"header": {"target": "local"}}, []):
        with pytest.raises(DocumentError, match=r"e5\.json"):
            live_table(json.loads(json_text(broken)), "e5.json")
