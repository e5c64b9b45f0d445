"""``selvage kubernetes crds``: what a cluster must know before it takes our resources."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from k8s.resources.manifests import manifest_files, write_manifests

app = typer.Typer(no_args_is_help=True, help="Custom resources for Kubernetes.")


@app.callback()
def kubernetes() -> None:
    """Custom resources for Kubernetes."""


@app.command()
def crds(
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder to write to; without it they go to stdout.")
    ] = None,
) -> None:
    """Print the CustomResourceDefinitions, or write them with their kustomization.

    ``selvage kubernetes crds | kubectl apply --server-side -f -``
    """
    if out is not None:
        for path in write_manifests(out):
            typer.echo(str(path))
        return
    texts = [text for name, text in manifest_files().items() if name != "kustomization.yaml"]
    typer.echo("---\n".join(texts), nl=False)
