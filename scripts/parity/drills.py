"""Drills that ran in both worlds: detection lag, time to recover and false switches, side by side.

Reads the ``drill.json`` files that ``selvage drill run --out`` wrote, of any number of runs. A drill that was
invalid or inconclusive in a world is left out there.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from contracts.errors import refusal
from contracts.loading.untrusted import json_of
from contracts.regular_files import TEXT_BYTES, read_regular
from scripts.output import table

NAME = "drill.json"
SIMULATED, LIVE = "sim", "local"
MEASURES = ("detection_lag_s", "mttr_s", "false_switches")
_JUDGED = ("passed", "failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillParity:
    """One measure of one drill in both worlds, means over runs; NaN if no run of a world has it."""

    drill: str
    measure: str
    live: float
    live_runs: int
    simulated: float
    simulated_runs: int

    @property
    def ratio(self) -> float:
        """Simulated over live; NaN if either is missing or the live one is 0."""
        return self.simulated / self.live if self.live > 0.0 else math.nan


def drill_parity(folders: Sequence[Path]) -> list[DrillParity]:
    """A row per drill that ran in both worlds and per measure, from every ``drill.json`` below ``folders``.

    Raises DocumentError for a folder without one, and for a file that is not a drill's.
    """
    runs = judged_runs(folders)
    both = sorted({drill for drill, world in runs if world == SIMULATED} & {d for d, w in runs if w == LIVE})
    return [_row(drill, measure, runs) for drill in both for measure in MEASURES]


def judged_runs(folders: Sequence[Path]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """The measures of every run that was judged, by drill and world; DocumentError as ``drill_parity``."""
    runs: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for folder in folders:
        files = sorted(folder.rglob(NAME))
        if not files:
            raise refusal(folder, f"a folder with {NAME}", "none", "run `selvage drill run --out` first")
        for file in files:
            content = _read(file)
            if content["verdict"] in _JUDGED:
                runs[content["drill"], content["target"]].append(content["measures"])
    return runs


def drill_lines(found: Sequence[DrillParity]) -> list[str]:
    """Markdown: a row per drill and measure."""
    head = ("drill", "measure", "live", "runs", "simulated", "runs", "simulated / live")
    rows = [
        (
            one.drill,
            one.measure,
            _shown(one.live),
            str(one.live_runs),
            _shown(one.simulated),
            str(one.simulated_runs),
            _shown(one.ratio),
        )
        for one in found
    ]
    return table(head, rows)


def _row(drill: str, measure: str, runs: dict[tuple[str, str], list[dict[str, Any]]]) -> DrillParity:
    (live, live_runs), (simulated, simulated_runs) = (
        _mean(runs[drill, world], measure) for world in (LIVE, SIMULATED)
    )
    return DrillParity(
        drill=drill,
        measure=measure,
        live=live,
        live_runs=live_runs,
        simulated=simulated,
        simulated_runs=simulated_runs,
    )


def _mean(runs: Sequence[dict[str, Any]], measure: str) -> tuple[float, int]:
    known = [float(run[measure]) for run in runs if run.get(measure) is not None]
    finite = [value for value in known if math.isfinite(value)]
    return (float(np.mean(finite)), len(finite)) if finite else (math.nan, 0)


def _read(file: Path) -> dict[str, Any]:
    try:
        content = json_of(read_regular(file, TEXT_BYTES))
    except (ValueError, RecursionError) as error:
        raise refusal(file, "JSON", str(error), "run the drill again") from None
    wanted = {"drill": str, "target": str, "verdict": str, "measures": dict}
    missing = [
        name
        for name, kind in wanted.items()
        if not isinstance(content, dict) or not isinstance(content.get(name), kind)
    ]
    if missing:
        raise refusal(file, f"{', '.join(wanted)}", f"no {missing[0]}", "give folders of `selvage drill run`")
    found: dict[str, Any] = content
    return found


def _shown(value: float) -> str:
    return f"{value:.2f}" if math.isfinite(value) else ""
