"""When a kernel counts as overloaded, which excuses its late answers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.telemetry import Source
from controller.cells import LEAST_BEHIND
from controller.initial import initial_state
from controller.options import ControllerSetup
from controller.perceive.estimate import accumulate
from controller.perceive.reception import MOST_BEHIND_S
from policies.registry import make_configuration
from tests.support.fleets.builders import Clause, make_contract, make_fleet, make_layout, quiet_telemetry

LAYOUT = make_layout(kernels=2, slices=2, per_kernel=2)


def setup(rps: float, objective_ms: float = 1000.0) -> ControllerSetup:
    """A controller of kernels with two replicas of ``rps`` each and a first-token objective."""
    ttft = Clause(
        name="ttft", source=Source.LATENCY, column=1, edge=8, threshold=objective_ms, rate_limit=0.05
    )
    contract = make_contract(LAYOUT, (ttft,))
    fleet = make_fleet(LAYOUT, contract=contract, capacity_rps=np.full(2, rps))
    return make_configuration("fixed", fleet)


@given(st.lists(st.integers(0, 400), min_size=1, max_size=40), st.floats(1.0, 50.0))
def test_a_kernel_with_a_backlog_is_overloaded_until_it_has_caught_up(came: list[int], rps: float) -> None:
    """By Lindley's recursion: a burst overloads from one second of work on, without any smoothing."""
    config = setup(rps)
    config = replace(config, options=replace(config.options, smoothing_s=1e9))
    state, behind, carried = initial_state(config, 1), 0.0, 2.0 * rps
    quiet = replace(quiet_telemetry(LAYOUT, 0.0), offered=np.zeros((1, 2), dtype=np.int64))
    state = accumulate(state, quiet, config).state
    for tick, offered in enumerate(came, start=1):
        seen = replace(quiet, now_ms=np.array([1000.0 * tick]), offered=np.array([[offered, 0]]))
        state = accumulate(state, seen, config).state
        behind = min(max(behind + offered * state.table[0, 0, 0] - carried, 0.0), MOST_BEHIND_S * carried)
        assert state.behind[0, 0] == pytest.approx(behind)
        assert (state.overloaded_at_s[0, 0] == float(tick)) == (behind > max(carried, LEAST_BEHIND))


def _excused(came: np.ndarray, rps: float, objective_ms: float = 1000.0) -> np.ndarray:
    """bool [ticks]: late answers are excused, for a kernel with two replicas of ``rps`` each.

    ``came``: requests that arrive in each second.
    """
    config = setup(rps, objective_ms)
    state, excused = initial_state(config, 1), []
    quiet = replace(quiet_telemetry(LAYOUT, 0.0), offered=np.zeros((1, 2), dtype=np.int64))
    state = accumulate(state, quiet, config).state
    for tick, offered in enumerate(came, start=1):
        seen = replace(quiet, now_ms=np.array([1000.0 * tick]), offered=np.array([[offered, 0]]))
        state = accumulate(state, seen, config).state
        excused.append(tick - state.overloaded_at_s[0, 0] < config.contract.window_s)
    return np.array(excused)


@pytest.mark.parametrize("rps", [0.1, 0.25, 1.0, 10.0])
def test_late_answers_are_excused_by_overload_and_not_by_slow_requests(rps: float) -> None:
    """At half of its capacity hardly ever, however slow the kernel is; at twice its capacity always."""
    chance = np.random.Generator(np.random.PCG64(3))
    assert _excused(chance.poisson(rps, 3600), rps).mean() < 0.05
    assert _excused(chance.poisson(4.0 * rps, 3600), rps).mean() > 0.9


@pytest.mark.parametrize(("objective_ms", "excused"), [(1000.0, True), (3000.0, True), (30000.0, False)])
def test_a_burst_excuses_only_a_wait_of_half_the_objective(objective_ms: float, excused: bool) -> None:
    """Two seconds of work at once, between seconds at half of the capacity."""
    came = np.full(60, 10)
    came[30] = 60
    assert _excused(came, 10.0, objective_ms).any() == excused


@given(st.integers(0, 20), st.integers(0, 60), st.booleans())
def test_failures_of_a_needed_member_reduce_the_kernels_capacity(
    failed: int, offered: int, needed: bool
) -> None:
    """Failed attempts, of 20 each, are retried on its peer; a member that can be spared changes nothing."""
    config = setup(10.0)
    config = replace(config, options=replace(config.options, smoothing_s=1e9))
    state = initial_state(config, 1)
    counts = np.array([[20, 20, 0, 0]])
    first = replace(
        quiet_telemetry(LAYOUT, 0.0),
        offered=np.array([[offered, 0]]),
        answered=counts - np.array([[failed, 0, 0, 0]]),
        failed=np.array([[failed, 0, 0, 0]]),
    )
    state = replace(state, needed=np.array([[needed, False, False, False]]))
    state = accumulate(state, first, config).state
    carried = 10.0 * (2.0 - (failed / 20.0 if needed else 0.0))
    assert state.behind[0, 0] == pytest.approx(max(offered * state.table[0, 0, 0] - carried, 0.0))
    overloaded = offered * state.table[0, 0, 0] > carried + 1e-9
    assert overloaded == bool(np.isfinite(state.overloaded_at_s[0, 0])) or offered == carried
