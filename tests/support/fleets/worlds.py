"""A scripted world for controller tests: what each replica would show at each tick."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.contract import FleetLayout
from contracts.telemetry import FleetTelemetry
from controller.decision import Decision
from controller.initial import initial_state
from controller.loop import tick
from controller.options import ControllerSetup
from controller.state import ControllerState
from tests.support.fleets.builders import quiet_telemetry, with_probes

#: Healthy values of the two probe metrics of ``tests.support.fleets.builders``.
HEALTHY = np.array([0.01, 0.05])

Edit = Callable[[FleetTelemetry, float], FleetTelemetry]


def drift(layout: FleetLayout, replicas: list[int], from_at_s: float, until_at_s: float = np.inf) -> Edit:
    """From ``from_at_s`` on these replicas show five times the tolerated mean on every slice."""

    def edit(seen: FleetTelemetry, now_s: float) -> FleetTelemetry:
        if not from_at_s < now_s <= until_at_s:
            return seen
        seen.probes.values[np.isin(seen.probes.replica, replicas), 0] = 0.5
        return seen

    return edit


def silence(from_at_s: float, until_at_s: float = np.inf) -> Edit:
    """No scrape and no probe arrives in this interval; the last ones stay shown."""

    def edit(seen: FleetTelemetry, now_s: float) -> FleetTelemetry:
        if not from_at_s < now_s <= until_at_s:
            return seen
        probes = replace(seen.probes, valid=np.zeros_like(seen.probes.valid))
        shown = np.full_like(seen.scraped_at_ms, from_at_s * 1000.0)
        return replace(seen, probes=probes, scraped_at_ms=shown, latency_le=np.zeros_like(seen.latency_le))

    return edit


def script(layout: FleetLayout, ticks: int, *edits: Edit, batch: int = 1) -> Iterator[FleetTelemetry]:
    """One telemetry per second; each replica is probed once per slice and second, values wobble a little."""
    rng = np.random.Generator(np.random.PCG64(7))
    _, slices, replicas = layout.shape
    for index in range(1, ticks + 1):
        wobble = rng.uniform(0.8, 1.2, (1, replicas, slices, len(HEALTHY)))
        seen = with_probes(quiet_telemetry(layout, float(index), batch), layout, HEALTHY * wobble)
        for edit in edits:
            seen = edit(seen, float(index))
        yield seen


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Decisions of a run, tick by tick, and the state after it."""

    decisions: list[Decision]
    state: ControllerState

    def tables(self) -> NDArray[np.float64]:
        """float64 [T, S, K + 1] of fleet 0."""
        return np.stack([decision.table[0] for decision in self.decisions])

    def quarantined(self) -> NDArray[np.bool_]:
        """bool [T, R] of fleet 0."""
        return np.stack([decision.quarantined[0] for decision in self.decisions])


def run(
    setup: ControllerSetup, telemetry: Iterator[FleetTelemetry], state: ControllerState | None = None
) -> Run:
    """Drive ``tick`` over ``telemetry``."""
    decisions = []
    for seen in telemetry:
        state = state or initial_state(setup, len(seen.now_ms))
        state, decision = tick(state, seen, setup)
        decisions.append(decision)
    assert state is not None
    return Run(decisions=decisions, state=state)
