"""``selvage oci``: artefacts of registries, fetched by digest."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from scripts.cli.registries import AUTH_FILE, REGISTRY, pulled, registry_access

app = typer.Typer(no_args_is_help=True, help="Artefacts of OCI registries.")


@app.callback()
def oci() -> None:
    """Artefacts of OCI registries."""


@app.command()
def pull(
    uri: Annotated[str, typer.Argument(help="oci://REGISTRY/REPOSITORY@sha256:DIGEST, and #FILE.")],
    registry: REGISTRY = None,
    registry_auth_file: AUTH_FILE = None,
    ca_file: Annotated[Path | None, typer.Option(help="Certificates of a private authority, PEM.")] = None,
) -> None:
    """Fetch an artefact, so that documents may name it, and print the path of the file that URI means.

    It is kept by its digest in the folder of SELVAGE_OCI_STORE, or in the user's cache, and fetched once.
    """
    access = registry_access(registry or (), registry_auth_file, ca_file)
    typer.echo(str(pulled(uri, access, "URI")))
