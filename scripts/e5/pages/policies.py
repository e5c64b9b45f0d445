"""Fill the tables of ``docs/policies-results.md``: results of runs of E5, and of the search for settings.

    python -m scripts.e5.pages.policies docs
    python -m scripts.e5.pages.policies docs --run out/policies --suite SUITE --mark e5

The first writes the table of tuned settings from the files that ship; the second two tables of a finished
run, between the marks ``e5`` and ``e5-differences``: nothing is typed by hand.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from contracts.loading.shipped import SHIPPED_SUITE
from contracts.loading.uris import resolve_uri
from scripts.e5.configurations import TUNED, TUNING, parse_configuration, parse_configurations, tuned
from scripts.e5.scores.comparison import compare, load_run
from scripts.e5.suite import load_suite
from scripts.output import fill, table

PAGE = "policies-results.md"
#: Policies, beside all tuned ones, whose differences to the candidate are on the page.
AGAINST = ("burn-rate", "hysteresis", "linear-program", "sequential")
#: Policies whose settings were searched, in the order of the page.
SEARCHED = ("burn-rate", "threshold", "hysteresis", "sequential", "linear-program")
#: Measures of the table of differences, in its order: factor, digits after the point.
DIFFERENCES = {
    "mttr_s": (1.0, 1),
    "quality_preservation": (100.0, 3),
    "false_switches_per_slice_month": (1.0, 1),
    "failed_ratio": (100.0, 4),
}
Leaf = dict[str, float]


def run_tables(found: dict[str, Any], mark: str, order: Iterable[str]) -> dict[str, list[str]]:
    """Both tables of a comparison: every configuration by itself, and the candidate minus the others."""
    silent, visible = (found["groups"][group]["configurations"] for group in ("silent_numeric", "visible"))
    names = [name for name in order if name in silent]
    head = (
        "policy",
        "quality preserved",
        "MTTR, s",
        "false switches per slice-month",
        "MTTR, s, visible faults",
        "false switches, visible faults",
    )
    rows = [[label(name), *_own(silent[name]), *_means(visible[name])] for name in names]
    differences, chosen = found["differences"], tuned()
    shown = [name for name in (*AGAINST, *chosen) if name in differences]
    return {
        mark: table(head, rows, numbers=True),
        f"{mark}-differences": difference_table(
            found["candidate"], {name: differences[name] for name in shown}
        ),
    }


def difference_table(candidate: str, differences: dict[str, dict[str, Leaf]]) -> list[str]:
    """The candidate minus each other configuration, with limits."""
    head = (
        f"`{candidate}` minus",
        "MTTR, s",
        "quality preserved, points",
        "false switches per slice-month",
        "failed requests, points",
    )
    rows = [
        [label(name), *(_difference(row[key], *form) for key, form in DIFFERENCES.items())]
        for name, row in differences.items()
    ]
    return table(head, rows, numbers=True)


def label(name: str) -> str:
    """A configuration as the page calls it: ``burn-rate tuned`` for the settings of the search."""
    if name in tuned():
        return f"{parse_configuration(name).policy} tuned"
    return f"`{name}`" if ":" in name else name


def _own(row: dict[str, Leaf]) -> list[str]:
    quality = f"{100.0 * row['quality_preservation']['mean']:.2f} %"
    return [quality, with_limits(row["mttr_s"]), with_limits(row["false_switches_per_slice_month"])]


def _means(row: dict[str, Leaf]) -> list[str]:
    names = ("mttr_s", "false_switches_per_slice_month")
    return [f"{row[name]['mean']:,.1f}" if math.isfinite(row[name]["mean"]) else "–" for name in names]


def with_limits(leaf: dict[str, Any]) -> str:
    """Mean with its limits; a dash where there is none."""
    if leaf["mean"] is None:
        return "–"
    return f"{leaf['mean']:,.1f} ({leaf['ci_low']:,.1f} to {leaf['ci_high']:,.1f})"


def _difference(leaf: Leaf, factor: float, digits: int) -> str:
    mean, low, high = (factor * leaf[key] for key in ("mean", "ci_low", "ci_high"))
    text = f"{mean:+,.{digits}f} ({low:,.{digits}f} to {high:,.{digits}f})"
    return text.replace("-", "−")


def tuning_table() -> list[str]:
    """The result of the search, beside the defaults, on the validation episodes: from the shipped files."""
    head = (
        "policy, on the validation episodes",
        "objective",
        "MTTR, s",
        "quality loss",
        "weight on violating kernels",
        "false switches per slice-month",
    )
    rows = [_tuning_row(*found) for name in SEARCHED for found in _finals(name)]
    return table(head, rows, numbers=True)


def _finals(policy: str) -> list[tuple[str, dict[str, float]]]:
    content = json.loads(resolve_uri(f"{TUNING}/{policy}.json", PAGE).read_text(encoding="utf-8"))
    by_name = {row["configuration"]: row for row in content["finals"]}
    return [(f"`{policy}`", by_name[policy]), (f"`{policy}`, tuned", by_name[content["chosen"]])]


def _tuning_row(name: str, row: dict[str, float]) -> list[str]:
    return [
        name,
        f"{row['objective']:.4f}",
        f"{row['mttr_s']:.0f}",
        f"{row['quality_loss']:.4f}",
        f"{row['violating']:.4f}",
        f"{row['false_switches']:.0f}",
    ]


def main(
    folder: Annotated[Path, typer.Argument(help="Folder of the page.")],
    run: Annotated[Path | None, typer.Option(help="Folder of a run of selvage e5.")] = None,
    suite: Annotated[str, typer.Option(help="Suite that was run.")] = SHIPPED_SUITE,
    mark: Annotated[str, typer.Option(help="Name of the tables on the page.")] = "e5",
    candidate: Annotated[str, typer.Option(help="Compared with all others.")] = "learned",
) -> None:
    """Fill the tables of a run, or, without one, the table of tuned settings."""
    if run is None:
        fill(folder / PAGE, {"tuning": tuning_table()})
        return
    file = resolve_uri(suite, PAGE)
    named = parse_configurations(
        (*load_suite(file)[0].spec.policies, "learned", "informed", "informed:program=0", TUNED)
    )
    found = compare(load_run(run, file), candidate)
    fill(folder / PAGE, run_tables(found, mark, [one.name for one in named]))


if __name__ == "__main__":
    typer.run(main)
