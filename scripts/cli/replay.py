"""``selvage replay``: decide a decision log again, byte by byte, or by another policy or contract."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from contracts.errors import DocumentError, refusal
from contracts.loading.files import json_text

if TYPE_CHECKING:
    from live.control.replay import Replayed

#: Rows of the table that are shown.
_MOST_ROWS = 40


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command()(replay)


def replay(
    log: Annotated[Path, typer.Argument(help="Folder of decisions-*.jsonl, or one such file.")],
    policy: Annotated[str, typer.Option(help="RoutePolicy document: what would it have done?")] = "",
    contract: Annotated[str, typer.Option(help="KernelContract: what would it have brought?")] = "",
    meta: Annotated[str, typer.Option(help="MetaContract: what would it have kept back?")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Decide recorded telemetry again; exit 1 where the same set-up does not decide the same."""
    from live.control.chain import missing_records
    from live.control.journal import read_log
    from live.control.replay import replay as again
    from live.control.replay import what_if
    from live.run.options import OtherDocuments, setup_again

    rows = read_log(log)
    other = OtherDocuments(policy=policy, contract=contract, meta=meta)
    recipes = [row["documents"] for row in rows if row.get("kind") == "start"]
    if any(one != recipes[0] for one in recipes):
        raise _refusal(log, "one set-up throughout", "several", "replay the files of each start alone")
    setup = setup_again(recipes[0], other).setup
    missing = missing_records(rows)
    found = (what_if if other else again)(rows, setup)
    if as_json:
        told = {
            "identical": found.identical,
            "what_if": bool(other),
            "missing": [asdict(one) for one in missing],
        }
        typer.echo(json_text({**asdict(found), **told}))
    else:
        for one in missing:
            typer.echo(f"{one}; what is left is decided again from the state that it begins with")
        _show(found, bool(other))
    if not other and not found.identical:
        raise typer.Exit(1)


def _show(found: Replayed, other: bool) -> None:
    console = Console(highlight=False)
    console.print(
        f"{found.ticks} ticks, {found.starts} starts, {found.notes} notes, {found.promotions} of promotions; "
        f"{found.moved_logged} ticks moved something, {found.moved_replayed} in the replay"
    )
    if found.identical:
        console.print("nothing would have been moved otherwise" if other else "identical, byte by byte")
        return
    console.print(f"{len(found.differences)} ticks differ")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("second", "logged", "replayed", "differs in"):
        table.add_column(heading, overflow="fold")
    for one in found.differences[:_MOST_ROWS]:
        sides = ["\n".join(lines) or "-" for lines in (one.logged, one.replayed)]
        table.add_row(f"{one.now_s:.1f}", *sides, ", ".join(one.fields))
    console.print(table)


def _refusal(log: Path, expected: str, actual: str, hint: str) -> DocumentError:
    return refusal(log, expected, actual, hint, path="documents")
