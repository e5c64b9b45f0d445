"""Own clocks of servers in a decision log: ``python -m scripts.studies.detection.live_clocks LOG``.

The step times of each replica over the certified ones, minute by minute, as the log of ``selvage run`` or of
a drill recorded them; and which replicas the same telemetry takes out of rotation, and when, with own clocks
judged and without. After the first such quarantine the recording no longer follows the decision, so only the
first is shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import typer
from numpy.typing import NDArray

from contracts.telemetry import FleetTelemetry
from contracts.units import MS_PER_S
from controller.initial import initial_state
from controller.loop import tick
from controller.options import ControllerSetup
from controller.perceive.step_time import observed_step_times
from controller.state import ControllerState, QuarantineReason
from live.control.journal import read_log
from live.control.telemetry_json import telemetry_from_json
from live.run.options import setup_again

MINUTE_S = 60.0
Floats = NDArray[np.float64]


def recorded(log: Path) -> tuple[ControllerSetup, list[FleetTelemetry]]:
    """The set-up of a log's first start, and its telemetry."""
    rows: list[dict[str, Any]] = read_log(log)
    start = next(row for row in rows if row.get("kind") == "start")
    setup = setup_again(start["documents"]).setup
    return setup, [telemetry_from_json(row["telemetry"]) for row in rows if "telemetry" in row]


def _decided(
    setup: ControllerSetup, seen: Sequence[FleetTelemetry]
) -> Iterator[tuple[FleetTelemetry, ControllerState, ControllerState]]:
    """Each telemetry, with the state before and after it."""
    after = initial_state(setup, 1)
    for telemetry in seen:
        before = after
        after, _ = tick(before, telemetry, setup)
        yield telemetry, before, after


def ratios(setup: ControllerSetup, seen: Sequence[FleetTelemetry]) -> Floats:
    """Measured over certified step times, float64 [T, R]; NaN: unknown."""
    return np.array([observed_step_times(state, one, setup)[0] for one, state, _ in _decided(setup, seen)])


def first_out(setup: ControllerSetup, seen: Sequence[FleetTelemetry]) -> str:
    """Which replica goes out first, for which reason and when, in seconds of the log."""
    for telemetry, _, state in _decided(setup, seen):
        gone = np.flatnonzero(state.quarantined[0])
        if gone.size:
            at_s = (telemetry.now_ms[0] - seen[0].now_ms[0]) / MS_PER_S
            reason = QuarantineReason(int(state.quarantine_reason[0, gone[0]])).name.lower()
            return f"{setup.layout.replicas[gone[0]]} at {at_s:.0f} s ({reason})"
    return "none"


def by_minute(setup: ControllerSetup, seen: Sequence[FleetTelemetry]) -> Iterator[str]:
    """Rows: geometric mean, standard deviation of the log and number of a minute's scrapes, by replica."""
    found = np.log(ratios(setup, seen))
    at_s = np.array([one.now_ms[0] - seen[0].now_ms[0] for one in seen]) / MS_PER_S
    for begin_s in np.arange(0.0, at_s[-1], MINUTE_S):
        rows = found[(at_s >= begin_s) & (at_s < begin_s + MINUTE_S)]
        yield f"| {begin_s:.0f} | {' | '.join(_spread(column[np.isfinite(column)]) for column in rows.T)} |"


def _spread(logs: Floats) -> str:
    return f"{np.exp(logs.mean()):.2f} ± {logs.std():.2f} ({logs.size})" if logs.size else "–"


def main(log: Path) -> None:
    """Print both tables."""
    setup, seen = recorded(log)
    print(f"| from, s | {' | '.join(setup.layout.replicas)} |")
    print(f"|---:|{'---:|' * len(setup.layout.replicas)}")
    for row in by_minute(setup, seen):
        print(row)
    for held in ("off", "usual"):
        print(f"first out of rotation, own clocks {held}: {first_out(replace(setup, own_clocks=held), seen)}")


if __name__ == "__main__":
    typer.run(main)
