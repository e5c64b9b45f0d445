"""The pages list the settings that policies have, with their defaults."""

from __future__ import annotations

import re

from policies.registry import BASELINES, LEARNED
from tests.support.paths import DOCS

PAGES = ("policies-reference.md", "detection-reference.md")
ROW = re.compile(r"^\| `(\w+)` \| ([\d.]+) \| ", re.MULTILINE)


def listed() -> set[tuple[str, float]]:
    """Name and default of every setting in a table of the pages."""
    rows = [row for page in PAGES for row in ROW.findall((DOCS / page).read_text())]
    return {(name, float(default)) for name, default in rows}


def registered() -> set[tuple[str, float]]:
    """Name and default of every setting of the project's policies; the prose covers ``program=0`` of one."""
    kinds = (*BASELINES.values(), LEARNED)
    found = {(name, one.default) for kind in kinds for name, one in kind.parameters.items()}
    return found - {("program", 1.0)}


def test_the_pages_list_every_setting_with_its_default() -> None:
    """No setting is missing on the pages, none is listed that no policy has, and defaults are current."""
    assert listed() == registered()
