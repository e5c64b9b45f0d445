"""Fill the table of ``docs/policies-results.md`` on what servers' answers cost, from two runs of E5.

python -m scripts.e5.pages.answers docs --twenty out/e5/e5.json --whole out/e5-full-vocab/e5.json

The first run is judged by the 20 most probable tokens, the second by whole rows of log-probabilities; the
table compares their silent numeric faults, which are the same in both.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from contracts.errors import refusal
from scripts.e5.configurations import BASELINE_CONFIGURATION
from scripts.e5.pages.policies import PAGE, with_limits
from scripts.e5.pages.readme import GROUP
from scripts.output import fill, table

MARK = "answers"
#: Contracts of the two runs.
TWENTY, WHOLE = "serving-pool", "serving-pool-full-vocab"
#: Measures of the table, each of both runs, and their heads.
MEASURES = {"mttr_s": "MTTR, s", "false_switches_per_slice_month": "false switches per slice-month"}
#: What both runs must have in common.
ALIKE = ("seed", "seeds")
Run = dict[str, Any]


def read_run(file: Path, contract: str) -> Run:
    """The ``e5.json`` of a run under ``contract``; DocumentError for another."""
    content: Run = json.loads(file.read_text(encoding="utf-8"))
    found = content["header"]["contract"]
    if found != contract:
        raise refusal(file, contract, found, "name the other run", path="header.contract")
    return content


def answers_lines(whole: Run, twenty: Run) -> list[str]:
    """What was run, and a row for each policy of both runs, that without any moves left out."""
    _refuse_unlike(whole, twenty)
    policies = [
        name
        for name in twenty["header"]["policies"]
        if name in whole["groups"][GROUP] and name != BASELINE_CONFIGURATION
    ]
    head = [
        "policy",
        *(f"{text}, {form}" for text in MEASURES.values() for form in ("whole rows", "20 tokens")),
    ]
    rows = [
        [name, *(with_limits(run["groups"][GROUP][name][key]) for key in MEASURES for run in (whole, twenty))]
        for name in policies
    ]
    about = (
        f"Silent numeric faults: {len(_faults(whole))} scenarios, {whole['header']['seeds']} paired seeds."
    )
    return [about, "", *table(head, rows, numbers=True)]


def _faults(run: Run) -> list[str]:
    """Names of the scenarios of the group."""
    return sorted(one["name"] for one in run["header"]["scenarios"] if one["group"] == GROUP)


def _refuse_unlike(whole: Run, twenty: Run) -> None:
    facts = [{"scenarios": _faults(run), **{k: run["header"][k] for k in ALIKE}} for run in (twenty, whole)]
    for key, expected in facts[0].items():
        if facts[1][key] != expected:
            hint = "run both with the same --seeds"
            raise refusal("--whole", str(expected), str(facts[1][key]), hint, path=f"header.{key}")


def main(
    folder: Annotated[Path, typer.Argument(help="Folder of the page.")],
    twenty: Annotated[Path, typer.Option(help="The e5.json of a run of e5.yaml.")],
    whole: Annotated[Path, typer.Option(help="The e5.json of a run of e5-full-vocab.yaml.")],
) -> None:
    """Fill the table."""
    lines = answers_lines(read_run(whole, WHOLE), read_run(twenty, TWENTY))
    fill(folder / PAGE, {MARK: lines})


if __name__ == "__main__":
    typer.run(main)
