"""The study of short fleets writes the table that its page shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.output import table
from scripts.studies.worlds import short
from tests.support.paths import DOCS


def test_each_world_has_a_row_with_both_measures_by_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A policy that moves nothing differs by nothing, and the table goes between the page's marks."""
    for name, values in {"REPLICAS": (2,), "PROBES_PER_S": (0.3,), "PAUSES": ((6.0, 20.0),)}.items():
        monkeypatch.setattr(short, name, values)
    page = tmp_path / "page.md"
    page.write_text(f"<!-- begin {short.MARK} -->\nold\n<!-- end {short.MARK} -->")
    short.main("fixed-bare", 2, page)
    assert page.read_text().splitlines()[3] == "| 2 | 0.3 | 6 of 20 | +0.0, +0.0 | +0.0, +0.0 |"


def test_the_page_has_the_head_that_the_study_writes() -> None:
    """So filling it changes figures alone."""
    head = "\n".join(table(short.HEAD, [], numbers=True))
    assert f"<!-- begin {short.MARK} -->\n{head}" in (DOCS / "harm.md").read_text()
