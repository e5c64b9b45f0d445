"""Fill the table of visible faults in ``docs/detection-results.md`` from the figures of ``bench evidence``.

selvage bench evidence --json > evidence.json
python -m scripts.e5.pages.evidence docs/detection-results.md --figures evidence.json
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from contracts.errors import refusal
from scripts.e5.configurations import INFORMED
from scripts.output import fill, table

FORMS = ("before", "new", INFORMED)
#: What a table shows of every form, and the digits.
SHOWN = {"action_s": ".0f", "mttr_s": ".0f", "recovered": "d", "false_switches": "d"}
#: Their heads; each has a column of every form.
HEADS = ("action, s", "MTTR, s", "recovered", "false switches")


def evidence_table(figures: dict[str, Any]) -> list[str]:
    """One row per scenario; controls, which have false switches only, last."""
    names = dict.fromkeys(key.split("/")[0] for key in figures if "/" in key)
    rows = [
        [
            f"`{name}`",
            *(_shown(figures.get(f"{name}/{form}/{key}"), SHOWN[key]) for key in SHOWN for form in FORMS),
            _shown(figures.get(f"{name}/new/infeasible"), "d"),
        ]
        for name in sorted(names, key=lambda name: f"{name}/new/action_s" not in figures)
    ]
    head = ["", *(column for title in HEADS for column in (f"{title}: before", *FORMS[1:])), "infeasible"]
    return table(head, rows, numbers=True)


def _shown(value: float | None, digits: str) -> str:
    return "" if value is None else f"{value:{digits}}"


def main(
    page: Annotated[Path, typer.Argument(help="The page with the table.")],
    figures: Annotated[Path, typer.Option(help="What `selvage bench evidence --json` wrote.")],
) -> None:
    """Fill the table."""
    found = json.loads(figures.read_text(encoding="utf-8"))
    if not any(key.endswith("/new/action_s") for key in found):
        raise refusal(figures, "figures of `bench evidence`", "others", "name what it wrote with --json")
    fill(page, {"evidence": evidence_table(found)})


if __name__ == "__main__":
    typer.run(main)
