"""One turn without its ports: what is decided, and what is remembered of it. Replays go this way as well."""

from __future__ import annotations

from dataclasses import dataclass

from contracts.telemetry import FleetTelemetry
from controller.decision import Decision
from controller.loop import tick
from controller.options import ControllerSetup
from controller.plan import without_plan
from controller.ports import Clock
from controller.state import ControllerState, altered
from controller.supervise.meta import note_decision


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """What a fleet decided. spent_ms: its share of the CPU time; fleets: that decided together."""

    after: ControllerState
    decision: Decision
    spent_ms: float
    fleets: int = 1


def decide(
    before: ControllerState, telemetry: FleetTelemetry, setup: ControllerSetup
) -> tuple[ControllerState, Decision]:
    """The next state, as if the plan were in force, and the decision. Pure."""
    return tick(before, telemetry, setup)


def decide_alone(
    before: ControllerState, telemetry: FleetTelemetry, setup: ControllerSetup, cpu: Clock
) -> Decided:
    """``decide``, and the time that it took by ``cpu``."""
    began_ms = cpu.now_ms()
    after, decision = decide(before, telemetry, setup)
    return Decided(after=after, decision=decision, spent_ms=cpu.now_ms() - began_ms)


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
    return altered(kept, supervisor=note_decision(kept.supervisor, spent_ms))
