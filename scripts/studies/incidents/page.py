"""Write docs/incidents.md from parts: ``python -m scripts.studies.incidents.page [FOLDER ...]``.

FOLDER is the ``--out`` of a `selvage bench incidents`. Its parts are added to docs/incidents.json, each in
place of the earlier version of the part; without a folder the page is filled from that file unchanged.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from itertools import groupby
from pathlib import Path

from contracts.loading.files import json_text
from contracts.loading.untrusted import json_of
from contracts.regular_files import TEXT_BYTES, read_regular
from faults.drill.incidents import INCIDENTS
from scripts.output import fill, table, write_whole
from scripts.studies.incidents.plan import BESIDE_S, CONTROL, CONTROL_S, LIMIT_S, WARM_S
from scripts.studies.incidents.results import RESULTS, IncidentResult, merged, misses, read_results

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGE, DATA = DOCS / "incidents.md", DOCS / "incidents.json"
#: The full programme: classes, and seeds of each.
ASKED_SEEDS = 10
_HEADS = (
    "class", "seed", "verdict", "by", "after s", "probe tokens", "prefill alone", "health check",
    "took s", "load",
)  # fmt: skip


def main(folders: Iterable[Path]) -> None:
    """Merge, write the data, fill the page."""
    results = published()
    for folder in folders:
        results = merged(results, read_results(folder))
    write_whole(DATA, json_text([asdict(one) for one in results], indent=1) + "\n")
    fill(PAGE, blocks(results))


def published() -> tuple[IncidentResult, ...]:
    """The parts shown on the page."""
    return RESULTS.validate_python(json_of(read_regular(DATA, TEXT_BYTES))) if DATA.is_file() else ()


def blocks(results: tuple[IncidentResult, ...]) -> Mapping[str, list[str]]:
    """Lines between the marks of the page."""
    return {
        "classes": _classes(),
        "run": _run(results),
        "results": _tables(results),
        "misses": _missed(results),
    }


def _classes() -> list[str]:
    rows = ([f"`{one.name}`", one.told, ", ".join(one.reports)] for one in INCIDENTS)
    return table(("class", "as users told it", "reports"), rows)


def _run(results: tuple[IncidentResult, ...]) -> list[str]:
    """The share of the programme that was run, the time of a part, and the remaining time."""
    latest = _latest(results)
    done = {(one.name, one.seed) for one in latest if one.name != CONTROL and not one.void}
    asked, classes = len(INCIDENTS) * ASKED_SEEDS, {name for name, _ in done}
    spent = [one.spent_s for one in latest if one.spent_s is not None and one.name != CONTROL]
    whole_s = asked * (WARM_S + LIMIT_S + BESIDE_S) + ASKED_SEEDS * (WARM_S + CONTROL_S + BESIDE_S)
    lines = [
        f"{len(classes)} of {len(INCIDENTS)} classes have a run as faults are drawn now, "
        f"{len(done)} of {asked} parts of {ASKED_SEEDS} seeds each.",
        f"All of them take at most {whole_s / 3600.0:.1f} hours, one after the other: "
        "`selvage bench incidents --seeds 0..9`.",
    ]
    if spent:
        lines.append(
            f"One class with one seed took {min(spent):.0f} to {max(spent):.0f} s, "
            f"{sum(spent) / len(spent):.0f} s in the mean of {len(spent)}."
        )
    return lines


def _latest(results: tuple[IncidentResult, ...]) -> list[IncidentResult]:
    """Parts of the newest method of drawing: that of the last added part."""
    return [one for one in results if one.noise == results[-1].noise] if results else []


def _tables(results: tuple[IncidentResult, ...]) -> list[str]:
    """One table per range of disturbance and limit, in the order in which they were run."""
    lines: list[str] = []
    for (noise, limit_s), rows in groupby(results, key=lambda one: (one.noise, _limit(one))):
        lines += [f"Weights disturbed by {noise} standard deviations, a limit of {limit_s:g} s:", ""]
        lines += [*table(_HEADS, (_row(one) for one in rows)), ""]
    return lines[:-1]


def _limit(one: IncidentResult) -> float:
    """The limit of the incidents: controls have their own, shown beside."""
    return LIMIT_S if one.name == CONTROL else one.limit_s


def _row(one: IncidentResult) -> list[str]:
    sees = [
        "" if one.name == CONTROL else "caught" if seen else "missed" for seen in (one.prefill, one.health)
    ]
    after = "" if one.after_s is None else f"{one.after_s:.0f}"
    took, load = ("" if value is None else f"{value:.0f}" for value in (one.spent_s, one.load))
    name = CONTROL if one.name == CONTROL else f"`{one.name}`"
    verdict = f"{one.verdict}: {one.void}" if one.void else one.verdict
    by = one.by if not one.by or " " in one.by else f"`{one.by}`"
    return [name, str(one.seed), verdict, by, after, str(one.tokens), *sees, took, load]


def _missed(results: tuple[IncidentResult, ...]) -> list[str]:
    """Misses by seed, for the newest method of drawing."""
    rows = []
    latest = _latest(results)
    for seed, names in sorted(misses(latest).items()):
        ran = sum(one.seed == seed and one.name != CONTROL and not one.void for one in latest)
        message = ", ".join(f"`{name}`" for name in names) or "nothing"
        rows.append([str(seed), f"{len(names)} of {ran}", message])
    return table(("seed", "missed", "which"), rows)


if __name__ == "__main__":
    main(Path(name) for name in sys.argv[1:])
