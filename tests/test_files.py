"""Files that documents pin."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from contracts.files import write_pinned


def test_a_pinned_file_is_whole_and_known_by_its_content(tmp_path: Path) -> None:
    """The returned hash is that of the file, an older file is replaced, and nothing else stays behind."""
    target = tmp_path / "reference.npz"
    target.write_bytes(b"older and longer than the new one")
    assert write_pinned(target, b"new") == hashlib.sha256(b"new").hexdigest()
    assert target.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [target]


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    """Nothing is created on the way to a file that cannot be written."""
    with pytest.raises(FileNotFoundError):
        write_pinned(tmp_path / "absent" / "file", b"new")
    assert list(tmp_path.iterdir()) == []
