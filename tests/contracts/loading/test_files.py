"""Files are written whole or not at all, and JSON has one canonical form."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path

import pytest

from contracts.loading.files import (
    canonical_sha256,
    canonical_text,
    json_text,
    plain,
    sha256_of,
    write_json,
    write_pinned,
)


@pytest.mark.parametrize("durable", [False, True])
def test_a_pinned_file_is_whole_and_identified_by_its_content(tmp_path: Path, durable: bool) -> None:
    """The returned hash is the file's, an older file is replaced, and no other file is left."""
    target = tmp_path / "reference.npz"
    target.write_bytes(b"older and longer than the new one")
    assert write_pinned(target, b"new", durable=durable) == hashlib.sha256(b"new").hexdigest()
    assert target.read_bytes() == b"new"
    assert sha256_of(target) == hashlib.sha256(b"new").hexdigest()
    assert list(tmp_path.iterdir()) == [target]


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    """No folder is created for a file that cannot be written."""
    with pytest.raises(FileNotFoundError):
        write_pinned(tmp_path / "absent" / "file", b"new")
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interruption between writing and renaming leaves the old content and no temporary file."""

    def interrupted(*paths: object) -> None:
        raise KeyboardInterrupt

    write_pinned(tmp_path / "a.json", b"old")
    monkeypatch.setattr("contracts.loading.files.os.replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_pinned(tmp_path / "a.json", b"new")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("a.json", b"old")]


def test_json_has_null_where_a_number_is_not_finite(tmp_path: Path) -> None:
    """NaN and infinities become null at any depth, tuples lists, keys sorted; nothing else changes."""
    value = {"b": (1.5, math.nan, [math.inf]), "a": {"c": -math.inf, "d": None, "e": True, "f": 2}}
    wanted = {"b": [1.5, None, [None]], "a": {"c": None, "d": None, "e": True, "f": 2}}
    assert plain(value) == wanted
    sha256 = write_json(tmp_path / "a.json", value, indent=1)
    text = (tmp_path / "a.json").read_text()
    assert text == json.dumps(wanted, sort_keys=True, indent=1) + "\n" == json_text(value, indent=1) + "\n"
    assert sha256 == sha256_of(tmp_path / "a.json")


def test_canonical_form_is_one_for_every_order_of_keys() -> None:
    """Equal values hash the same in any order of keys; a number that JSON lacks is refused."""
    assert canonical_text({"b": [1, 2.5], "a": "x"}) == '{"a":"x","b":[1,2.5]}'
    assert canonical_sha256({"b": 1, "a": 2}) == canonical_sha256({"a": 2, "b": 1})
    assert canonical_sha256([]) == hashlib.sha256(b"[]").hexdigest()
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_sha256({"a": math.nan})
