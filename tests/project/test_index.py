"""`docs/index.md` is complete: it lists every page, kind and variable."""

from __future__ import annotations

import re

from contracts.documents import KIND_NAMES
from tests.support.paths import ROOT, SHIPPED_SOURCES

INDEX = (ROOT / "docs" / "index.md").read_text()
#: Modules in which a command reads the environment, directly or through its option.
READS = re.compile(
    r"""(?:environ\.get\(|environ\[|envvar=|^[A-Z_]*VARIABLE = )["'](SELVAGE_\w+)["']""", re.MULTILINE
)
#: Set by our processes for their child processes.
HANDED_OVER = {"SELVAGE_PARENT", "SELVAGE_REPLY_FD"}


def test_the_index_has_every_page() -> None:
    """Each page of `docs` is linked."""
    pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {"index.md"}
    assert not {page for page in pages if f"({page})" not in INDEX}


def test_no_page_stands_twice() -> None:
    """A list of pages names each once."""
    listed = re.findall(r"^- \[[\w.-]+\]\(([\w.-]+)\):", INDEX, re.MULTILINE)
    assert len(listed) == len(set(listed))


def test_the_index_has_every_kind_of_document() -> None:
    """Each kind that can be loaded is in the table of documents."""
    assert not {kind for kind in KIND_NAMES if f"| `{kind}` |" not in INDEX}


def test_the_index_has_every_variable() -> None:
    """Each environment variable that a command reads is in the table, except those of child processes."""
    read = {name for path in SHIPPED_SOURCES for name in READS.findall(path.read_text())}
    assert read - HANDED_OVER
    assert not {name for name in read - HANDED_OVER if f"| `{name}` |" not in INDEX}
