"""The page on the architecture lists the present packages."""

from __future__ import annotations

from scripts.rooms import PAGE, room_table
from tests.support.paths import DOCS


def test_every_room_has_a_line() -> None:
    """No package of a layer is without a docstring."""
    assert not [line for line in room_table() if line.endswith("|  |")]


def test_the_page_shows_the_rooms_that_there_are() -> None:
    """The table on the page is made of the packages; ``python -m scripts.rooms docs`` writes it."""
    assert "\n".join(room_table()) in (DOCS / PAGE).read_text()
