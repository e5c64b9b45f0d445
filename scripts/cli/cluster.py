"""``selvage status --kubernetes`` and ``selvage freeze|pin|unfreeze|unpin``: what a running operator does.

Break-glass is a field of a RoutePolicy that expires.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from contracts.errors import MissingPartError
from scripts.cli.options import NAMESPACE

_POLICY = typer.Argument(help="Name of the RoutePolicy.")
_FOR = typer.Option("--for", help="Duration, as 30m or 2h; it ends by itself.")
_REASON = typer.Option("--reason", help="Person who freezes it, and the reason; stored in the resource.")

app = typer.Typer(no_args_is_help=True, help="A running operator.")


@app.command()
def status(
    kubernetes: Annotated[
        bool, typer.Option("--kubernetes", help="Of the RoutePolicies of a namespace.")
    ] = False,
    namespace: NAMESPACE = "default",
) -> None:
    """Show for every policy which one drives, where each slice goes, and which conditions need attention."""
    if not kubernetes:
        expected = "expected it; the fleet of this machine is shown by `selvage fleet status`"
        raise typer.BadParameter(expected, param_hint="--kubernetes")
    for line in _commands().status_lines(namespace):
        typer.echo(line)


@app.command()
def freeze(
    policy: Annotated[str, _POLICY],
    lasts: Annotated[str, _FOR],
    reason: Annotated[str, _REASON],
    namespace: NAMESPACE = "default",
) -> None:
    """Break-glass: freeze the weights of POLICY for so long. Hard clauses still warn."""
    _hold(policy, namespace, lasts, reason, ())


@app.command()
def pin(
    policy: Annotated[str, _POLICY],
    rows: Annotated[list[str], typer.Argument(help="SLICE=KERNEL or SLICE=KERNEL:0.8,KERNEL:0.2.")],
    lasts: Annotated[str, _FOR],
    reason: Annotated[str, _REASON],
    namespace: NAMESPACE = "default",
) -> None:
    """Break-glass: put these rows in force and hold them for so long. Hard clauses still warn."""
    _hold(policy, namespace, lasts, reason, rows)


@app.command()
def unfreeze(policy: Annotated[str, _POLICY], namespace: NAMESPACE = "default") -> None:
    """End a freeze or a pin before its time: the policy drives again."""
    _release(policy, namespace, pinned=False)


@app.command()
def unpin(policy: Annotated[str, _POLICY], namespace: NAMESPACE = "default") -> None:
    """End a pin before its time: the policy drives again."""
    _release(policy, namespace, pinned=True)


def _hold(policy: str, namespace: str, lasts: str, reason: str, rows: Sequence[str]) -> None:
    commands = _commands()
    typer.echo(commands.freeze(commands.PolicyName(namespace=namespace, name=policy), lasts, reason, rows))


def _release(policy: str, namespace: str, *, pinned: bool) -> None:
    commands = _commands()
    typer.echo(commands.unfreeze(commands.PolicyName(namespace=namespace, name=policy), pinned))


def _commands() -> Any:
    """The module, where its libraries are installed."""
    try:
        from k8s.process import commands
    except ModuleNotFoundError as error:
        raise MissingPartError(f"{error.name} is not installed; pip install 'selvage-fleet[k8s]'") from None
    return commands
