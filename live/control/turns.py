"""One turn without its ports: what is decided, and what is remembered of it. Replays go this way as well."""

from __future__ import annotations

from dataclasses import replace

from contracts.telemetry import FleetTelemetry
from controller.decision import Decision
from controller.loop import tick
from controller.options import ControllerSetup
from controller.plan import without_plan
from controller.state import ControllerState
from controller.supervise.meta import note_decision


def decide(
    before: ControllerState, telemetry: FleetTelemetry, setup: ControllerSetup
) -> tuple[ControllerState, Decision]:
    """The next state, as if the plan were in force, and the decision. Pure."""
    return tick(before, telemetry, setup)


def settled(
    before: ControllerState,
    after: ControllerState,
    setup: ControllerSetup,
    *,
    in_force: bool,
    spent_ms: float,
) -> ControllerState:
    """``after`` as it is remembered: without a plan that is not in force, with the time that deciding took.

    Who only observes goes on as if its plans were in force.
    """
    kept = after if in_force else without_plan(before, after)
    if setup.meta is None:
        return kept
    return replace(kept, supervisor=note_decision(kept.supervisor, spent_ms))
