"""Load and capacity for planning: steady under noise, and following real changes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from controller.initial import initial_state
from controller.perceive.planning import Estimates, hold_load
from controller.state import ControllerState, altered
from policies.registry import make_configuration
from tests.support.fleets.builders import make_fleet, make_layout, quiet_telemetry

LAYOUT = make_layout(kernels=2, slices=2, per_kernel=2)
SETUP = make_configuration("fixed", make_fleet(LAYOUT))


def _walk(
    counts: NDArray[np.int64], replica_rps: NDArray[np.float64], least_rps: NDArray[np.float64]
) -> list[ControllerState]:
    """States second by second under ``counts`` [T, S] and estimates [T, K] or [K]."""
    ticks = len(counts)
    replica_rps, least_rps = (np.broadcast_to(each, (ticks, 2)) for each in (replica_rps, least_rps))
    state, seen, found = initial_state(SETUP, 1), quiet_telemetry(LAYOUT, 0.0), []
    keep = np.exp(-1.0 / SETUP.options.smoothing_s)
    for tick in range(ticks):
        fast_rps = counts[tick] if tick == 0 else keep * state.offered_rps + (1.0 - keep) * counts[tick]
        estimates = Estimates(
            passed_s=np.ones(1),
            offered_rps=np.broadcast_to(fast_rps, (1, 2)).astype(np.float64),
            replica_rps=replica_rps[tick][None].copy(),
            least_rps=least_rps[tick][None].copy(),
        )
        planning = hold_load(state, estimates, replace(seen, offered=counts[tick][None]), SETUP)
        state = altered(state, ticks=state.ticks + 1, offered_rps=estimates.offered_rps, planning=planning)
        found.append(state)
    return found


def _held(states: list[ControllerState], name: str = "offered_rps") -> NDArray[np.float64]:
    return np.array([state.planning[name][0] for state in states], dtype=np.float64)


def _changes(held: NDArray[np.float64]) -> int:
    """Ticks in which a held value changed."""
    return int((np.diff(held, axis=0) != 0.0).any(axis=1).sum())


def _poisson(seed: int, rates_rps: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.random.Generator(np.random.PCG64(seed)).poisson(rates_rps)


CALM = np.array([8.0, 9.0])
SURE = np.array([7.5, 8.5])


@pytest.mark.parametrize("seed", range(4))
def test_noise_moves_nothing(seed: int) -> None:
    """Under a constant Poisson load the held rate changes at most eight times in a later hour."""
    held = _held(_walk(_poisson(seed, np.full((4200, 2), [8.0, 30.0])), CALM, SURE))
    assert _changes(held[600:]) <= 8
    assert np.all(np.abs(held[600:] - [8.0, 30.0]) <= 0.2 * np.array([8.0, 30.0]))


def test_bursty_counts_hardly_move_the_held_rate() -> None:
    """Counts nine times as variable as Poisson's: the spread is learned, and the held rate stays as calm."""
    rng = np.random.Generator(np.random.PCG64(5))
    counts = 9 * rng.poisson(np.full((4200, 2), 30.0 / 9.0))
    states = _walk(counts, CALM, SURE)
    assert _changes(_held(states)[600:]) <= 12
    assert np.all(states[-1].planning["spread"].astype(np.float64) > 5.0)


@pytest.mark.parametrize("factor", [0.4, 2.0])
def test_a_surge_is_noticed_within_seconds_and_known_within_a_minute(factor: float) -> None:
    """A load that drops to less than half or doubles at once is followed as soon as it is certain."""
    rates = np.full((600, 2), 20.0)
    rates[300:] *= factor
    held = _held(_walk(_poisson(7, rates), CALM, SURE))
    assert np.all(np.abs(held[312] - 20.0) > 0.3 * abs(factor - 1.0) * 20.0)
    assert np.all(np.abs(held[360:] - rates[360:]) <= 0.2 * rates[360:])


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**31), rate_rps=st.floats(0.1, 3.0), burst=st.floats(1.0, 3.0))
def test_a_load_of_few_requests_is_known_in_the_end(seed: int, rate_rps: float, burst: float) -> None:
    """However high a burst made it at first: in the second hour it is mostly known as ten minutes tell it."""
    rates = np.full((7200, 2), rate_rps)
    rates[20:80] *= burst
    held = _held(_walk(_poisson(seed, rates), CALM, SURE))
    error = np.abs(np.median(held[3600:], axis=0) - rate_rps)
    assert np.all(error <= 4.0 * np.sqrt(rate_rps / 600.0))


def test_a_drift_is_followed() -> None:
    """A load that doubles in an hour is never more than 15 % away from the held rate."""
    rates = np.linspace(20.0, 40.0, 3600)[:, None] * np.ones(2)
    held = _held(_walk(_poisson(9, rates), CALM, SURE))
    assert np.all(np.abs(held[120:] - rates[120:]) <= 0.15 * rates[120:])


def test_a_capacity_ignores_noise_and_falls_at_once() -> None:
    """An estimate that wobbles by 2 % changes nothing; one that falls by half is held in the same tick."""
    rng = np.random.Generator(np.random.PCG64(11))
    wobble = np.exp(rng.normal(0.0, 0.02, (600, 2)))
    wobble[300:] *= 0.5
    held = _held(_walk(np.full((600, 2), 20), CALM * wobble, SURE * wobble), "replica_rps")
    assert _changes(held[30:300]) == 0
    assert np.all(held[300] < 0.6 * CALM)


def test_a_short_dip_does_not_lower_the_lower_limit() -> None:
    """A lower limit that dips for ten seconds is kept; one that stays low is adopted in three minutes."""
    least = np.tile(SURE, (600, 1))
    least[200:210] *= 0.7
    least[400:] *= 0.7
    held = _held(_walk(np.full((600, 2), 20), CALM, least), "least_rps")
    assert np.array_equal(held[215], held[199])
    assert np.all(held[580] <= 0.8 * SURE)


@settings(max_examples=30)
@given(st.integers(0, 2**31), st.floats(0.0, 50.0), st.floats(0.01, 3.0))
def test_a_lower_limit_is_never_above_the_estimate(seed: int, rate_rps: float, spread: float) -> None:
    """For any estimates, held values are finite and at least 0, and the limit is at most the estimate."""
    rng = np.random.Generator(np.random.PCG64(seed))
    replica = np.exp(rng.normal(2.0, spread, (60, 2)))
    least = replica * rng.uniform(0.0, 1.0, (60, 2))
    states = _walk(rng.poisson(rate_rps, (60, 2)), replica, least)
    for name in ("offered_rps", "replica_rps", "least_rps"):
        held = _held(states, name)
        assert np.isfinite(held).all()
        assert (held >= 0.0).all()
    assert np.all(_held(states, "least_rps") <= _held(states, "replica_rps"))


def test_a_new_controller_follows_its_first_minute() -> None:
    """The rate of few seconds is replaced once four times as many seconds have been seen."""
    counts = _poisson(13, np.full((64, 2), 20.0))
    held = _held(_walk(counts, CALM, SURE))
    for ticks in (4, 16, 64):
        assert np.all(np.abs(held[ticks - 1] - 20.0) <= 4.5 * np.sqrt(20.0 / ticks))
