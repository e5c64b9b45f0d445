"""Fill the tables of random worlds in ``docs/harm.md`` from what the studies wrote with ``--json``.

python -m scripts.studies.worlds.harm 0 20 --json > drawn.json
python -m scripts.studies.worlds.page docs drawn.json ...

Files of the same kind of worlds are taken together. Worlds that were named one by one (``--only``) have a
table of their own: no share of them says anything of other worlds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from contracts.assess.limits import mean_limits, rate_limits
from contracts.errors import refusal
from contracts.units import CONFIDENCE
from scripts.e5.pages.harm import PAGE
from scripts.output import fill, table
from scripts.studies.worlds.harm import HARM_POINTS

SUMMARY, WORST, KNOWN = "worlds", "worlds-worst", "worlds-known"
#: Kinds of worlds, in the order of the page, as it calls them.
KINDS = {"drawn": "first kind", "wider": "wider", "foreign": "other engines", "alone": "one kernel alone"}
Run = dict[str, Any]


def read_runs(files: Iterable[Path]) -> list[Run]:
    """One run for each kind and each of the two ways to name worlds; DocumentError for what does not fit."""
    found: dict[tuple[str, bool], Run] = {}
    for file in files:
        run = json.loads(file.read_text(encoding="utf-8"))
        if run.get("kind") not in KINDS:
            hint = "name what a study of worlds wrote with --json"
            raise refusal(file, " or ".join(KINDS), str(run.get("kind")), hint, path="kind")
        known = found.setdefault((run["kind"], run["chosen"]), {**run, "worlds": []})
        _refuse_other(file, run, known)
        known["worlds"] = known["worlds"] + run["worlds"]
    return sorted(found.values(), key=lambda run: list(KINDS).index(run["kind"]))


def _refuse_other(file: Path, run: Run, known: Run) -> None:
    """Worlds of one table have equally many seeds, and none is counted twice."""
    if run["seeds"] != known["seeds"]:
        hint = "run them with the same --seeds"
        raise refusal(file, f"{known['seeds']} seeds, as before", str(run["seeds"]), hint, path="seeds")
    before = {one["number"] for one in known["worlds"]}
    if twice := sorted(before & {one["number"] for one in run["worlds"]}):
        raise refusal(file, "other worlds than before", f"{twice}", "name each run once", path="worlds")


def summary_table(runs: Iterable[Run]) -> list[str]:
    """A row for each kind of random worlds and each policy: mean, worst, and how many are harmed."""
    head = (
        "worlds",
        "policy",
        "seeds each",
        "useful tokens, points",
        "worst world",
        "with harm",
        "share with harm, at most",
    )
    return table(head, [row for run in runs for row in _summary_rows(run)], numbers=True)


def _summary_rows(run: Run) -> list[list[str]]:
    worlds = run["worlds"]
    numbers = [one["number"] for one in worlds]
    name = f"{KINDS[run['kind']]}, {min(numbers)} to {max(numbers)}"
    return [[name, policy, str(run["seeds"]), *_figures(worlds, policy)] for policy in worlds[0]["points"]]


def _figures(worlds: list[Run], policy: str) -> list[str]:
    """Over worlds, each by its mean over seeds; limits are one-sided."""
    means = np.array([np.mean(one["points"][policy]) for one in worlds])
    harmed, limits = int((means < HARM_POINTS).sum()), mean_limits(means, CONFIDENCE)
    share = rate_limits(harmed, len(means), CONFIDENCE)
    mean = (
        f"{_points(limits.value)} (at least {_points(limits.low)})" if len(means) > 1 else _points(means[0])
    )
    return [mean, _points(means.min()), f"{harmed} of {len(means)}", f"{100.0 * share.high:.0f} %"]


def worlds_table(runs: Iterable[Run], *, harmed_only: bool) -> list[str]:
    """A row for each world, the worst first: points of every policy by seed, and what was drawn."""
    rows = [(run, one) for run in runs for one in run["worlds"]]
    rows = sorted((row for row in rows if not harmed_only or _worst(row[1]) < HARM_POINTS), key=_place)
    if not rows:
        return [f"No policy loses more than {-HARM_POINTS:g} points in any of these worlds."]
    policies = list(dict.fromkeys(policy for _, one in rows for policy in one["points"]))
    return table(
        ("world", *policies, "drawn"),
        [
            [
                f"{KINDS[run['kind']]} {one['number']}",
                *(_by_seed(one["points"].get(policy)) for policy in policies),
                one["drawn"],
            ]
            for run, one in rows
        ],
    )


def _worst(world: Run) -> float:
    return min(float(np.mean(points)) for points in world["points"].values())


def _place(row: tuple[Run, Run]) -> float:
    return _worst(row[1])


def _by_seed(points: list[float] | None) -> str:
    if points is None:
        return "–"
    return f"{_points(float(np.mean(points)))} ({', '.join(_points(each) for each in points)})"


def _points(value: float) -> str:
    return f"{value + 0.0:+.1f}".replace("-0.0", "+0.0").replace("-", "−")


def tables(runs: list[Run]) -> dict[str, list[str]]:
    """Lines by mark: those of random worlds, and of worlds named one by one, where ``runs`` has any."""
    drawn, chosen = ([run for run in runs if run["chosen"] is each] for each in (False, True))
    found = {}
    if drawn:
        found = {SUMMARY: summary_table(drawn), WORST: worlds_table(drawn, harmed_only=True)}
    return found | ({KNOWN: worlds_table(chosen, harmed_only=False)} if chosen else {})


def main(
    folder: Annotated[Path, typer.Argument(help="Folder of the page.")],
    files: Annotated[list[Path], typer.Argument(help="What the studies wrote with --json.")],
) -> None:
    """Fill the tables of the worlds in ``files``."""
    fill(folder / PAGE, tables(read_runs(files)))


if __name__ == "__main__":
    typer.run(main)
