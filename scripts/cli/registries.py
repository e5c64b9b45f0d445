"""Options that name registries, for every command that fetches artefacts."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from contracts.documents.envelope import FileRef
from contracts.errors import refusal
from contracts.loading.files import written
from contracts.loading.oci import OCI_PREFIX, parse_oci, stored_file
from contracts.loading.uris import check_pinned

if TYPE_CHECKING:
    from live.artefacts.fetch import RegistryAccess

REGISTRY = Annotated[
    list[str] | None,
    typer.Option(
        "--registry",
        help="Registry to fetch artefacts from, https://HOST, and after commas the origins of its token "
        "service and storage; once for each registry.",
    ),
]
AUTH_FILE = Annotated[
    Path | None,
    typer.Option(
        "--registry-auth-file",
        help="Their credentials, a config.json of docker login; none where it is absent.",
    ),
]


def registry_access(
    registries: Sequence[str], auth_file: Path | None, ca_file: Path | None
) -> RegistryAccess:
    """Access according to the options."""
    from live.artefacts.access import registry_of
    from live.artefacts.fetch import RegistryAccess

    try:
        found = tuple(registry_of(one) for one in registries)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--registry") from None
    there = auth_file if auth_file is not None and auth_file.exists() else None
    return RegistryAccess(registries=found, auth_file=there, ca_file=ca_file)


def pulled(uri: str, access: RegistryAccess, option: str) -> Path:
    """The file of the ``oci://`` URI of ``option``, fetched if it is missing."""
    from live.artefacts.fetch import fetch

    found = parse_oci(uri, option)
    fetch(found, access)
    return stored_file(found, option)


def pulled_or_path(given: str, access: RegistryAccess, option: str, sha256: str = "") -> Path:
    """The file of an ``oci://`` URI, or the path that is given.

    Raises DocumentError if its content does not match ``sha256`` (hex); "" pins nothing.
    """
    path = pulled(given, access, option) if given.startswith(OCI_PREFIX) else Path(given)
    if sha256:
        check_pinned(FileRef.model_construct(uri=str(path), sha256=sha256.lower()), f"{option}-sha256")
    return path


def copied(uri: str, access: RegistryAccess, folder: Path, option: str) -> None:
    """Copy every file of the artefact ``uri`` into ``folder``, except existing ones."""
    from live.artefacts.fetch import fetch

    named = parse_oci(uri, option)
    source = fetch(named, access)
    stored_file(named, option)  # each file matches its digest
    for file in (one for one in sorted(source.rglob("*")) if one.is_file()):
        target = folder / file.relative_to(source)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.exists():
                with file.open("rb") as source_file, written(target) as target_file:
                    shutil.copyfileobj(source_file, target_file)
        except OSError as error:
            message = error.strerror or str(error)
            raise refusal(target, "a file that can be written", message, "check its folder") from None
