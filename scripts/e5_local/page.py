"""Fill the table of E5 on real servers in ``docs/e5.md`` from one finished run.

    selvage e5 --target local --out out/e5-live
    python -m scripts.e5_local.page docs --run out/e5-live/e5.json

The table is between the marks ``e5-live``, with the machine and the command that produced it: nothing is
typed by hand, and a run of the simulator is refused.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from contracts.errors import refusal
from scripts.output import fill, table

PAGE, MARK = "e5.md", "e5-live"
#: Groups of drills, as named on the page.
GROUPS = {"silent_numeric": "silent", "visible": "visible", "control": "healthy"}
HEAD = (
    "policy",
    "drills",
    "episodes",
    "MTTR, s",
    "not recovered",
    "failed requests",
    "false switches per slice-month",
)
Row = dict[str, dict[str, float | None]]


def live_table(found: dict[str, Any], file: str) -> list[str]:
    """Lines of the table of ``found``, the ``e5.json`` of a live run read from ``file``, and its origin.

    Raises DocumentError if it is not a run on real servers of one machine.
    """
    header = found.get("header", {}) if isinstance(found, dict) else {}
    target = header.get("target") if isinstance(header, dict) else None
    if target != "local":
        hint = "give the e5.json of `selvage e5 --target local`"
        raise refusal(file, "local", str(target), hint, path="header.target")
    try:
        rows = list(_rows(found))
        machine = header["versions"]
        message = (
            f"`{header['command']}` on {machine['machine_cores']} cores ({machine['machine_cpu']}), "
            f"{', '.join(header['served_by']) or 'servers that say no version'}:"
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        hint = "write it again with this version"
        raise refusal(file, "the content of e5.json", repr(error), hint) from None
    return [message, "", *table(HEAD, rows, numbers=True)]


def _rows(found: dict[str, Any]) -> Iterator[list[str]]:
    groups = found["groups"]
    for name in found["header"]["policies"]:
        for group, called in GROUPS.items():
            if name in groups.get(group, {}):
                yield [name, called, *_cells(groups[group][name])]


def _cells(row: Row) -> list[str]:
    """One policy on one group; – if nothing can be measured, such as a recovery without a fault."""
    episodes = row["quality_preservation"]["n"]
    return [
        "–" if episodes is None else f"{episodes:.0f}",
        _number(row["mttr_s"]["mean"], 1.0, ".0f"),
        _number(row["unrecovered"]["mean"], 100.0, ".0f", " %"),
        _number(row["failed_ratio"]["mean"], 100.0, ".2f", " %"),
        _number(row["false_switches_per_slice_month"]["mean"], 1.0, ",.0f"),
    ]


def _number(value: float | None, factor: float, form: str, unit: str = "") -> str:
    known = value is not None and math.isfinite(value)
    return f"{factor * value:{form}}{unit}" if known and value is not None else "–"


def main(
    folder: Annotated[Path, typer.Argument(help="Folder of the page.")],
    run: Annotated[Path, typer.Option(help="The e5.json of a run of selvage e5 --target local.")],
) -> None:
    """Fill the table of the page from the run."""
    try:
        found = json.loads(run.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        hint = "give the e5.json of `selvage e5 --target local`"
        raise refusal(run, "a JSON file", str(error), hint) from None
    fill(folder / PAGE, {MARK: live_table(found, str(run))})


if __name__ == "__main__":
    typer.run(main)
