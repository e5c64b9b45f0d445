"""``selvage doctor``: the report of ``scripts.setup.doctor`` on the terminal or as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from contracts.loading.files import json_text
from scripts.provenance import machine_facts
from scripts.setup.doctor import DoctorCheck, Status, examine

app = typer.Typer()

STYLES = {
    Status.OK: "green",
    Status.OPTIONAL: "dim",
    Status.MISSING: "red",
    Status.SHADOWED: "red",
    Status.NOTE: "yellow",
}


@app.command()
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    warm: Annotated[bool, typer.Option("--warm", help="Compile the simulator now, once.")] = False,
) -> None:
    """Report what is installed, shadowed or missing; exit 1 if the core cannot be relied on."""
    if warm:
        from scripts.setup.warm import warm as compile_all

        typer.echo(f"compiled: {', '.join(compile_all())}", err=True)
    checks = examine()
    if as_json:
        report = {"checks": [asdict(check) for check in checks], "machine": machine_facts()}
        typer.echo(json_text(report))
    else:
        show(checks)
    if any(check.status in (Status.MISSING, Status.SHADOWED) for check in checks):
        raise typer.Exit(1)


def show(checks: list[DoctorCheck]) -> None:
    """Table on the terminal, then the next steps."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("part", "state", "version", "what"):
        table.add_column(heading, overflow="fold")
    for check in checks:
        style = STYLES[check.status]
        what = "; ".join(text for text in (check.detail, shortened(check.where)) if text)
        table.add_row(check.name, f"[{style}]{check.status}[/{style}]", check.version, what)
    console = Console()
    console.print(table)
    for check in checks:
        if check.next_step:
            console.print(f"{check.name}: {check.next_step}", soft_wrap=True, markup=False)


def shortened(where: str) -> str:
    """Path from ``site-packages`` on; the whole path of anything elsewhere."""
    _, found, rest = where.rpartition("site-packages")
    return found + rest if found else where
