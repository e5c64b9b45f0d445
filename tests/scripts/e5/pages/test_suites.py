"""The page of policies describes every suite correctly."""

from __future__ import annotations

import re

from contracts.loading.uris import resolve_uri
from scripts.e5.suite import load_suite
from tests.support.paths import DOCS

ROW = re.compile(r"^\| ((?:`[\w-]+\.yaml`(?:, )?)+) \| [^|]+ \| (\d+) \| (\d+) to (\d+) \|$", re.MULTILINE)


def test_the_page_counts_scenarios_and_seeds_as_the_suites_do() -> None:
    """Scenarios and seeds of a row are those of each of its suites."""
    rows = ROW.findall((DOCS / "policies-reference.md").read_text())
    assert len(rows) == 7
    for names, *told in rows:
        for name in re.findall(r"`([\w-]+\.yaml)`", names):
            spec = load_suite(resolve_uri(f"package:contracts/library/suites/{name}", "page"))[0].spec
            held = [len(spec.scenarios), spec.seed, spec.seed + spec.seeds - 1]
            assert [int(one) for one in told] == held, name
