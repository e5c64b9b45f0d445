"""Whether fleets recover as fast in the simulator as on real servers: two one-sided tests over drills.

    python -m scripts.parity.equivalence out/drills --margin 0.2

Reads the ``drill.json`` files of both worlds below the folders. Of each drill d = mean log MTTR simulated
minus mean log MTTR live; drills are the sample, so the claim is about drills like these. Null hypotheses: the
mean of d is at most -log(1 + margin), and: it is at least log(1 + margin). Both are tested by Student's t at
level alpha (TOST, Schuirmann 1987); equivalence is shown if both are rejected, which is when the interval of
confidence 1 - 2 alpha lies within the margin. Times below a tick count as one tick. Assumes that d is about
normal.

A run that did not recover has no time. A drill in which that happens in one world alone contradicts the
claim; if it happens in both, it is left out and named. Exit codes: 0 equivalent, 1 not shown.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from scipy.stats import t as student

from contracts.errors import refusal
from contracts.loading.files import json_text, plain
from faults.drill.plan import TICK_S
from scripts.output import table, write_json
from scripts.parity.drills import LIVE, SIMULATED, judged_runs

ALPHA, POWER = 0.05, 0.8
_MOST = 1000
Times = dict[tuple[str, str], list[float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillTimes:
    """One drill. d: mean log MTTR simulated minus live; noise: sum of both variances of one run's log."""

    drill: str
    live_s: float
    live_runs: int
    simulated_s: float
    simulated_runs: int
    d: float
    noise: float  # NaN if a world has one run


@dataclass(frozen=True, slots=True, kw_only=True)
class Equivalence:
    """The judgement. ratio: simulated over live, geometric mean over drills, with limits of 1 - 2 alpha.

    power: probability that this many such drills show equivalence at a true ratio of 1; drills_needed,
    runs_needed: for a power of ``POWER``, None if none up to ``_MOST`` suffices.
    """

    margin: float
    drills: tuple[DrillTimes, ...]
    ratio: float
    ratio_low: float
    ratio_high: float
    p_value: float
    power: float
    drills_needed: int | None
    runs_needed: int | None
    contradicting: tuple[str, ...]
    left_out: tuple[str, ...]

    @property
    def equivalent(self) -> bool:
        """Whether it is shown; unknown counts as not shown."""
        return bool(self.p_value < ALPHA) and not self.contradicting


def equivalence(folders: Sequence[Path], margin: float) -> Equivalence:
    """Judge every drill below ``folders`` that ran in both worlds.

    Raises DocumentError if fewer than two of them recovered in both, and for files that are not drills'.
    """
    times, never = _times(folders)
    both = {drill for drill, world in (*times, *never) if world == LIVE}
    both &= {drill for drill, world in (*times, *never) if world == SIMULATED}
    stuck = {drill: {world for one, world in never if one == drill} for drill in both}
    found = tuple(_drill(name, times) for name in sorted(both) if not stuck[name])
    if len(found) < 2:
        message = f"{len(found)} of {len(both)} drills that ran in both worlds"
        hint = "run more drills: selvage drill run NAME --target sim|local --out FOLDER"
        raise refusal(folders[0], "two drills with a recovery in both worlds", message, hint)
    return _judged(
        found,
        margin,
        contradicting=tuple(sorted(name for name in both if len(stuck[name]) == 1)),
        left_out=tuple(sorted(name for name in both if len(stuck[name]) == 2)),
    )


def _times(folders: Sequence[Path]) -> tuple[Times, set[tuple[str, str]]]:
    """Log MTTR of every run by drill and world, and the runs that did not recover."""
    times: Times = defaultdict(list)
    never = set()
    for place, runs in judged_runs(folders).items():
        for run in runs:
            if run.get("unrecovered") == 1.0:
                never.add(place)
            elif run.get("mttr_s") is not None and math.isfinite(float(run["mttr_s"])):
                times[place].append(math.log(max(TICK_S, float(run["mttr_s"]))))
    return times, never


def _drill(name: str, times: Times) -> DrillTimes:
    live, simulated = np.array(times[name, LIVE]), np.array(times[name, SIMULATED])
    known = min(len(live), len(simulated)) > 1
    return DrillTimes(
        drill=name,
        live_s=float(np.exp(live.mean())),
        live_runs=len(live),
        simulated_s=float(np.exp(simulated.mean())),
        simulated_runs=len(simulated),
        d=float(simulated.mean() - live.mean()),
        noise=float(live.var(ddof=1) + simulated.var(ddof=1)) if known else math.nan,
    )


def _judged(
    found: tuple[DrillTimes, ...], margin: float, contradicting: tuple[str, ...], left_out: tuple[str, ...]
) -> Equivalence:
    values: NDArray[np.float64] = np.array([one.d for one in found])
    count, bound = len(values), math.log1p(margin)
    mean, deviation = float(values.mean()), float(values.std(ddof=1))
    error = max(deviation / math.sqrt(count), 1e-12)
    half = float(student.ppf(1.0 - ALPHA, count - 1)) * error
    lower, upper = (float(student.sf((bound + side * mean) / error, count - 1)) for side in (1.0, -1.0))
    return Equivalence(
        margin=margin,
        drills=found,
        ratio=math.exp(mean),
        ratio_low=math.exp(mean - half),
        ratio_high=math.exp(mean + half),
        p_value=max(lower, upper),
        power=tost_power(deviation, count, bound),
        drills_needed=_drills_needed(deviation, bound),
        runs_needed=_runs_needed(found, deviation, bound),
        contradicting=contradicting,
        left_out=left_out,
    )


def tost_power(deviation: float, count: int, bound: float) -> float:
    """Approximate probability that ``count`` values of this ``deviation`` around 0 show equivalence within
    ``bound``: by the t distribution in place of the joint one of both statistics.
    """
    reach = bound * math.sqrt(count) / max(deviation, 1e-12) - float(student.ppf(1.0 - ALPHA, count - 1))
    return max(0.0, 2.0 * float(student.cdf(reach, count - 1)) - 1.0)


def _drills_needed(deviation: float, bound: float) -> int | None:
    return next((n for n in range(2, _MOST + 1) if tost_power(deviation, n, bound) >= POWER), None)


def _runs_needed(found: tuple[DrillTimes, ...], deviation: float, bound: float) -> int | None:
    """Runs of each of these drills in each world; the differences between drills beyond noise remain."""
    noise = float(np.mean([one.noise for one in found]))
    if math.isnan(noise):
        return None
    now = float(np.mean([one.noise / min(one.live_runs, one.simulated_runs) for one in found]))
    between = max(0.0, deviation**2 - now)
    sizes = ((runs, math.sqrt(between + noise / runs)) for runs in range(1, _MOST + 1))
    return next((runs for runs, size in sizes if tost_power(size, len(found), bound) >= POWER), None)


def lines_of(found: Equivalence) -> list[str]:
    """Markdown: a row per drill, then the judgement."""
    head = ("drill", "live, s", "runs", "simulated, s", "runs", "simulated / live")
    rows = [
        [
            one.drill,
            f"{one.live_s:.1f}",
            str(one.live_runs),
            f"{one.simulated_s:.1f}",
            str(one.simulated_runs),
            f"{math.exp(one.d):.2f}",
        ]
        for one in found.drills
    ]
    shown = "equivalent" if found.equivalent else "equivalence is not shown"
    needed = [f"{found.drills_needed or f'more than {_MOST}'} such drills"]
    needed += [f"{found.runs_needed} runs of each of these"] if found.runs_needed else []
    told = [
        f"MTTR simulated / live: {found.ratio:.2f} ({found.ratio_low:.2f} to {found.ratio_high:.2f}, "
        f"{1.0 - 2.0 * ALPHA:.0%}), margin {1.0 / (1.0 + found.margin):.2f} to {1.0 + found.margin:.2f}, "
        f"p = {found.p_value:.3g}: {shown}.",
        f"Power where they are equal: {found.power:.2f}; {POWER:g} needs {' or '.join(needed)}.",
    ]
    told += (
        [f"Recovered in one world alone: {', '.join(found.contradicting)}."] if found.contradicting else []
    )
    told += [f"Left out, recovered in neither world: {', '.join(found.left_out)}."] if found.left_out else []
    return [*table(head, rows, numbers=True), "", *told]


def main(
    folders: Annotated[list[Path], typer.Argument(help="Folders with drill.json files of both worlds.")],
    margin: Annotated[
        float,
        typer.Option(
            min=0.01, max=10.0, help="Largest difference that counts as equal, as a share: 0.2 is a fifth."
        ),
    ] = 0.2,
    out: Annotated[Path | None, typer.Option(help="File for the JSON object.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Test whether MTTR is the same in both worlds, within a margin."""
    found = equivalence(folders, margin)
    content: dict[str, Any] = {**plain(asdict(found)), "alpha": ALPHA, "equivalent": found.equivalent}
    if out is not None:
        write_json(out, content, indent=2)
    typer.echo(json_text(content) if as_json else "\n".join(lines_of(found)))
    raise typer.Exit(0 if found.equivalent else 1)


if __name__ == "__main__":
    typer.run(main)
