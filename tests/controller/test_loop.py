"""Laws of a whole turn: batching, purity, restored state, silence, ports, explanations."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.errors import StateError
from contracts.telemetry import FleetTelemetry
from controller.decision import Decision
from controller.initial import initial_state
from controller.loop import tick
from controller.options import ControllerOptions
from controller.ports import Clock, RouteActuator, TelemetrySource
from controller.state_json import STATE_VERSION, state_from_json, state_to_json
from policies.registry import BASELINES, make_configuration
from tests.support.fleets.builders import make_fleet, make_layout, with_traffic
from tests.support.fleets.fakes import ManualClock, RecordingActuator, ScriptedTelemetry
from tests.support.fleets.port_suite import ClockSuite, RouteActuatorSuite, TelemetrySourceSuite
from tests.support.fleets.worlds import run, script, silence

LAYOUT = make_layout(kernels=3, slices=2, per_kernel=2)
FLEET = make_fleet(LAYOUT)
CONFIGURATIONS = sorted(BASELINES)


def weather(seed: int, ticks: int, batch: int = 1) -> list[FleetTelemetry]:
    """Random faults: drifting probes, failures, lost scrapes, hung and vanished replicas."""
    rng = np.random.Generator(np.random.PCG64(seed))
    phases = rng.integers(0, 2, (ticks // 15 + 1, batch, 6)).astype(bool)
    out = []
    for index, seen in enumerate(script(LAYOUT, ticks, batch=batch)):
        unhealthy = phases[index // 15]
        seen.probes.values[..., 0] += 0.4 * np.take_along_axis(unhealthy, seen.probes.replica, axis=1)
        lost = rng.random(seen.scraped_at_ms.shape) < 0.3
        shape = (*seen.failed.shape, 2)
        failed = rng.integers(0, 2, shape) * unhealthy[:, :, None]
        answered = rng.integers(0, 9, shape)
        out.append(
            replace(
                with_traffic(seen, LAYOUT, answered=answered, failed=failed),
                scraped_at_ms=np.where(lost, np.nan, seen.scraped_at_ms),
                consecutive_failed=rng.integers(0, 7, seen.consecutive_failed.shape) * unhealthy,
                offered=rng.integers(0, 300, seen.offered.shape),
                replica_state=rng.choice([2, 2, 2, 2, 4], seen.replica_state.shape).astype(np.int8),
            )
        )
    return out


def one_fleet(value: object, fleet: int) -> object:
    """The record with only ``fleet`` of its batch."""
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: one_fleet(getattr(value, f.name), fleet) for f in fields(value)})
    return value[fleet : fleet + 1] if isinstance(value, np.ndarray) else value


def assert_same(left: Decision, right: Decision) -> None:
    """Both decisions are equal, bit for bit."""
    for name in (
        "table",
        "quarantined",
        "proposed",
        "shield_delta",
        "held",
        "capacity_move",
        "replica_alarm",
    ):
        np.testing.assert_array_equal(getattr(left, name), getattr(right, name), err_msg=name)
    for name in ("alarm", "excess", "health", "level", "certified", "hard_violated"):
        np.testing.assert_array_equal(
            getattr(left.judgement, name), getattr(right.judgement, name), err_msg=name
        )
    np.testing.assert_array_equal(left.plan.in_rotation, right.plan.in_rotation)
    np.testing.assert_array_equal(left.plan.version, right.plan.version)


@settings(max_examples=12)
@given(st.integers(0, 10_000), st.sampled_from(CONFIGURATIONS))
def test_a_fleet_is_decided_the_same_alone_and_in_a_batch(seed: int, configuration: str) -> None:
    """Decisions do not depend on how many fleets are advanced together, bit for bit."""
    setup, telemetry = make_configuration(configuration, FLEET), weather(seed, 40, batch=3)
    together = run(setup, iter(telemetry))
    alone = run(setup, (one_fleet(seen, 1) for seen in telemetry))  # type: ignore[misc]
    for whole, single in zip(together.decisions, alone.decisions, strict=True):
        for name in ("table", "quarantined", "proposed", "held", "replica_alarm"):
            np.testing.assert_array_equal(getattr(whole, name)[1:2], getattr(single, name), err_msg=name)
        np.testing.assert_array_equal(whole.judgement.health[1:2], single.judgement.health)


@settings(max_examples=24)
@given(st.integers(0, 10_000), st.integers(1, 50), st.sampled_from(CONFIGURATIONS))
def test_restored_state_takes_the_same_later_decisions(seed: int, at: int, configuration: str) -> None:
    """State written and read at any tick continues as if uninterrupted."""
    setup, telemetry = make_configuration(configuration, FLEET), weather(seed, 55)
    before = run(setup, iter(telemetry[:at]))
    text = state_to_json(before.state, setup)
    restored = state_from_json(text, setup)
    assert state_to_json(restored, setup) == text
    straight = run(setup, iter(telemetry[at:]), before.state)
    resumed = run(setup, iter(telemetry[at:]), restored)
    for left, right in zip(straight.decisions, resumed.decisions, strict=True):
        assert_same(left, right)
    assert state_to_json(straight.state, setup) == state_to_json(resumed.state, setup)


def test_state_before_the_first_tick_survives_json() -> None:
    """NaN and infinities of a fresh state are written and read back."""
    setup = make_configuration("hysteresis", FLEET)
    text = state_to_json(initial_state(setup, 2), setup)
    assert state_to_json(state_from_json(text, setup), setup) == text


@pytest.mark.parametrize(
    "change, message",
    [
        ({"version": 0}, f"state version: expected {STATE_VERSION}, got 0"),
        ({"fits": {}}, r"state\.fits\.kernels"),
        ({"state": {}}, "expected the arrays"),
    ],
)
def test_foreign_state_is_refused(change: dict[str, object], message: str) -> None:
    """State of another version, fleet or shape is an error that says what was expected."""
    setup = make_configuration("threshold", FLEET)
    document = json.loads(state_to_json(initial_state(setup, 1), setup))
    with pytest.raises(StateError, match=message):
        state_from_json(json.dumps({**document, **change}), setup)


def test_damaged_state_is_refused() -> None:
    """Text that is not JSON, or an array of the wrong size or type, raises an error."""
    setup = make_configuration("threshold", FLEET)
    with pytest.raises(StateError, match="expected JSON"):
        state_from_json("{", setup)
    for damage in ({"data": [1.0]}, {"data": ["x"] * 6}, {"shape": [1, 7]}):
        document = json.loads(state_to_json(initial_state(setup, 1), setup))
        document["state"]["scraped_at_s"].update(damage)
        with pytest.raises(StateError, match=r"state\.scraped_at_s"):
            state_from_json(json.dumps(document), setup)
    with pytest.raises(StateError, match=r"state\.fits\.policy"):
        state_from_json(
            state_to_json(initial_state(setup, 1), setup), make_configuration("hysteresis", FLEET)
        )


@settings(max_examples=6)
@given(st.integers(0, 10_000), st.sampled_from(CONFIGURATIONS))
def test_a_tick_changes_no_input(seed: int, configuration: str) -> None:
    """Ticking twice from one state with one telemetry gives one answer and leaves both unchanged."""
    setup, telemetry = make_configuration(configuration, FLEET), weather(seed, 25)
    state = run(setup, iter(telemetry[:24])).state
    text = state_to_json(state, setup)
    first, second = (tick(state, telemetry[24], setup)[1] for _ in range(2))
    assert_same(first, second)
    assert state_to_json(state, setup) == text


@settings(max_examples=20)
@given(
    st.integers(0, 10_000),
    st.sampled_from([configuration for configuration in CONFIGURATIONS if BASELINES[configuration].shield]),
)
def test_plans_are_always_allowed(seed: int, configuration: str) -> None:
    """Rows sum to 1, no weight on hard violations while a certified kernel lives, no empty pool."""
    for decision in run(make_configuration(configuration, FLEET), iter(weather(seed, 60))).decisions:
        table, judgement = decision.table[0], decision.judgement
        np.testing.assert_allclose(table.sum(axis=1), 1.0, atol=1e-9)
        ready = decision.observation.ready[0] > 0
        usable = ~judgement.hard_violated[0] & ready[:, None]
        lives = (usable & judgement.certified[0]).any(axis=0)
        assert (table[lives, :-1].sum(axis=1) > 0.0).all()
        assert (table[:, :-1][lives] * ~usable.T[lives] == 0.0).all()


def test_silence_holds_the_table_then_degrades_to_known_good() -> None:
    """Stale is not bad: the last table is held, and the baseline takes over only after the stated time."""
    setup = make_configuration("threshold", FLEET, ControllerOptions(degrade_after_s=60.0))
    result = run(setup, script(LAYOUT, 120, silence(20.0)))
    held = np.array([bool(decision.held[0]) for decision in result.decisions])
    degraded = np.array([bool(decision.degraded[0]) for decision in result.decisions])
    assert not held[:35].any()
    assert held[36:79].all()
    assert degraded[81:].all()
    tables = result.tables()
    assert (tables[:80, :, 0] == 1.0).all()
    assert (tables[84:, :, LAYOUT.known_good] == 1.0).all()  # the shield moves a row within four ticks
    assert not result.quarantined().any()
    assert all((decision.judgement.level == 0).all() for decision in result.decisions)


def test_lost_scrapes_of_one_replica_change_nothing() -> None:
    """A replica without telemetry is not judged: same tables as with it, no quarantine."""

    def lose(seen: FleetTelemetry, now_s: float) -> FleetTelemetry:
        scraped = seen.scraped_at_ms.copy()
        scraped[:, 0] = np.nan if now_s < 5.0 else 5000.0
        latency_le, valid = seen.latency_le.copy(), seen.probes.valid & (seen.probes.replica != 0)
        latency_le[:, 0] = 0
        return replace(
            seen, scraped_at_ms=scraped, latency_le=latency_le, probes=replace(seen.probes, valid=valid)
        )

    setup = make_configuration("hysteresis", FLEET)
    np.testing.assert_array_equal(
        run(setup, script(LAYOUT, 60, lose)).tables(), run(setup, script(LAYOUT, 60)).tables()
    )


def test_healthy_fleets_are_left_unchanged() -> None:
    """Without faults no rule-based configuration ever moves a weight or a replica."""
    for configuration in ("fixed", "breaker", "threshold", "hysteresis"):
        result = run(make_configuration(configuration, FLEET), script(LAYOUT, 100))
        assert (result.tables()[:, :, 0] == 1.0).all()
        assert not result.quarantined().any()
        assert int(result.state.version[0]) == 0


class TestScriptedTelemetry(TelemetrySourceSuite):
    layout = LAYOUT

    def source(self) -> TelemetrySource:
        return ScriptedTelemetry(script(LAYOUT, 3))


class TestRecordingActuator(RouteActuatorSuite):
    layout = LAYOUT

    def actuator(self) -> RouteActuator:
        return RecordingActuator()

    def table_in_force(self, actuator: RouteActuator) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        assert isinstance(actuator, RecordingActuator)
        assert actuator.in_force is not None
        return actuator.in_force.table


class TestManualClock(ClockSuite):
    def clock(self) -> Clock:
        return ManualClock()
