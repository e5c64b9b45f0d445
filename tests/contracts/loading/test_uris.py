"""URIs in documents: where they lead, and what is pinned."""

from __future__ import annotations

from pathlib import Path

import pytest

from contracts.errors import DocumentError
from contracts.loading.files import sha256_of
from contracts.loading.uris import read_pinned, resolve_uri
from tests.support.fleets.synthetic import write_world


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """A folder with synthetic profiles, contract and scenario."""
    write_world(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "uri",
    ["package:contracts", "package:contracts/../../etc/passwd", "package:no_such_package/a", "https://x/y"],
)
def test_uris_that_break_the_rules_are_refused(uri: str) -> None:
    """Nothing is fetched, and package data stays inside the package."""
    with pytest.raises(DocumentError):
        resolve_uri(uri, "doc.yaml")


def test_uris_are_relative_to_their_document(tmp_path: Path) -> None:
    """A plain URI lies beside the document; file:// and absolute paths are themselves."""
    assert resolve_uri("a/b.npz", tmp_path / "doc.yaml") == tmp_path / "a" / "b.npz"
    assert resolve_uri("/x/y", tmp_path / "doc.yaml") == Path("/x/y")
    assert resolve_uri("file:///x/y%20z", tmp_path / "doc.yaml") == Path("/x/y z")


def test_pinned_files_must_match(world: Path) -> None:
    """A file with another content than the document pins is refused with both hashes."""
    from contracts.documents import FileRef

    good = FileRef(uri="bf16.npz", sha256=sha256_of(world / "bf16.npz"))
    assert read_pinned(good, world / "bf16.yaml") == (world / "bf16.npz").read_bytes()
    with pytest.raises(DocumentError, match="pins another content"):
        read_pinned(FileRef(uri="bf16.npz", sha256="0" * 64), world / "bf16.yaml")
    with pytest.raises(DocumentError, match="readable file"):
        read_pinned(FileRef(uri="gone.npz", sha256="0" * 64), world / "bf16.yaml")


def test_a_name_in_another_encoding_is_reported_as_such(tmp_path: Path) -> None:
    """Bytes of a name that are not UTF-8 are not reported as control characters."""
    with pytest.raises(DocumentError, match=r"a URI in UTF-8, got 'caf\\udce9\.yaml'; rename it"):
        resolve_uri("caf\udce9.yaml", tmp_path / "doc.yaml")
    with pytest.raises(DocumentError, match="a URI without control characters"):
        resolve_uri("caf\x07.yaml", tmp_path / "doc.yaml")
