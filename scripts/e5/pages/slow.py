"""Fill the table of slow replicas and builds in ``docs/detection-results.md`` from the ``e5.json`` of a run.

python -m scripts.e5.pages.slow docs/detection-results.md --run out/e5-slow/e5.json
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from contracts.errors import refusal
from scripts.e5.pages.policies import with_limits
from scripts.output import fill, table

SUITE = "e5-slow"


def slow_table(content: dict[str, Any]) -> list[str]:
    """MTTR per scenario and policy, s, with 95 % limits; one row per scenario."""
    policies = content["header"]["policies"]
    rows = [
        [name, *(with_limits(content["scenarios"][name][policy]["mttr_s"]) for policy in policies)]
        for name in (one["name"] for one in content["header"]["scenarios"])
    ]
    return table(["MTTR, s", *policies], rows, numbers=True)


def main(
    page: Annotated[Path, typer.Argument(help="The page with the table.")],
    run: Annotated[Path, typer.Option(help="The e5.json of a run of the suite e5-slow.")],
) -> None:
    """Fill the table."""
    content = json.loads(run.read_text(encoding="utf-8"))
    suite = content["header"]["suite"]
    if suite != SUITE:
        raise refusal(run, SUITE, suite, "name the e5.json of a run of that suite", path="header.suite")
    fill(page, {"slow": slow_table(content)})


if __name__ == "__main__":
    typer.run(main)
