"""One policy against all others in a finished run of E5: better or not, dominated or not, how near the best.

    python -m scripts.e5.pages.policy_table OUT --suite SUITE --candidate learned [--json]

reads the measures of every episode from ``OUT/parts``; ``scripts.e5.scores.comparison`` says what counts.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from contracts.loading.files import json_text
from contracts.loading.shipped import SHIPPED_SUITE
from contracts.loading.uris import resolve_uri
from scripts.e5.scores.comparison import SHOWN, compare, load_run
from scripts.e5.suite import GROUP_LABELS


def main(
    out: Annotated[Path, typer.Argument(help="Folder of a run of selvage e5.")],
    suite: Annotated[str, typer.Option(help="Suite that was run.")] = SHIPPED_SUITE,
    candidate: Annotated[
        str, typer.Option(help="Configuration that is compared with all others.")
    ] = "learned",
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Compare one configuration with all others."""
    found = compare(load_run(out, resolve_uri(suite, "selvage e5")), candidate)
    if as_json:
        typer.echo(json_text(found, indent=1))
    else:
        _print(found)


def _print(found: dict[str, Any]) -> None:
    console = Console(width=180)
    minus = f"{found['candidate']} minus each configuration, {found['seeds']} seeds, 95 % limits"
    for group, part in found["groups"].items():
        console.print(_table(f"{GROUP_LABELS[group]}, 95 % limits", part["configurations"], ""))
        console.print(_table(f"{GROUP_LABELS[group]}: {minus}", part["differences"], "+"))
    console.print(_table(f"everything: {minus}", found["differences"], "+"))
    console.print(f"dominated by: {', '.join(found['dominated_by']) or 'none'}")
    for configuration, parts in found["quality_lost_to"].items():
        for shape, ratio in parts["by_shape"].items():
            limits = f"{ratio['ci_low']:.3g} to {ratio['ci_high']:.3g}"
            console.print(f"quality lost / {configuration}, {shape}: {ratio['mean']:.3g} ({limits})")


def _table(title: str, rows: dict[str, dict[str, Any]], sign: str) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("configuration")
    for measure in SHOWN:
        table.add_column(measure.name)
    for configuration, row in rows.items():
        table.add_row(configuration, *(_cell(row[measure.name], sign) for measure in SHOWN))
    return table


def _cell(found: dict[str, float], sign: str) -> str:
    if not math.isfinite(found["mean"]):
        return "–"
    return f"{found['mean']:{sign}.5g} ({found['ci_low']:.5g} to {found['ci_high']:.5g})"


if __name__ == "__main__":
    typer.run(main)
