"""Fill both result tables of README.md, the short one above and all policies, and the plot, from ``e5.json``.

``make readme`` runs E5 with the learned policy beside the suite's own ones, then
``python -m scripts.e5.pages.readme out/readme/e5.json``: nothing is typed by hand, so page and run agree.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from contracts.errors import DocumentError, refusal
from contracts.home import HOME
from scripts.e5.report.plots import FrontPoint, front_svg
from scripts.e5.report.tables import Table, policy_table
from scripts.e5.suite import GROUP_LABELS
from scripts.output import filled, write_whole

PAGE, MARK, SHORT_MARK = "README.md", "e5", "e5-short"
PLOT = Path("docs") / "e5-front.svg"
#: The page shows the faults that no other page shows; the report has all groups.
GROUP = "silent_numeric"
COLUMNS = (
    "quality_preservation",
    "mttr_s",
    "unrecovered",
    "detection_lag_s",
    "false_switches_per_slice_month",
)
#: The policy that the page must show: a run without it is refused.
SHOWN = "learned"
#: The short table: from no move at all to a policy that is told of every fault, means alone.
SHORT_POLICIES = ("fixed-bare", "hysteresis", SHOWN, "informed")
SHORT_COLUMNS = ("quality_preservation", "mttr_s", "false_switches_per_slice_month")
#: An image cannot take its colour from the page: a grey that is legible on white and on black.
INK = "#7d8590"


def markdown(table: Table, *, limits: bool = True) -> str:
    """``table`` as Markdown, limits in brackets or left out."""
    rows = [
        [f"{cell.text} ({cell.note})" if cell.note and limits else cell.text for cell in row]
        for row in table.rows
    ]
    heads = [head.removesuffix(", %") for head in table.heads]  # the cells have it
    lines = [heads, ["---"] + ["---:"] * (len(table.heads) - 1), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def short_section(content: dict[str, Any]) -> str:
    """Text between the marks of the short table; DocumentError for a run without the learned policy."""
    return markdown(policy_table(_rows(content), SHORT_POLICIES, SHORT_COLUMNS), limits=False)


def section(content: dict[str, Any]) -> str:
    """Text between the marks of all policies; DocumentError for a run without the learned policy."""
    header = content["header"]
    table = markdown(policy_table(_rows(content), header["policies"], COLUMNS))
    scenarios = sum(1 for scenario in header["scenarios"] if scenario["group"] == GROUP)
    return f"""\
{GROUP_LABELS[GROUP].capitalize()}: {scenarios} scenarios, {header["seeds"]} paired seeds, {header["replicas"]} replicas of {len(header["kernels"])} measured kernels; means with 95 % limits.
MTTR counts an unrecovered incident as lasting to the horizon of {header["horizon_s"]:.0f} s.

{table}

Fast recovery is bought with false switches, so the trade-off is the result, not one number:

![MTTR against false switches, each policy at several settings]({PLOT.as_posix()})

Command: `{header["command"]}`; suite `{header["suite_sha256"][:12]}`, contract `{header["contract_sha256"][:12]}`."""  # noqa: E501 (one sentence per line)


def _rows(content: dict[str, Any]) -> dict[str, Any]:
    """Measures by policy, the learned one among them."""
    rows: dict[str, Any] = content["groups"][GROUP]
    if SHOWN not in rows:
        raise _refusal("--policies", f"a run with {SHOWN}", ", ".join(rows), "run make readme")
    return rows


def plot(content: dict[str, Any]) -> str:
    """The trade-off as a self-contained SVG."""
    points = [FrontPoint(**_triples(point)) for point in content["front"]]
    return front_svg(points, content["header"]["policies"]).replace("currentColor", INK)


def _triples(point: dict[str, Any]) -> dict[str, Any]:
    known = {
        key: tuple(float("nan") if part is None else part for part in value)
        for key, value in point.items()
        if isinstance(value, list)
    }
    return {**point, **known}


def _refusal(path: str, expected: str, actual: str, next_step: str) -> DocumentError:
    return refusal(PAGE, expected, actual, next_step, path=path)


def main(results: Path) -> None:
    """Write README.md and its plot from ``results``."""
    content = json.loads(results.read_text())
    page = HOME / PAGE
    text = filled(page.read_text(encoding="utf-8"), SHORT_MARK, short_section(content), PAGE)
    write_whole(page, filled(text, MARK, section(content), PAGE))
    write_whole(HOME / PLOT, plot(content))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else HOME / "out" / "readme" / "e5.json"))
