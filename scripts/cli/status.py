"""``selvage status --kubernetes``: which policy drives where, and what needs attention."""

from __future__ import annotations

from typing import Annotated

import typer

from contracts.errors import MissingPartError

app = typer.Typer(help="What a running operator says of its policies.")


@app.command()
def status(
    kubernetes: Annotated[
        bool, typer.Option("--kubernetes", help="Of the RoutePolicies of a namespace.")
    ] = False,
    namespace: Annotated[
        str, typer.Option("--namespace", envvar="SELVAGE_NAMESPACE", help="Namespace of the resources.")
    ] = "default",
) -> None:
    """Show for every policy which one drives, where each slice goes, and which conditions need attention."""
    if not kubernetes:
        expected = "expected it; the fleet of this machine is shown by `selvage fleet status`"
        raise typer.BadParameter(expected, param_hint="--kubernetes")
    try:
        from k8s.process.commands import status_lines
    except ModuleNotFoundError as error:
        raise MissingPartError(f"{error.name} is not installed; pip install 'selvage-fleet[k8s]'") from None
    for line in status_lines(namespace):
        typer.echo(line)
