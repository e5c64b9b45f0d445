"""URIs and manifests of OCI artefacts are read as written, and no name leads out of the store."""

from __future__ import annotations

import json
import re
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import DocumentError
from contracts.loading.oci import MANIFEST_TYPE, OciUri, parse_manifest, parse_oci
from contracts.regular_files import ARCHIVE_BYTES
from tests.support.servers.oci_registry import manifest_of

PARTS = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._+-]{0,20}", fullmatch=True)
URIS = st.builds(
    OciUri,
    registry=st.sampled_from(["ghcr.io", "registry.example:5000", "127.0.0.1:1", "[::1]:5000"]),
    repository=st.sampled_from(["kernels", "team/kernels", "a/b-c/d__e"]),
    digest=st.text("0123456789abcdef", min_size=64, max_size=64),
    file=st.one_of(st.just(""), st.lists(PARTS, min_size=1, max_size=3).map("/".join)),
)


@given(URIS)
def test_a_uri_reads_as_it_is_written(uri: OciUri) -> None:
    """Parsing the text of a URI gives the same URI."""
    assert parse_oci(str(uri), "test") == uri


@given(st.text(max_size=40))
def test_no_name_leads_out_of_its_folder(name: str) -> None:
    """Any file name in a manifest is refused or lies inside the artefact's own folder."""
    try:
        (layer,) = parse_manifest(manifest_of({name: b"x"}), "an artefact")
    except DocumentError:
        return
    path = PurePosixPath(layer.name)
    assert not path.is_absolute()
    assert not {"..", ".", ""} & set(layer.name.split("/"))
    assert Path("store", layer.name).resolve().is_relative_to(Path("store").resolve())


def changed(**changes: object) -> bytes:
    """A manifest of two files with ``changes``; those of ``layer`` apply to its first layer."""
    found = json.loads(manifest_of({"a.yaml": b"a", "b/c.npz": b"b"}))
    found["layers"][0] |= changes.pop("layer", {})
    return json.dumps(found | changes).encode()


TITLE = "org.opencontainers.image.title"
BROKEN: dict[str, tuple[bytes, str]] = {
    "an index": (changed(mediaType="application/vnd.oci.image.index.v1+json"), MANIFEST_TYPE),
    "an old manifest": (changed(schemaVersion=1), MANIFEST_TYPE),
    "no layers": (changed(layers=[]), "1 to 256 layers"),
    "no JSON": (b"<html>", "the manifest of an artefact"),
    "a list": (b"[]", "the manifest of an artefact"),
    "no title": (changed(layer={"annotations": {}}), "relative name"),
    "a folder": (
        changed(layer={"annotations": {TITLE: "a", "io.deis.oras.content.unpack": "true"}}),
        "in an archive",
    ),
    "another digest": (changed(layer={"digest": "sha512:" + "0" * 128}), "sha256 of a.yaml"),
    "too large": (changed(layer={"size": ARCHIVE_BYTES + 1}), "0 to"),
    "no size": (changed(layer={"size": True}), "0 to"),
    "one place twice": (changed(layer={"annotations": {TITLE: "B/C.npz"}}), "a place of its own"),
    "a file that is a folder": (changed(layer={"annotations": {TITLE: "b"}}), "a place of its own"),
}


@pytest.mark.parametrize("name", sorted(BROKEN))
def test_an_invalid_manifest_is_refused(name: str) -> None:
    """Each is refused with what was expected and the artefact's name."""
    content, said = BROKEN[name]
    with pytest.raises(DocumentError, match=re.escape(said)) as error:
        parse_manifest(content, "oci://registry.example/a")
    assert str(error.value).startswith("oci://registry.example/a")
