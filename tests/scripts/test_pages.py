"""Tables that commands write into pages: between their marks, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from contracts.errors import DocumentError
from scripts.pages import fill, filled, table


def test_only_what_stands_between_the_marks_changes(tmp_path: Path) -> None:
    """Filling one table leaves the other tables and the prose byte for byte as they were."""
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- begin one -->\nold\n<!-- end one -->\nb\n<!-- begin two -->\n<!-- end two -->\n")
    fill(page, {"one": table(("x", "y"), [("1", "2")])})
    assert page.read_text() == (
        "a\n<!-- begin one -->\n| x | y |\n| --- | --- |\n| 1 | 2 |\n<!-- end one -->\nb\n"
        "<!-- begin two -->\n<!-- end two -->\n"
    )


@pytest.mark.parametrize("text", ["no marks", "<!-- begin a -->", "<!-- begin a --><!-- end a -->" * 2])
def test_page_without_one_pair_of_marks_is_refused(text: str) -> None:
    """A page whose marks are missing or doubled is not touched."""
    with pytest.raises(DocumentError, match="put them back"):
        filled(text, "a", "body", "page.md")


def test_columns_of_numbers_are_aligned_to_the_right() -> None:
    """The first column names the row, the others are numbers."""
    assert table(("x", "y"), [], numbers=True)[1] == "| --- | ---: |"
