"""Results on disk: folders are checked before work, files are complete or absent.

Tables that commands write into pages: between their marks, and nowhere else.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from contracts.errors import DocumentError
from contracts.loading.files import write_pinned
from scripts.output import fill, filled, ready_file, ready_folder, table, write_json, write_whole


def test_a_file_is_replaced_whole_and_nothing_else_is_left(tmp_path: Path) -> None:
    """Writing twice leaves the second content and no temporary file."""
    for text in ("one", "two"):
        write_whole(tmp_path / "a.json", text)
    assert (tmp_path / "a.json").read_text() == "two"
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_an_unwritable_place_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    """A folder in place of the file, or no folder around it, is bad input and leaves no temporary file."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("kept")
    for path in (tmp_path / "folder", tmp_path / "file" / "a.json", tmp_path / "none" / "a.json"):
        with pytest.raises(DocumentError, match="a writable file"):
            write_whole(path, "text")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]
    assert (tmp_path / "file").read_text() == "kept"


def test_a_link_stays_and_what_it_points_to_is_written(tmp_path: Path) -> None:
    """``latest.json`` still points to its run, existing or not; a loop is bad input."""
    (tmp_path / "runs").mkdir()
    for name in ("there", "new"):
        (tmp_path / name).symlink_to(tmp_path / "runs" / f"{name}.json")
    (tmp_path / "runs" / "there.json").write_text("old")
    for name in ("there", "new"):
        ready_file(tmp_path / name)
        write_whole(tmp_path / name, "text")
        assert (tmp_path / name).is_symlink()
        assert (tmp_path / "runs" / f"{name}.json").read_text() == "text"
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for put in (ready_file, lambda path: write_whole(path, "text")):
        with pytest.raises(DocumentError, match="a writable file"):
            put(tmp_path / "loop")
    assert (tmp_path / "loop").is_symlink()


@pytest.mark.parametrize("linked", [False, True])
def test_a_device_or_a_pipe_is_written_and_not_replaced(tmp_path: Path, linked: bool) -> None:
    """``--out /dev/stdout`` prints; a rename would put a file there, and for ``/dev/null`` too."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    place = tmp_path / "link" if linked else pipe
    if linked:
        place.symlink_to(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        ready_file(place)
        write_whole(place, "text")
        assert os.read(reader, 100) == b"text"
        with pytest.raises(OSError, match="a device or a pipe"):
            write_pinned(place, b"text")
    finally:
        os.close(reader)
    assert pipe.is_fifo()


def test_an_interrupted_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interruption between writing and renaming leaves the old content and no temporary file."""

    def interrupted(*paths: object) -> None:
        raise KeyboardInterrupt

    write_whole(tmp_path / "a.json", "old")
    monkeypatch.setattr("contracts.loading.files.os.replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_whole(tmp_path / "a.json", "new")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a.json", "old")]


def test_json_is_whole_too_and_holds_no_nan(tmp_path: Path) -> None:
    """Sorted keys, null for NaN, a line end; an invalid path is bad input."""
    write_json(tmp_path / "a.json", {"b": (math.nan, 1.0), "a": 1})
    assert (tmp_path / "a.json").read_text() == '{"a": 1, "b": [null, 1.0]}\n'
    with pytest.raises(DocumentError, match="a writable file"):
        write_json(tmp_path / "none" / "a.json", {})


def test_a_folder_is_made_or_refused(tmp_path: Path) -> None:
    """A missing folder is made and stays empty; one below a file is refused."""
    ready_folder(tmp_path / "a" / "b")
    assert list((tmp_path / "a" / "b").iterdir()) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(DocumentError, match="a folder that can be written"):
        ready_folder(tmp_path / "file" / "b")


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
    """A page with missing or doubled marks is not touched."""
    with pytest.raises(DocumentError, match="put them back"):
        filled(text, "a", "body", "page.md")


def test_columns_of_numbers_are_aligned_to_the_right() -> None:
    """The first column names the row, the others are numbers."""
    assert table(("x", "y"), [], numbers=True)[1] == "| --- | ---: |"
