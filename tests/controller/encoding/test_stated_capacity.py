"""A stated capacity beside measured step times is a prior: it holds new traffic off, and what is carried
disproves it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from contracts.compiled.steady_state import Demand, EngineModel
from contracts.telemetry import FleetTelemetry, ReplicaState
from controller.decision import Decision
from controller.initial import initial_state
from controller.loop import tick
from controller.options import CapacityOptions, ControllerSetup
from policies.registry import make_configuration
from tests.support.builders import make_fleet, make_layout, quiet_telemetry

LAYOUT = make_layout(kernels=2, slices=1, per_kernel=2)
NOTHING = float("inf")
#: Requests per second of both replicas of the first kernel, where every slice is at home.
OFFERED_RPS = 10
READY = int(ReplicaState.READY)


def _setup(stated_rps: tuple[float, ...], policy: str = "fixed", patience_s: float = 0.0) -> ControllerSetup:
    engine = EngineModel(
        step_s=np.array([[1.7e-3, 3.1e-5, 6.7e-5, 2.9e-7]] * 2),
        sequences=np.full(2, 64.0),
        kv_tokens=np.full(2, 65536.0),
        inter_token_s=0.08,
        demand=Demand(prompt_tokens=512.0, output_tokens=64.0),
        stated_rps=stated_rps,
    )
    setup = make_configuration(policy, make_fleet(LAYOUT, engine=engine))
    capacity = CapacityOptions(patience_s=patience_s)
    return replace(setup, options=replace(setup.options, capacity=capacity))


def _seen(now_s: int, replicas: int = 2) -> FleetTelemetry:
    """A second of a fleet that answers what it is offered; so many replicas of the first kernel are ready."""
    states = np.full((1, 4), READY, dtype=np.int8)
    states[0, replicas:2] = int(ReplicaState.DEAD)
    answered = np.array([[OFFERED_RPS // replicas] * replicas + [0] * (4 - replicas)])
    quiet = quiet_telemetry(LAYOUT, float(now_s))
    offered = np.full((1, 1), OFFERED_RPS)
    return replace(quiet, offered=offered, answered=answered, replica_state=states)


def _decided(setup: ControllerSetup, *replicas: int) -> list[Decision]:
    """Of ticks with so many replicas of the first kernel, a second each."""
    state, found = initial_state(setup, 1), []
    for now_s, count in enumerate(replicas, start=1):
        state, decision = tick(state, _seen(now_s, count), setup)
        found.append(decision)
    return found


def _sure_rps(decision: Decision) -> np.ndarray:
    sure_rps = decision.observation.sure_rps
    assert sure_rps is not None
    return np.asarray(sure_rps[0])


def test_no_more_is_planned_on_an_idle_kernel_than_is_stated() -> None:
    """Below what step times promise, it may hold what they do not know; nobody is shed by it."""
    free, held = (_decided(_setup(stated), 2, 2)[-1] for stated in ((), (NOTHING, 3.0)))
    assert _sure_rps(free)[1] > 6.0
    assert _sure_rps(held).tolist() == [_sure_rps(free)[0], 6.0]
    np.testing.assert_array_equal(held.observation.capacity_rps, free.observation.capacity_rps)


@pytest.mark.parametrize("stated_rps", [1e3, 1e5])
def test_a_capacity_that_is_stated_too_high_says_nothing(stated_rps: float) -> None:
    """Measured step times know better."""
    free, held = (_decided(_setup(stated), 2, 2)[-1] for stated in ((), (stated_rps, stated_rps)))
    np.testing.assert_array_equal(_sure_rps(held), _sure_rps(free))


@pytest.mark.parametrize("stated_rps", [1e-3, 2.5])
@pytest.mark.parametrize("patience_s", [5.0, 20.0])
@pytest.mark.parametrize("policy", ["hysteresis", "sequential", "linear-program", "threshold"])
def test_nobody_leaves_a_kernel_that_carries_more_than_is_stated(
    stated_rps: float, patience_s: float, policy: str
) -> None:
    """Before counters have come, and after."""
    setup = _setup((stated_rps, NOTHING), policy, patience_s)
    for decision in _decided(setup, *[2] * 40):
        assert decision.plan.table[0, 0].tolist() == [1.0, 0.0, 0.0]


def test_what_a_replica_has_not_carried_goes_to_who_has_room() -> None:
    """The load of a lost replica is new to the one that is left: without a statement it stays all the same,
    and with one what is beyond it goes elsewhere.
    """
    stays, goes = (
        _decided(_setup(stated, "sequential"), *[2] * 20, *[1] * 20)[-1].plan.table[0, 0]
        for stated in ((), (6.0, NOTHING))
    )
    assert stays.tolist() == [1.0, 0.0, 0.0]
    assert goes[1] == pytest.approx(1.0 - 0.9 * 6.0 / OFFERED_RPS)
    assert goes[2] == 0.0
