"""OCI artefacts as URIs: ``oci://REGISTRY/REPOSITORY@sha256:DIGEST``, ``#FILE`` for another than its first.

Here is what needs no network: the parts of a URI, what a manifest lists, and the files of artefacts that were
fetched before. The digest names the manifest, the manifest names each file by its own digest, and all of them
are compared whenever a document refers to them. ``live.artefacts`` fetches.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

from contracts.errors import DocumentError, Problem, refusal
from contracts.loading.untrusted import MALFORMED, json_of
from contracts.regular_files import ARCHIVE_BYTES, hash_regular, read_regular

OCI_PREFIX = "oci://"
#: The one kind of manifest that is read: no index of platforms, no image of Docker's.
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
#: Annotation of a layer with the name of its file, as ``oras push`` writes it.
TITLE = "org.opencontainers.image.title"
_UNPACK = "io.deis.oras.content.unpack"
#: Most bytes of a manifest, and files of an artefact.
MANIFEST_BYTES, MOST_FILES = 4 * 2**20, 256
#: Folder of artefacts that were fetched.
STORE_VARIABLE = "SELVAGE_OCI_STORE"
MANIFEST_FILE, FILES = "manifest.json", "files"
_URI = re.compile(
    r"oci://(?P<registry>(?:[A-Za-z0-9.-]+|\[[0-9a-fA-F:]+\])(?::[0-9]{1,5})?)/"
    r"(?P<repository>[a-z0-9]+(?:[._/-]+[a-z0-9]+)*)"
    r"@sha256:(?P<digest>[0-9a-f]{64})(?:#(?P<file>.+))?"
)
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]{0,99}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class MissingArtefactError(DocumentError):
    """An artefact that was not fetched. uri: of it."""

    def __init__(self, uri: OciUri, document_file: Path | str) -> None:
        self.uri = uri
        hint = f"selvage oci pull {uri.artefact}"
        super().__init__([Problem(str(document_file), 0, "", "an artefact that was fetched", str(uri), hint)])


@dataclass(frozen=True, slots=True, kw_only=True)
class OciUri:
    """One artefact in a registry, and a file of it."""

    registry: str
    """``HOST`` or ``HOST:PORT``."""
    repository: str
    digest: str
    """Of the manifest, 64 hex digits."""
    file: str = ""
    """Its name; "": the first one."""

    @property
    def artefact(self) -> str:
        """The URI without a file."""
        return f"{OCI_PREFIX}{self.registry}/{self.repository}@sha256:{self.digest}"

    def __str__(self) -> str:
        """As it is written."""
        return f"{self.artefact}#{self.file}" if self.file else self.artefact


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One file of an artefact. digest: sha256, 64 hex digits."""

    name: str
    digest: str
    size: int
    """Bytes."""


def parse_oci(uri: str, document_file: Path | str) -> OciUri:
    """The parts of ``uri``; DocumentError for one without a digest: a tag may name anything tomorrow."""
    found = _URI.fullmatch(uri)
    file = None if found is None else found["file"]
    if found is not None and (file is None or _is_name(file)):
        parts = found.groupdict()
        return OciUri(**{key: parts[key] or "" for key in ("registry", "repository", "digest", "file")})
    hint = "name the digest of its manifest: oras resolve REGISTRY/REPOSITORY:TAG prints it"
    expected = "oci://REGISTRY/REPOSITORY@sha256:DIGEST or the same with #FILE"
    raise refusal(document_file, expected, f"{uri!r:.200}", hint)


def parse_manifest(content: bytes, place: str) -> tuple[Layer, ...]:
    """Files that a manifest lists, the first of them the one that its URI means; DocumentError for another.

    ``place``: what messages call it.
    """
    try:
        found = json_of(content)
        kind, version = found.get("mediaType", MANIFEST_TYPE), found.get("schemaVersion")
        if kind != MANIFEST_TYPE or version != 2:
            hint = "push it as one artefact, without platforms: oras push"
            told = f"{kind!r:.100} of schemaVersion {version!r:.20}"
            raise refusal(place, f"a manifest of {MANIFEST_TYPE}, schemaVersion 2", told, hint)
        layers = found["layers"]
        if not isinstance(layers, list) or not 1 <= len(layers) <= MOST_FILES:
            told = f"{len(layers)} layers"
            raise refusal(place, f"1 to {MOST_FILES} layers", told, "push its files: oras push")
        files = tuple(_layer(one, place) for one in layers)
    except DocumentError:
        raise
    except MALFORMED as error:
        told = f"{type(error).__name__}: {error}"[:200]
        raise refusal(place, "the manifest of an artefact", told, "push it again: oras push") from None
    _check_names([one.name for one in files], place)
    return files


def store_folder() -> Path:
    """Where fetched artefacts lie: what ``SELVAGE_OCI_STORE`` names, else the user's cache."""
    chosen = os.environ.get(STORE_VARIABLE)
    user = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(chosen) if chosen else user / "selvage" / "oci"


def stored_file(uri: OciUri, document_file: Path | str) -> Path:
    """The file that ``uri`` means; MissingArtefactError where it was not fetched, DocumentError where it is
    not what its digest says.
    """
    folder = store_folder() / uri.digest
    if not (folder / MANIFEST_FILE).is_file():
        raise MissingArtefactError(uri, document_file)
    content = read_regular(folder / MANIFEST_FILE, MANIFEST_BYTES)
    if hashlib.sha256(content).hexdigest() != uri.digest:
        raise _changed(folder, folder / MANIFEST_FILE)
    layers = parse_manifest(content, str(uri))
    for layer in layers:
        _check_stored(folder, layer)
    names = [layer.name for layer in layers]
    wanted = uri.file or names[0]
    if wanted not in names:
        hint = "name one of its files after #"
        raise refusal(document_file, f"one of {', '.join(names)}"[:500], str(uri), hint)
    return folder / FILES / wanted


def _layer(found: Mapping[str, Any], place: str) -> Layer:
    annotations = found.get("annotations") or {}
    name, digest, size = annotations.get(TITLE), found["digest"], found["size"]
    if not isinstance(name, str) or not _is_name(name):
        hint = f"push files by relative names; oras push writes {TITLE}"
        raise refusal(place, "a relative name of each file", f"{name!r:.100}", hint)
    if annotations.get(_UNPACK) == "true":
        raise refusal(place, "files", f"{name}, a folder in an archive", "push the files, not their folder")
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise refusal(place, f"sha256 of {name}", f"{digest!r:.100}", "push it with sha256 digests")
    if type(size) is not int or not 0 <= size <= ARCHIVE_BYTES:
        hint = "no file that is read is larger"
        raise refusal(place, f"0 to {ARCHIVE_BYTES} bytes of {name}", f"{size!r:.40}", hint)
    return Layer(name=name, digest=digest.removeprefix("sha256:"), size=size)


def _is_name(name: str) -> bool:
    """Whether ``name`` stays inside of the folder that it is written to, on every file system."""
    parts = name.split("/")
    return len(name) <= 255 and all(_PART.fullmatch(part) for part in parts)


def _check_names(names: list[str], place: str) -> None:
    """DocumentError where two files would lie in one place."""
    small = [name.lower() for name in names]
    folders = {str(parent) for name in small for parent in PurePosixPath(name).parents}
    if len(set(small)) < len(small) or folders & set(small):
        raise refusal(place, "each file in a place of its own", ", ".join(names)[:300], "rename them")


def _check_stored(folder: Path, layer: Layer) -> None:
    path = folder / FILES / layer.name
    try:
        found = path.stat()
        stamp = found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
        digest = _digest_at(str(path), stamp)
    except OSError:
        raise _changed(folder, path) from None
    if digest != layer.digest:
        raise _changed(folder, path)


@lru_cache(maxsize=4096)
def _digest_at(path: str, _stamp: tuple[int, ...]) -> str:
    """Of a file while its ``_stamp`` stays; OSError where it is no regular one."""
    return hash_regular(path)


def _changed(folder: Path, path: Path) -> DocumentError:
    expected = "what its digest says"
    return refusal(path, expected, "something else", f"remove {folder} and fetch it again")
