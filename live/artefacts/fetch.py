"""Artefacts fetched into the store, all or nothing; the manifest and every file are checked by digest."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import BinaryIO

import httpx

from contracts.errors import DocumentError, refusal
from contracts.loading.oci import (
    FILES,
    MANIFEST_BYTES,
    MANIFEST_FILE,
    MANIFEST_TYPE,
    Layer,
    OciUri,
    parse_manifest,
    store_folder,
)
from contracts.regular_files import ARCHIVE_BYTES
from live.artefacts.access import Credential, RegistryOrigins, allowed_registry, read_credentials
from live.artefacts.registry import Repository, registry_client

#: Most bytes of one artefact, and the time limit of one fetch in seconds.
MOST_BYTES, WITHIN_S = 2 * ARCHIVE_BYTES, 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryAccess:
    """The registries that may be contacted, and how.

    auth_file: in the format of ``docker login``; read at every fetch. ca_file: PEM file with certificate
    authorities that are trusted in addition to the system's.
    """

    registries: tuple[RegistryOrigins, ...] = ()
    auth_file: Path | None = None
    ca_file: Path | None = None
    within_s: float = WITHIN_S
    transport: httpx.AsyncBaseTransport | None = None


def fetch(uri: OciUri, access: RegistryAccess) -> Path:
    """The folder with the files of ``uri``; fetches them if they are not in the store yet.

    Raises DocumentError if they cannot be fetched, or do not match their digests. Nothing is kept in that
    case.
    """
    folder = store_folder() / uri.digest
    if (folder / MANIFEST_FILE).is_file():
        return folder / FILES
    registry = allowed_registry(uri.registry, access.registries)
    if registry is None:
        hint = f"where it may be asked: --registry https://{uri.registry}"
        raise _refusal(uri, "a registry that was named", uri.registry, hint)
    credential = _credential(uri, access)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        part = Path(mkdtemp(prefix=".part-", dir=folder.parent))
    except OSError as error:
        message = error.strerror or str(error)
        raise _refusal(uri, f"a folder to write to at {folder.parent}", message, "check its rights") from None
    try:
        _fetched(uri, access, registry, credential, part)
        _settle(part, folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return folder / FILES


def _credential(uri: OciUri, access: RegistryAccess) -> Credential:
    found = {} if access.auth_file is None else read_credentials(access.auth_file)
    return found.get(uri.registry.lower(), Credential())


def _fetched(
    uri: OciUri, access: RegistryAccess, registry: RegistryOrigins, credential: Credential, part: Path
) -> None:
    """Fetch into ``part``; every failure is raised as a DocumentError that names the artefact."""
    try:
        asyncio.run(_whole(uri, access, registry, credential, part))
    except TimeoutError:
        told = f"nothing whole within {access.within_s:g} s"
        raise _refusal(uri, f"an answer of {registry.origin}", told, "try again") from None
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        told = type(error).__name__  # the error's text may contain an address with a signature
        raise _refusal(uri, f"an answer of {registry.origin}", told, "is it reachable?") from None
    except OSError as error:
        told = error.strerror or type(error).__name__
        raise _refusal(
            uri, "room for its files and certificates that can be read", told, "check both"
        ) from None


async def _whole(
    uri: OciUri, access: RegistryAccess, registry: RegistryOrigins, credential: Credential, part: Path
) -> None:
    async with asyncio.timeout(access.within_s), registry_client(access.ca_file, access.transport) as client:
        repository = Repository(client, registry, credential, uri)
        manifest = Layer(name=MANIFEST_FILE, digest=uri.digest, size=MANIFEST_BYTES)
        path = part / MANIFEST_FILE
        await _file(repository, f"manifests/sha256:{uri.digest}", MANIFEST_TYPE, manifest, path)
        layers = parse_manifest(path.read_bytes(), str(uri))
        if (total := sum(one.size for one in layers)) > MOST_BYTES:
            raise _refusal(uri, f"at most {MOST_BYTES} bytes", str(total), "push it in parts")
        for layer in layers:
            target = part / FILES / layer.name
            target.parent.mkdir(parents=True, exist_ok=True)
            await _file(repository, f"blobs/sha256:{layer.digest}", "*/*", layer, target)


async def _file(repository: Repository, path: str, accept: str, layer: Layer, target: Path) -> None:
    """Fetch one file. Raises DocumentError if it is larger than ``layer`` states, or has another digest."""
    with target.open("wb") as stream:
        counted = _Counted(repository, layer, stream)
        await repository.get(path, accept, counted.take)
    counted.check()


class _Counted:
    """Writes the received bytes to a stream; refuses more bytes than the layer's stated size."""

    def __init__(self, repository: Repository, layer: Layer, stream: BinaryIO) -> None:
        self._repository, self._layer, self._stream = repository, layer, stream
        self._hash, self._bytes = hashlib.sha256(), 0

    def take(self, piece: bytes) -> None:
        """Write one piece of the answer."""
        self._bytes += len(piece)
        if self._bytes > self._layer.size:
            expected = f"at most {self._layer.size} bytes of {self._layer.name}"
            raise self._repository.refused(expected, "more", "push it again")
        self._hash.update(piece)
        self._stream.write(piece)

    def check(self) -> None:
        """Compare the digest of the written bytes with the layer's; raise DocumentError if they differ."""
        if (found := self._hash.hexdigest()) != self._layer.digest:
            expected = f"sha256 {self._layer.digest} of {self._layer.name}"
            message = f"sha256 {found} in {self._bytes} bytes"
            raise self._repository.refused(expected, message, "it was changed, or it did not arrive whole")


def _settle(part: Path, folder: Path) -> None:
    """Move the whole artefact to its place. Another process may have put the same artefact there
    meanwhile.
    """
    try:
        os.replace(part, folder)
    except OSError:
        if not (folder / MANIFEST_FILE).is_file():
            raise


def _refusal(uri: OciUri, expected: str, actual: str, next_step: str) -> DocumentError:
    return refusal(uri.artefact, expected, actual, next_step)
