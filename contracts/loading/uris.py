"""URIs in documents: paths relative to the document's file or absolute, ``file://``, ``package:``,
``oci://``.

Nothing is downloaded here: verdicts rest on local files, pinned by sha256. An ``oci://`` URI names a file of
an artefact that was fetched before (``selvage oci pull``).
"""

from __future__ import annotations

import hashlib
from importlib.resources import as_file, files
from pathlib import Path, PurePosixPath
from urllib.parse import SplitResult, unquote, urlsplit

from contracts.documents import FileRef
from contracts.errors import DocumentError, refusal
from contracts.loading.oci import OCI_PREFIX, parse_oci, stored_file
from contracts.regular_files import ARCHIVE_BYTES, hash_regular, read_regular

PACKAGE_PREFIX = "package:"
#: Largest pinned file that is read into memory.
PINNED_BYTES = ARCHIVE_BYTES
#: This project's own packages, in case another distribution has a package of the same name.
_OWN = {"contracts": __name__.removesuffix(".loading.uris")}


class OtherContentError(DocumentError):
    """A pinned file exists, but its sha256 differs."""


def resolve_uri(uri: str, document_file: Path | str) -> Path:
    """The path that ``uri`` in ``document_file`` refers to; it need not exist.

    Raises DocumentError for a URI of another kind, MissingArtefactError for an ``oci://`` URI not yet
    fetched.
    """
    if not uri.isprintable():
        raise _unprintable(document_file, "a URI", uri)
    if uri.startswith(PACKAGE_PREFIX):
        return _shipped(uri, document_file)
    if uri.startswith(OCI_PREFIX):
        return stored_file(parse_oci(uri, document_file), document_file)
    try:
        parts = urlsplit(uri)
    except ValueError as error:
        raise refusal(document_file, "a path or a URI", f"{uri!r:.80}: {error}", "correct it") from None
    if parts.scheme == "file":
        return _local(parts, uri, document_file)
    if parts.scheme and "://" in uri:
        raise refusal(document_file, "a file", uri, "download it and name the file")
    return Path(document_file).parent / uri


def read_pinned(ref: FileRef, document_file: Path | str, most_bytes: int = PINNED_BYTES) -> bytes:
    """Content of ``ref``, at most ``most_bytes``; refused unless its sha256 is the pinned one."""
    path = resolve_uri(ref.uri, document_file)
    content = read_regular(path, most_bytes, f"{document_file} refers to it")
    _check_pin(ref, hashlib.sha256(content).hexdigest(), path, document_file)
    return content


def check_pinned(ref: FileRef, document_file: Path | str) -> None:
    """DocumentError unless the file of ``ref`` has the pinned sha256; it is hashed without being loaded."""
    path = resolve_uri(ref.uri, document_file)
    try:
        found = hash_regular(path)
    except OSError as error:
        reason = error.strerror or str(error)
        raise refusal(path, "a readable file", reason, f"{document_file} refers to it") from None
    _check_pin(ref, found, path, document_file)


def _check_pin(ref: FileRef, found: str, path: Path, document_file: Path | str) -> None:
    if found != ref.sha256:
        hint = f"{document_file} pins another content; restore the file or measure again"
        refused = refusal(path, f"sha256 {ref.sha256}", f"sha256 {found}", hint)
        raise OtherContentError(list(refused.problems))


def _local(parts: SplitResult, uri: str, document_file: Path | str) -> Path:
    """The path of a ``file:`` URI; DocumentError for one of another host."""
    path = unquote(parts.path)
    if parts.netloc not in ("", "localhost"):
        raise refusal(document_file, "a file of this host", uri, "write file:///path")
    if not path.isprintable():
        raise _unprintable(document_file, "a path", path)
    return Path(path)


def _unprintable(document_file: Path | str, what: str, text: str) -> DocumentError:
    """The error for control characters, or for bytes that are not in the system's encoding of file names."""
    foreign = any("\ud800" <= c <= "\udfff" for c in text)
    expected = f"{what} in UTF-8" if foreign else f"{what} without control characters"
    hint = "rename it, or set LC_ALL=C.UTF-8 or PYTHONUTF8=1" if foreign else "remove them"
    return refusal(document_file, expected, ascii(text)[:80], hint)


def _shipped(uri: str, document_file: Path | str) -> Path:
    inner = PurePosixPath(uri.removeprefix(PACKAGE_PREFIX))
    if inner.is_absolute() or ".." in inner.parts or len(inner.parts) < 2:
        raise refusal(
            document_file, "package:FOLDER/...", uri, "e.g. package:contracts/library/serving-pool.yaml"
        )
    try:
        resource = files(_OWN.get(inner.parts[0], inner.parts[0]))
    except (ModuleNotFoundError, TypeError, ValueError):
        raise refusal(document_file, "an installed package", inner.parts[0], "check the spelling") from None
    with as_file(resource.joinpath(*inner.parts[1:])) as path:
        return path
