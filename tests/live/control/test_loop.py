"""The live loop with fakes: whatever a port does, the last table stands and the next turn comes."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contracts.telemetry import FleetTelemetry
from controller.ports import RoutingPlan
from controller.state import QuarantineReason
from live.control.claim import StateKeeper, controlling, kept_state
from live.control.clocks import CpuClock, SteadyClock, run_on_the_beat, stopped_by_signals
from live.control.loop import REASSERT_S, ControlPorts, LiveController, Turn
from live.errors import LiveError
from policies.registry import make_configuration
from tests.support.fleets.builders import make_fleet, make_layout, with_steps
from tests.support.fleets.fakes import ManualClock, RecordingActuator, ScriptedTelemetry
from tests.support.fleets.port_suite import ClockSuite
from tests.support.fleets.worlds import drift, script, silence

LAYOUT = make_layout(kernels=3, slices=2, per_kernel=2)
SETUP = make_configuration("hysteresis", make_fleet(LAYOUT))
#: Both replicas of the kernel that is home to every slice.
HOME = [0, 1]


class Resetter:
    """``StreamReset`` with a given number of failures."""

    def __init__(self, failures: int = 0) -> None:
        self.done: list[str] = []
        self._failures = failures

    def reset(self, replica: str) -> None:
        """Reset one replica."""
        if self._failures:
            self._failures -= 1
            raise LiveError("Envoy does not answer")
        self.done.append(replica)


class Broken:
    """A port with every method raising."""

    def read(self) -> FleetTelemetry:
        """Raise."""
        raise OSError("no such socket")

    def apply(self, plan: RoutingPlan) -> bool:
        """Raise."""
        raise ConnectionError(f"plan {plan.version[0]} not written")

    def turn(self, turn: Turn) -> None:
        """Raise."""
        raise OSError(f"disk full at turn {turn.number}")


class Watch:
    """``TurnWatcher`` that keeps every turn."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []

    def turn(self, turn: Turn) -> None:
        """Keep it."""
        self.turns.append(turn)


def controller(script_: Iterator[FleetTelemetry], **ports: Any) -> tuple[LiveController, ManualClock]:
    """A controller over a script, and its clock."""
    clock = ManualClock()
    parts: dict[str, Any] = {"source": ScriptedTelemetry(script_), "clock": clock, **ports}
    return LiveController(SETUP, ControlPorts(**parts)), clock


def test_a_healthy_fleet_is_routed_once_and_then_left_alone() -> None:
    """The home table is put in force at the start; without news the gateway is updated only once in
    a while.
    """
    actuator = RecordingActuator()
    one, clock = controller(script(LAYOUT, 40), actuator=actuator)
    for _ in range(40):
        one.step()
        clock.advance(1000.0)
    assert actuator.calls == 1 + int(40 // REASSERT_S)
    assert actuator.in_force is not None
    np.testing.assert_array_equal(actuator.in_force.table[0, :, 0], 1.0)


def test_a_broken_hard_clause_moves_traffic_and_what_is_remembered_is_in_force() -> None:
    """Both replicas of the home kernel drift: the gateway's table is that of the state."""
    actuator = RecordingActuator()
    one, clock = controller(script(LAYOUT, 60, drift(LAYOUT, HOME, 5.0)), actuator=actuator)
    for _ in range(60):
        turn = one.step()
        assert turn.executed
        clock.advance(1000.0)
    assert actuator.in_force is not None
    np.testing.assert_array_equal(actuator.in_force.table, one.state.table)
    assert (one.state.table[0, :, 0] < 0.5).all()


def test_a_refused_plan_leaves_the_last_table_and_is_tried_again() -> None:
    """While the gateway refuses, the state keeps the table in force; when it accepts plans, traffic moves."""
    refused = range(2, 40)
    actuator = RecordingActuator(refuses=refused)
    one, clock = controller(script(LAYOUT, 120, drift(LAYOUT, HOME, 5.0)), actuator=actuator)
    for _ in range(120):
        turn = one.step()
        assert actuator.in_force is not None
        np.testing.assert_array_equal(actuator.in_force.table, one.state.table)
        assert turn.executed == (turn.error == "")
        clock.advance(1000.0)
    assert one.errors == len(refused)
    assert (one.state.table[0, :, 0] < 0.5).all()


@pytest.mark.parametrize("port", ["source", "actuator", "watchers"])
def test_a_port_that_raises_changes_nothing(port: str) -> None:
    """Source, gateway or log raise: every turn ends, reports the error, and the table is the home table."""
    broken = (Broken(),) if port == "watchers" else Broken()
    one, clock = controller(script(LAYOUT, 30, drift(LAYOUT, HOME, 5.0)), **{port: broken})
    before = one.state.table.copy()
    for _ in range(30):
        one.step()
        clock.advance(1000.0)
    assert one.turns == one.errors == 30
    assert any(word in one.last_error for word in ("no such socket", "not written", "disk full"))
    if port != "watchers":
        np.testing.assert_array_equal(one.state.table, before)


def test_servers_as_last_seen_are_judged_and_that_is_said() -> None:
    """Failing discovery stops no turn; each reports that it uses the last known servers."""
    source = ScriptedTelemetry(script(LAYOUT, 3))
    source.__dict__["outdated"] = "fleet.json: the file is gone"
    one = LiveController(
        SETUP, ControlPorts(source=source, clock=ManualClock(), actuator=RecordingActuator())
    )
    for turn in (one.step(), one.step()):
        assert turn.executed
        assert turn.decision is not None
        assert turn.error == "discovery: servers are as last seen: fleet.json: the file is gone"
    source.__dict__["outdated"] = ""
    assert one.step().error == ""


def test_silent_telemetry_holds_the_last_table() -> None:
    """After the evidence ends nothing moves, although the last telemetry was bad."""
    actuator = RecordingActuator()
    edits = drift(LAYOUT, HOME, 10.0), silence(10.0)
    one, clock = controller(script(LAYOUT, 100, *edits), actuator=actuator)
    held = []
    for _ in range(100):
        turn = one.step()
        assert turn.decision is not None
        held.append(bool(turn.decision.held[0]))
        clock.advance(1000.0)
    assert held[-1]
    assert not held[5]
    np.testing.assert_array_equal(one.state.table[0, :, 0], 1.0)


def test_an_observer_says_what_it_would_do_and_does_nothing() -> None:
    """Without an actuator plans are made, counted as if in force, and never executed."""
    watch = Watch()
    one, clock = controller(script(LAYOUT, 60, drift(LAYOUT, HOME, 5.0)), watchers=(watch,))
    for _ in range(60):
        one.step()
        clock.advance(1000.0)
    assert one.observes
    assert not any(turn.executed for turn in watch.turns)
    assert any(turn.decision is not None and turn.decision.moved[0] for turn in watch.turns)
    assert (one.state.table[0, :, 0] < 0.5).all()


def hung(seen: FleetTelemetry, now_s: float) -> FleetTelemetry:
    """The first replica has running requests, makes no step and answers none."""
    del now_s
    answered = seen.answered.copy()
    answered[0, 0] = 0
    return replace(with_steps(seen, np.arange(answered.shape[1])[None] == 0), answered=answered)


def test_a_hung_replica_is_cut_loose_once_it_is_out_of_rotation() -> None:
    """The reset comes after the plan that takes it out; a failed reset is repeated, and done once."""
    resetter, watch = Resetter(failures=2), Watch()
    one, clock = controller(
        script(LAYOUT, 50, hung), actuator=RecordingActuator(), resetter=resetter, watchers=(watch,)
    )
    for _ in range(50):
        one.step()
        clock.advance(1000.0)
    assert resetter.done == [LAYOUT.replicas[0]]
    when = next(at for at, turn in enumerate(watch.turns) if turn.reset)
    before = watch.turns[when].before
    assert before.quarantined[0, 0]
    assert before.quarantine_reason[0, 0] == int(QuarantineReason.HUNG)


def test_a_second_controller_is_refused_and_the_next_one_may(tmp_path: Path) -> None:
    """One controller at a time holds the lock, and releases it at its end."""
    with (
        controlling(tmp_path),
        pytest.raises(LiveError, match=f"process {os.getpid()}"),
        controlling(tmp_path),
    ):
        pass
    with controlling(tmp_path):
        pass


def test_a_restarted_controller_goes_on_where_the_last_one_was(tmp_path: Path) -> None:
    """A controller with the kept state decides as an uninterrupted one."""
    seen = list(script(LAYOUT, 60, drift(LAYOUT, HOME, 5.0)))
    whole, clock = controller(iter(seen), actuator=RecordingActuator())
    for _ in range(60):
        whole.step()
        clock.advance(1000.0)
    keeper = StateKeeper(tmp_path, SETUP, every_s=0.0)
    first, clock = controller(iter(seen), actuator=RecordingActuator(), watchers=(keeper,))
    for _ in range(30):
        first.step()
        clock.advance(1000.0)
    state, why = kept_state(tmp_path, SETUP)
    assert state is not None, why
    source = ScriptedTelemetry(islice(seen, 30, None))
    second = LiveController(
        SETUP, ControlPorts(source=source, clock=clock, actuator=RecordingActuator()), state
    )
    for _ in range(30):
        second.step()
    np.testing.assert_array_equal(second.state.table, whole.state.table)
    np.testing.assert_array_equal(second.state.quarantined, whole.state.quarantined)


def test_a_state_of_another_fleet_is_told_and_not_taken(tmp_path: Path) -> None:
    """No state, rubbish and the state of another layout give no state, and the reason."""
    assert kept_state(tmp_path, SETUP) == (None, "no state was kept")
    (tmp_path / "controller-state.json").write_text("{")
    assert "expected JSON" in kept_state(tmp_path, SETUP)[1]
    other = make_configuration("hysteresis", make_fleet(make_layout(kernels=2)))
    StateKeeper(tmp_path, other).write(
        LiveController(other, ControlPorts(source=Broken(), clock=ManualClock())).state
    )
    assert "fits" in kept_state(tmp_path, SETUP)[1]


def test_no_step_of_the_system_clock_moves_the_controllers_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour back and forth changes nothing; the offset is reported."""
    clock = SteadyClock()
    before = clock.now_ms()
    real = __import__("time").time
    monkeypatch.setattr("live.control.clocks.time.time", lambda: real() - 3600.0)
    assert before <= clock.now_ms() < before + 60_000.0
    assert clock.step_s() == pytest.approx(-3600.0, abs=60.0)
    assert SteadyClock(not_before_at_s=before / 1000.0 + 10.0).now_ms() >= before + 10_000.0


class TestSteadyClock(ClockSuite):
    """Laws of ``Clock``."""

    def clock(self) -> SteadyClock:
        """The clock of the live world."""
        return SteadyClock()


class TestCpuClock(ClockSuite):
    """Laws of ``Clock``."""

    def clock(self) -> CpuClock:
        """The clock of decisions."""
        return CpuClock()


def test_the_beat_ends_with_its_time_or_by_a_signal() -> None:
    """A given time ends the loop, and so does SIGTERM, after which the old handler is restored."""
    assert run_on_the_beat(lambda: None, 0.01, threading.Event(), seconds=0.05) >= 2
    before = signal.getsignal(signal.SIGTERM)
    with stopped_by_signals() as stop:
        assert run_on_the_beat(lambda: os.kill(os.getpid(), signal.SIGTERM), 60.0, stop) == 1
    assert signal.getsignal(signal.SIGTERM) is before
