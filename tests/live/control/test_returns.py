"""Resets and partial shares of returning replicas, by the live loop over fakes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from contracts.telemetry import FleetTelemetry
from live.control.loop import ControlPorts, LiveController
from tests.live.control.test_loop import LAYOUT, SETUP, Resetter, hung
from tests.support.fleets.fakes import ManualClock, RecordingActuator, ScriptedTelemetry
from tests.support.fleets.worlds import script


def test_the_loop_resets_the_replicas_of_the_plan() -> None:
    """Every replica that a plan names is reset once its plan is in force, and no other replica ever."""
    resetter, named = Resetter(), set[str]()
    clock = ManualClock()
    setup = replace(SETUP, hang_timeouts=3)
    ports = ControlPorts(
        source=ScriptedTelemetry(script(LAYOUT, 50, hung)),
        clock=clock,
        actuator=RecordingActuator(),
        resetter=resetter,
    )
    one = LiveController(setup, ports)
    for _ in range(50):
        turn = one.step()
        assert turn.decision is not None
        reset = turn.decision.plan.reset
        named |= set() if reset is None else {LAYOUT.replicas[r] for r in np.flatnonzero(reset[0])}
        clock.advance(1000.0)
    assert named == set(resetter.done) == {LAYOUT.replicas[0]}


class Returns:
    """``ReturnWatch`` that gives every returning replica a fixed share."""

    def __init__(self) -> None:
        self.shares: dict[str, float] = {}
        self.admitted: list[dict[str, float]] = []

    def turn(self, now_s: float, ended: Iterable[str], away: Iterable[str]) -> tuple[str, ...]:
        """Record the returning replicas."""
        del now_s
        for name in away:
            self.shares.pop(name, None)
        self.shares |= dict.fromkeys(ended, 0.25)
        return tuple(f"{name}: comes back" for name in ended)

    def admit(self, shares: Mapping[str, float]) -> None:
        """Keep what the actuator is told."""
        self.admitted.append(dict(shares))


def test_a_returning_replica_has_its_partial_share_from_the_first_plan() -> None:
    """Its share is passed on before the plan with it in rotation is put in force, and the turn reports it."""
    returns, clock, actuator = Returns(), ManualClock(), RecordingActuator()
    quick = replace(SETUP, options=replace(SETUP.options, readmit_after_s=5.0, readmit_every_s=1.0))
    ports = ControlPorts(
        source=ScriptedTelemetry(script(LAYOUT, 90, passing_hang)),
        clock=clock,
        actuator=actuator,
        returns=returns,
        admits=returns,
    )
    one, back = LiveController(quick, ports), -1
    for at in range(90):
        turn = one.step()
        if turn.healing:
            back = at
            assert returns.admitted[-1] == {LAYOUT.replicas[0]: 0.25}
            assert turn.executed
            assert actuator.in_force is not None
            assert actuator.in_force.in_rotation[0, 0]
        clock.advance(1000.0)
    assert back > 0


def passing_hang(seen: FleetTelemetry, now_s: float) -> FleetTelemetry:
    """The first replica hangs for twenty seconds."""
    return hung(seen, now_s) if now_s <= 20.0 else seen


class Broken(Returns):
    """Its file cannot be written."""

    def turn(self, now_s: float, ended: Iterable[str], away: Iterable[str]) -> tuple[str, ...]:
        """Raise OSError."""
        raise OSError("no space left on device")


def test_a_verifier_that_fails_ends_no_turn() -> None:
    """Every turn puts its plan in force, and says what went wrong."""
    actuator, returns = RecordingActuator(), Broken()
    ports = ControlPorts(
        source=ScriptedTelemetry(script(LAYOUT, 5, passing_hang)),
        clock=ManualClock(),
        actuator=actuator,
        returns=returns,
        admits=returns,
    )
    one = LiveController(SETUP, ports)
    turns = [one.step() for _ in range(5)]
    assert all(turn.executed and "no space left" in turn.error for turn in turns)


def test_a_share_that_is_known_holds_though_the_verifier_failed() -> None:
    """No replica returns with its full share because of another error."""
    returns = Broken()
    returns.shares = {LAYOUT.replicas[0]: 0.25}
    ports = ControlPorts(
        source=ScriptedTelemetry(script(LAYOUT, 2, passing_hang)),
        clock=ManualClock(),
        actuator=RecordingActuator(),
        returns=returns,
        admits=returns,
    )
    turn = LiveController(SETUP, ports).step()
    assert "no space left" in turn.error
    assert returns.admitted == [{LAYOUT.replicas[0]: 0.25}]
