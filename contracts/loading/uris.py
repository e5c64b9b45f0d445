"""URIs inside documents: relative to the document's file, absolute, ``file://`` or ``package:`` data.

Nothing is fetched: what a verdict rests on lies in files, pinned by sha256.
"""

from __future__ import annotations

import hashlib
from importlib.resources import as_file, files
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from contracts.documents import FileRef
from contracts.errors import DocumentError, Problem

PACKAGE_PREFIX = "package:"
#: Our own data, whatever else is called ``contracts`` on the path.
_OWN = {"contracts": __name__.removesuffix(".loading.uris")}


def resolve_uri(uri: str, document_file: Path | str) -> Path:
    """Path that ``uri``, found in ``document_file``, stands for. It need not exist."""
    if uri.startswith(PACKAGE_PREFIX):
        return _shipped(uri, document_file)
    parts = urlsplit(uri)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    if parts.scheme and "://" in uri:
        raise _refused(document_file, "a file", uri, "download it and name the file")
    return Path(document_file).parent / uri


def read_pinned(ref: FileRef, document_file: Path | str) -> bytes:
    """Content of ``ref``; refused unless its sha256 is the pinned one."""
    path = resolve_uri(ref.uri, document_file)
    try:
        content = path.read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise _refused(path, "a readable file", str(reason), f"{document_file} refers to it") from None
    found = hashlib.sha256(content).hexdigest()
    if found != ref.sha256:
        hint = f"{document_file} pins another content; restore the file or measure again"
        raise _refused(path, f"sha256 {ref.sha256}", f"sha256 {found}", hint)
    return content


def _shipped(uri: str, document_file: Path | str) -> Path:
    inner = PurePosixPath(uri.removeprefix(PACKAGE_PREFIX))
    if inner.is_absolute() or ".." in inner.parts or len(inner.parts) < 2:
        raise _refused(
            document_file, "package:FOLDER/...", uri, "e.g. package:contracts/library/serving-pool.yaml"
        )
    try:
        resource = files(_OWN.get(inner.parts[0], inner.parts[0]))
    except (ModuleNotFoundError, TypeError, ValueError):
        raise _refused(document_file, "an installed package", inner.parts[0], "check the spelling") from None
    with as_file(resource.joinpath(*inner.parts[1:])) as path:
        return path


def _refused(file: Path | str, expected: str, actual: str, next_step: str) -> DocumentError:
    return DocumentError([Problem(str(file), 0, "", expected, actual, next_step)])
