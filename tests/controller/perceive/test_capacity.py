"""A kernel's capacity is estimated from the counters of its engines."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from contracts.compiled.steady_state import Demand, EngineModel, capacity_rps, step_s
from contracts.telemetry import EngineCounters, FleetTelemetry
from controller.initial import initial_state
from controller.options import CapacityOptions, ControllerSetup
from controller.perceive.capacity_pass import UNBOUNDED_RPS
from controller.perceive.estimate import accumulate
from controller.state import ControllerState
from policies.registry import make_configuration
from tests.support.fleets.builders import make_fleet, make_layout, quiet_telemetry

STEP_S = np.array([[1.7e-3, 3.1e-5, 6.7e-5, 2.9e-7], [2.0e-3, 4.9e-5, 8.0e-5, 2.9e-7]])
LAYOUT = make_layout(kernels=2, slices=2, per_kernel=2)
DECLARED = Demand(prompt_tokens=512.0, output_tokens=256.0)
SCRAPES = 30


def _setup(spread: float = 0.15, first_token_s: float = np.inf) -> ControllerSetup:
    model = EngineModel(
        step_s=STEP_S,
        sequences=np.full(2, 64.0),
        kv_tokens=np.full(2, 65536.0),
        inter_token_s=0.08,
        demand=DECLARED,
        spread=spread,
        first_token_s=first_token_s,
    )
    return make_configuration("fixed", make_fleet(LAYOUT, engine=model))


def _waited_s(demand: Demand, batch: float) -> NDArray[np.float64]:
    """Seconds that the tokens of a step wait for it in total, for Poisson batch sizes."""
    base, prefill, decode, context = STEP_S[LAYOUT.replica_kernel].T
    each_s = decode + context * demand.context_tokens
    alone_s = base + prefill * batch * demand.prompt_tokens / demand.output_tokens
    return np.asarray((batch * alone_s + each_s * (batch**2 + batch))[None])


def _telemetry(
    tick: int, demand: Demand, factor: float, batch: float, idle: tuple[int, ...] = ()
) -> FleetTelemetry:
    """Five seconds of engines whose steps take ``factor`` times as long as certified."""
    owner = LAYOUT.replica_kernel
    each_s = np.array([step_s(STEP_S[k], demand, batch) * factor for k in owner])[None]
    iterations = 5.0 / each_s
    tokens = iterations * batch
    requests = tokens / demand.output_tokens
    known = {
        "span_s": np.full((1, len(owner)), 5.0),
        "iterations": iterations,
        "prompt_tokens": requests * demand.prompt_tokens,
        "generation_tokens": tokens,
        "inter_token_s": iterations * _waited_s(demand, batch) * factor,
        "inter_tokens": tokens,
        "queue_s": np.zeros_like(tokens),
        "admitted": requests,
        "finished": requests,
        "preemptions": np.zeros_like(tokens),
    }
    for name in known:
        known[name][:, idle] = np.nan
    quiet = quiet_telemetry(LAYOUT, float(5 * tick))
    return replace(quiet, engine=EngineCounters(**known), answered=np.zeros_like(quiet.answered))


def _after(
    setup: ControllerSetup, demand: Demand, factor: float, batch: float, **more: tuple[int, ...]
) -> ControllerState:
    state = initial_state(setup, 1)
    for tick in range(SCRAPES):
        state = accumulate(state, _telemetry(tick, demand, factor, batch, **more), setup).state
    return state


def _true_rps(kernel: int, demand: Demand, factor: float) -> float:
    engine = _setup().fleet.engine
    assert engine is not None
    return capacity_rps(engine, STEP_S[kernel] * factor, demand, kernel)


@given(st.floats(100.0, 2000.0), st.floats(64.0, 512.0), st.floats(0.75, 1.3), st.floats(4.0, 40.0))
def test_capacity_follows_tokens_and_speed(prompt: float, output: float, factor: float, batch: float) -> None:
    """Whatever was declared, the estimate is the model's for the measured tokens and speed."""
    setup, demand = _setup(), Demand(prompt_tokens=prompt, output_tokens=output)
    state = _after(setup, demand, factor, batch)
    true_rps = np.array([_true_rps(k, demand, factor) for k in range(2)])
    np.testing.assert_allclose(state.replica_rps[0], true_rps, rtol=0.12)
    assert (state.least_rps <= state.replica_rps).all()
    assert (state.least_rps[0] <= true_rps).all()


def test_an_idle_kernel_keeps_the_certified_speed_and_a_wider_limit() -> None:
    """Tokens are averaged over the whole fleet, speed only over the replicas that serve."""
    setup = _setup()
    state = _after(setup, DECLARED, 1.0, 20.0, idle=(2, 3))
    ratio = state.least_rps[0] / state.replica_rps[0]
    assert state.replica_rps[0, 1] == pytest.approx(_true_rps(1, DECLARED, 1.0), rel=0.05)
    assert ratio[1] < ratio[0]


@pytest.mark.parametrize("declared", [1e-3, 1e3])
def test_a_declared_capacity_does_not_matter_where_engines_are_measured(declared: float) -> None:
    """With certified engines and counters the declared capacity has no effect."""
    setup = _setup()
    wrong = replace(setup, fleet=replace(setup.fleet, capacity_rps=np.full(2, declared)))
    demand = Demand(prompt_tokens=1155.0, output_tokens=211.0)
    right, other = _after(setup, demand, 1.0, 10.0), _after(wrong, demand, 1.0, 10.0)
    np.testing.assert_array_equal(right.replica_rps, other.replica_rps)


def test_without_a_certified_engine_the_declared_capacity_is_used() -> None:
    """There is no other source."""
    setup = make_configuration("fixed", make_fleet(LAYOUT))
    state = _after(setup, DECLARED, 1.0, 10.0)
    np.testing.assert_array_equal(state.replica_rps, 100.0)
    np.testing.assert_array_equal(state.least_rps, 100.0)


@pytest.mark.parametrize(("patience_s", "bounded"), [(0.0, True), (1e6, False)])
def test_unknown_counters_leave_the_declared_request(patience_s: float, bounded: bool) -> None:
    """Without counted tokens the declared request and certified speed apply, once patience is over.

    Until then an unmeasured capacity sheds nothing; planning more load is cautious throughout.
    """
    setup = _setup()
    patient = CapacityOptions(patience_s=patience_s)
    setup = replace(setup, options=replace(setup.options, capacity=patient))
    state = _after(setup, Demand(prompt_tokens=2000.0, output_tokens=50.0), 1.3, 10.0, idle=(0, 1, 2, 3))
    told_rps = np.array([_true_rps(k, DECLARED, 1.0) for k in range(2)])
    np.testing.assert_allclose(state.replica_rps[0], told_rps if bounded else UNBOUNDED_RPS)
    assert (state.least_rps[0] < told_rps).all()


@pytest.mark.parametrize(
    ("running", "waiting", "most"), [(64.0, 30.0, 40.0), (10.0, 0.0, 0.0), (64.0, 3.0, 20.0)]
)
def test_requests_that_cannot_be_answered_in_time_are_too_many(
    running: float, waiting: float, most: float
) -> None:
    """Beyond the largest batch that keeps the inter-token objective; the emptier of two replicas counts."""
    setup = _setup()
    told = _telemetry(0, DECLARED, 1.0, 20.0)
    queued = replace(told, running=np.full((1, 4), running), waiting=np.full((1, 4), waiting))
    found = accumulate(initial_state(setup, 1), queued, setup).state.too_many[0]
    assert (found <= most).all()
    assert (found > 0.0).all() == (waiting > 0.0)
    one_full = replace(
        queued, running=np.array([[64.0, 1.0, 64.0, 1.0]]), waiting=np.array([[90.0, 0.0] * 2])
    )
    assert (accumulate(initial_state(setup, 1), one_full, setup).state.too_many == 0.0).all()


@given(st.floats(0.0, 90.0), st.floats(0.0, 90.0))
def test_the_sure_excess_is_at_most_the_expected_one(running: float, waiting: float) -> None:
    """With answers of mean length no more are late, and a waiting request may still be in time."""
    setup = _setup()
    told = _telemetry(0, DECLARED, 1.0, 20.0)
    queued = replace(told, running=np.full((1, 4), running), waiting=np.full((1, 4), waiting))
    state = accumulate(initial_state(setup, 1), queued, setup).state
    assert (state.surely_too_many <= state.too_many + 1e-9).all()
    assert (state.surely_too_many >= 0.0).all()
    if waiting == 0.0:
        assert (state.surely_too_many == 0.0).all()


@given(st.floats(0.0, 90.0), st.floats(0.0, 90.0), st.integers(0, 3), st.booleans())
def test_a_kernel_is_as_full_as_its_fullest_replica(low: float, high: float, at: int, unknown: bool) -> None:
    """A replica that reports nothing may be full; a kernel is filled exactly where requests are too many."""
    setup, told = _setup(), _telemetry(0, DECLARED, 1.0, 20.0)
    running, waiting = np.full((1, 4), low), np.zeros((1, 4))
    running[0, at] = np.nan if unknown else max(low, high)
    filled = [
        accumulate(initial_state(setup, 1), replace(told, running=each, waiting=waiting), setup).state
        for each in (running, np.full((1, 4), low), np.full((1, 4), max(low, high)))
    ]
    kernel, (mixed, lower, higher) = LAYOUT.replica_kernel[at], (one.filled_ratio[0] for one in filled)
    assert mixed[1 - kernel] == lower[1 - kernel]
    assert mixed[kernel] == (np.inf if unknown else higher[kernel])
    assert np.array_equal(higher > 1.0 + 1e-9, filled[2].too_many[0] > 1e-9)


def test_a_full_batch_in_time_has_a_queue_only_where_too_many_wait() -> None:
    """With a generous first-token objective requests may wait; with a strict one they are late at once."""
    told = _telemetry(0, DECLARED, 1.0, 20.0)
    queued = replace(told, running=np.full((1, 4), 64.0), waiting=np.full((1, 4), 3.0))
    for first_s, late in ((10.0, False), (0.05, True)):
        setup = _setup(first_token_s=first_s)
        state = accumulate(initial_state(setup, 1), queued, setup).state
        assert (state.too_many > 0.0).all()
        assert (state.surely_too_many > 0.0).all() == late


def test_without_a_certified_engine_all_waiting_requests_are_too_many() -> None:
    """Except for the few that count as no queue; unknown queues count as none."""
    setup = make_configuration("fixed", make_fleet(LAYOUT))
    told = quiet_telemetry(LAYOUT, 0.0)
    waiting = np.array([[11.0, 11.0, np.nan, np.nan]])
    queued = replace(told, running=np.full((1, 4), 20.0), waiting=waiting)
    found = accumulate(initial_state(setup, 1), queued, setup).state.too_many[0]
    np.testing.assert_allclose(found, [8.0, 0.0])


def test_load_carried_without_a_queue_is_a_lower_limit() -> None:
    """The lower limit is never below the traffic that a replica answers without a queue."""
    setup = _setup(spread=0.5)
    telemetry = _telemetry(0, DECLARED, 1.0, 1.0)
    carried = replace(telemetry, answered=np.full_like(telemetry.answered, 3))
    state = accumulate(initial_state(setup, 1), carried, setup).state
    assert (state.least_rps[0] >= np.minimum(6.0, state.replica_rps[0]) - 1e-9).all()


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.floats(0.0, 40.0))
def test_blocks_without_requests_reduce_the_capacity(one: float, other: float, running: float) -> None:
    """KV blocks in use beyond what runs reduce capacity, and leave the healthy capacity as it is."""
    setup, fewer = _setup(), sorted((one, other))
    states = []
    for used in fewer:
        seen = _telemetry(0, DECLARED, 1.0, 20.0)
        full, idle = np.full_like(seen.running, used), np.full_like(seen.running, running)
        state = accumulate(initial_state(setup, 1), replace(seen, kv_used_ratio=full, running=idle), setup)
        states.append(state.state)
    assert (states[1].replica_rps <= states[0].replica_rps).all()
    assert (states[1].least_rps <= states[0].least_rps).all()
    np.testing.assert_array_equal(states[1].healthy_rps, states[0].healthy_rps)


@pytest.mark.parametrize("used", [np.nan, 0.0, 20.0 * 768.0 / 65536.0])
def test_blocks_of_running_requests_reduce_nothing(used: float) -> None:
    """Unknown, none in use, or as many as the batch needs: the certified engine's capacity."""
    setup, seen = _setup(), _telemetry(0, DECLARED, 1.0, 20.0)
    full = np.full_like(seen.running, used)
    told = replace(seen, kv_used_ratio=full, running=np.full_like(full, 20.0))
    state = accumulate(initial_state(setup, 1), told, setup).state
    free = replace(told, kv_used_ratio=np.zeros_like(full))
    np.testing.assert_array_equal(
        state.replica_rps, accumulate(initial_state(setup, 1), free, setup).state.replica_rps
    )


def test_one_replica_without_blocks_loses_its_share() -> None:
    """One of two replicas has no block left: together they carry about half."""
    setup, seen = _setup(), _telemetry(0, DECLARED, 1.0, 20.0)
    used = np.zeros_like(seen.running)
    free = accumulate(initial_state(setup, 1), replace(seen, kv_used_ratio=used), setup).state.replica_rps[0]
    used[:, 0] = 1.0
    held = accumulate(initial_state(setup, 1), replace(seen, kv_used_ratio=used), setup).state.replica_rps[0]
    assert 0.4 * free[0] < held[0] < 0.8 * free[0]
    assert held[1] == free[1]


def test_a_growing_batch_does_not_lengthen_answers() -> None:
    """If twice as many requests began as ended, half-done ones do not change the mean answer length."""
    setup, demand = _setup(), Demand(prompt_tokens=512.0, output_tokens=256.0)
    steady = _telemetry(0, demand, 1.0, 20.0)
    engine = steady.engine
    began, ended = engine.admitted * 4.0 / 3.0, engine.admitted * 2.0 / 3.0
    prompts = engine.prompt_tokens * 4.0 / 3.0
    grows = replace(engine, admitted=began, finished=ended, prompt_tokens=prompts)
    state = accumulate(initial_state(setup, 1), replace(steady, engine=grows), setup).state
    tokens = state.request_tokens[0]
    assert tokens[3] / tokens[2] == pytest.approx(256.0)
