"""Fill the tables of ``docs/harm.md`` from the ``e5.json`` of a run: nothing is typed by hand.

python -m scripts.e5.pages.harm docs --run out/e5-stress/e5.json
python -m scripts.e5.pages.harm docs --run out/e5-common/e5.json --common
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from contracts.errors import refusal
from contracts.scoring.measure_table import MEASURE_LABELS
from scripts.e5.report.tables import TableCell, harm_table
from scripts.e5.scores.harm import HARM, HARM_TO
from scripts.output import fill, table

PAGE = "harm.md"
#: The suites that the page shows.
STRESS, SHARED = "e5-stress", "e5-common"
#: Measures of single scenarios that the page shows as well: factor, digits.
SHOWN = {"goodput_ratio": (100.0, 1), "mttr_s": (1.0, 0), "false_switches_per_slice_month": (1.0, 0)}
#: Measures shown for faults that many replicas share.
COMMON = ("useful-ratio", "failed-or-exposed-ratio", "mttr-s")


def tables(content: dict[str, Any]) -> dict[str, list[str]]:
    """Lines by mark: both measures of harm, the worst scenarios first, and the accompanying figures."""
    harm = content["harm"]
    if not harm["policies"]:
        raise refusal("e5.json", f"a run with {HARM_TO}", harm["note"], "run it too", path="harm.policies")
    # The file has its keys in alphabetical order; the header has those of the run.
    order = [name for name in content["header"]["policies"] if name in harm["policies"]]
    harm = harm | {"policies": {name: harm["policies"][name] for name in order}}
    filled = {}
    for measure, upper in HARM.items():
        shown = harm_table(harm, measure, 1.0 if upper else -1.0)
        rows = [[_cell(cell) for cell in row] for row in shown.rows]
        filled[measure.replace("_", "-")] = table(shown.heads, rows, numbers=True)
    return filled | {name.replace("_", "-"): _measured(content, name) for name in SHOWN}


def _cell(cell: TableCell) -> str:
    text = f"{cell.text} ({cell.note})" if cell.note else cell.text
    return text.replace("-", "−") if cell.text[:1] in "+-" else text


def _measured(content: dict[str, Any], name: str) -> list[str]:
    """One row per scenario, one column per policy, of one measure."""
    policies = content["header"]["policies"]
    factor, digits = SHOWN[name]
    rows = [
        [one["name"], *(_number(found[policy][name]["mean"], factor, digits) for policy in policies)]
        for one in content["header"]["scenarios"]
        for found in (content["scenarios"][one["name"]],)
    ]
    return table([MEASURE_LABELS[name], *policies], rows, numbers=True)


def _number(value: float | None, factor: float, digits: int) -> str:
    return "–" if value is None else f"{factor * value:,.{digits}f}"


def main(
    folder: Annotated[Path, typer.Argument(help="Folder of the page.")],
    run: Annotated[Path, typer.Option(help="The e5.json of a run of the stress part.")],
    common: Annotated[bool, typer.Option(help="The run is of faults that many replicas share.")] = False,
) -> None:
    """Fill the tables of a run."""
    content = json.loads(run.read_text(encoding="utf-8"))
    suite, expected = content["header"]["suite"], SHARED if common else STRESS
    if suite != expected:
        hint = "name its e5.json, and --common for the other"
        raise refusal(run, expected, suite, hint, path="header.suite")
    filled = tables(content)
    if common:
        filled = {f"common-{name}": filled[name] for name in COMMON}
    fill(folder / PAGE, filled)


if __name__ == "__main__":
    typer.run(main)
