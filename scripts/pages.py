"""Pages whose tables commands write: each stands between ``<!-- begin NAME -->`` and ``<!-- end NAME -->``.

What people wrote around the marks stays as it is, so a page and the run that it shows agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from contracts.errors import DocumentError, Problem
from scripts.output import write_whole


def fill(page: Path, tables: Mapping[str, list[str]]) -> None:
    """Put each table's lines between its marks; DocumentError where ``page`` has not one pair of them."""
    text = page.read_text(encoding="utf-8")
    for name, lines in tables.items():
        text = filled(text, name, "\n".join(lines), page.name)
    write_whole(page, text)


def filled(text: str, name: str, body: str, page: str) -> str:
    """``text`` with ``body`` between the marks of ``name``; ``page``: what an error calls it."""
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    if text.count(begin) != 1 or text.count(end) != 1:
        problem = Problem(page, 0, "", f"one {begin} and one {end}", "something else", "put them back")
        raise DocumentError([problem])
    before, rest = text.split(begin)
    return f"{before}{begin}\n{body}\n{end}{rest.split(end)[1]}"


def table(head: Iterable[str], rows: Iterable[Iterable[str]], *, numbers: bool = False) -> list[str]:
    """Lines of a Markdown table; ``numbers``: every column but the first is aligned to the right."""
    names = list(head)
    rule = ["---"] + ["---:" if numbers else "---"] * (len(names) - 1)
    lines = [" | ".join(cells) for cells in (names, rule, *(list(row) for row in rows))]
    return [f"| {line} |" for line in lines]
