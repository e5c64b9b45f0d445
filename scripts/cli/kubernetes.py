"""``selvage kubernetes``: the definitions of our resources, the operator, and what it says."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from contracts.errors import MissingPartError
from k8s.resources.manifests import manifest_files, write_manifests

app = typer.Typer(no_args_is_help=True, help="Custom resources and operator for Kubernetes.")


@app.callback()
def kubernetes() -> None:
    """Custom resources and operator for Kubernetes."""


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


_NAMESPACE = typer.Option("--namespace", envvar="SELVAGE_NAMESPACE", help="Namespace of the resources.")


@app.command()
def operator(
    namespace: Annotated[str, _NAMESPACE] = "default",
    shed_service: Annotated[
        str, typer.Option("--shed-service", help="SERVICE:PORT that answers 429, for what is shed.")
    ] = "selvage-refuse:8080",
    metrics_port: Annotated[int, typer.Option("--metrics-port", help="0: no metrics.")] = 9464,
    health_port: Annotated[int, typer.Option("--health-port", help="0: no /healthz.")] = 8081,
    advise: Annotated[
        bool,
        typer.Option("--advise", help="Label pods with their contract's health, so that others act on it."),
    ] = False,
) -> None:
    """Run the operator of one namespace until a signal ends it; routes stay as they are then."""
    try:
        from k8s.process.serve import Settings, serve
        from k8s.routes.rules import Backend
    except ModuleNotFoundError as error:
        raise MissingPartError(f"{error.name} is not installed; pip install 'selvage-fleet[k8s]'") from None
    name, _, port = shed_service.partition(":")
    if not name or not port.isdecimal():
        raise typer.BadParameter(f"expected SERVICE:PORT, got {shed_service!r}", param_hint="--shed-service")
    settings = Settings(
        namespace=namespace,
        identity=os.environ.get("POD_NAME", f"{socket.gethostname()}-{os.getpid()}"),
        shed=Backend(name=name, port=int(port)),
        metrics_port=metrics_port or None,
        advises=advise,
        health_port=health_port or None,
    )
    serve(settings)


@app.command()
def status(namespace: Annotated[str, _NAMESPACE] = "default") -> None:
    """Say of every policy who drives, where each slice goes, and which conditions want attention."""
    try:
        from k8s.process.status import status_lines
    except ModuleNotFoundError as error:
        raise MissingPartError(f"{error.name} is not installed; pip install 'selvage-fleet[k8s]'") from None
    for line in status_lines(namespace):
        typer.echo(line)


_POLICY = typer.Argument(help="RoutePolicy.")
_FOR = typer.Option("--for", help="How long, as 30m or 2h; it ends by itself.")
_REASON = typer.Option("--reason", help="Who does it and why; it stands in the resource.")


@app.command()
def freeze(
    policy: Annotated[str, _POLICY],
    lasts: Annotated[str, _FOR],
    reason: Annotated[str, _REASON],
    namespace: Annotated[str, _NAMESPACE] = "default",
) -> None:
    """Break-glass: nobody moves the weights of POLICY for so long. Hard clauses still warn."""
    _hold(policy, namespace, lasts, reason, ())


@app.command()
def pin(
    policy: Annotated[str, _POLICY],
    rows: Annotated[list[str], typer.Argument(help="SLICE=KERNEL or SLICE=KERNEL:0.8,KERNEL:0.2.")],
    lasts: Annotated[str, _FOR],
    reason: Annotated[str, _REASON],
    namespace: Annotated[str, _NAMESPACE] = "default",
) -> None:
    """Break-glass: put these rows in force and hold them for so long. Hard clauses still warn."""
    _hold(policy, namespace, lasts, reason, rows)


@app.command()
def unfreeze(policy: Annotated[str, _POLICY], namespace: Annotated[str, _NAMESPACE] = "default") -> None:
    """End a freeze or a pin before its time: the policy drives again."""
    _release(policy, namespace, pinned=False)


@app.command()
def unpin(policy: Annotated[str, _POLICY], namespace: Annotated[str, _NAMESPACE] = "default") -> None:
    """End a pin before its time: the policy drives again."""
    _release(policy, namespace, pinned=True)


def _hold(policy: str, namespace: str, lasts: str, reason: str, rows: Sequence[str]) -> None:
    glass = _break_glass()
    typer.echo(glass.freeze(glass.PolicyName(namespace=namespace, name=policy), lasts, reason, rows))


def _release(policy: str, namespace: str, *, pinned: bool) -> None:
    glass = _break_glass()
    typer.echo(glass.unfreeze(glass.PolicyName(namespace=namespace, name=policy), pinned))


def _break_glass() -> Any:
    """The module, where its libraries are installed."""
    try:
        from k8s.process import break_glass
    except ModuleNotFoundError as error:
        raise MissingPartError(f"{error.name} is not installed; pip install 'selvage-fleet[k8s]'") from None
    return break_glass
