"""``selvage policy sign|verify``: who made a manifest or a certificate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from contracts.errors import DocumentError
from contracts.regular_files import TEXT_BYTES, read_regular
from policies.certify.signature import public_key, refuse_unsigned, signature_file, signature_of
from scripts.output import write_bytes

EXIT_FAILED = 1


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.command("sign")(sign)
    app.command("verify")(verify)


def sign(
    file: Annotated[Path, typer.Argument(help="Manifest (YAML) or certificate (JSON).")],
    key: Annotated[Path, typer.Option("--key", help="Private ed25519 key, PEM without a password.")],
) -> None:
    """Write FILE.sig, and print the public key as a RoutePolicy pins it (``signed_by``).

    A key is made by `openssl genpkey -algorithm ed25519 -out KEY`.
    """
    signature, public = signature_of(read_regular(file, TEXT_BYTES), key)
    write_bytes(signature_file(file), signature)
    typer.echo(public)


def verify(
    file: Annotated[Path, typer.Argument(help="Manifest (YAML) or certificate (JSON).")],
    key: Annotated[str, typer.Option("--key", help="Public key: 64 hex digits, or a PEM file.")],
) -> None:
    """Say whether FILE.sig is the key's signature of FILE as it reads now; exit code 1 where it is not."""
    public = public_key(key)
    read_regular(file, TEXT_BYTES)
    try:
        refuse_unsigned(file, public)
    except DocumentError as error:
        typer.echo(f"refused: {error}")
        raise typer.Exit(EXIT_FAILED) from None
    typer.echo(f"signed by {public}")
