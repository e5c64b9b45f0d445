"""Without certified values, a kernel is certified again once it is within what it gave in health."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from contracts.rng import stream
from contracts.telemetry import ProbeSamples
from controller.detect.bounds import BoundsPlan, bounds_plan, bounds_tick, initial_bounds
from controller.detect.bounds_pass import bound
from controller.detect.detector import DetectorState
from controller.fleet import FleetSetup
from policies.registry import make_configuration
from tests.controller.detect.test_as_certified import of_some_probes
from tests.support.fleets.certified_fleets import LAYOUT, Change, certified_fleet, scaled, telemetry_of
from tests.support.fleets.worlds import run

#: All replicas of the first kernel, which is the home of every slice.
BUILD = [0, 1, 2, 3]


def plan_of(fleet: FleetSetup) -> BoundsPlan:
    """Bounds of ``fleet``."""
    plan = bounds_plan(fleet, confidence=0.95)
    assert plan is not None
    return plan


def condemned(seconds: int, change: Change, noise: float = 0.0, settings: str = "") -> NDArray[np.bool_]:
    """bool [T, S]: the home kernel is not certified; the fleet has no certified values."""
    fleet = certified_fleet(noise)
    setup = make_configuration(f"sequential{settings}", replace(fleet, certified=None))
    ticks = run(setup, telemetry_of(fleet, seconds, change))
    return np.stack([~one.observation.certified[0, 0] for one in ticks.decisions])


def probe(prompt: int, value: float, replica: int = 0) -> ProbeSamples:
    """One probe of the first slice with ``value`` as its first metric."""
    return ProbeSamples.of_results(
        replica=np.array([[replica]]),
        slice=np.array([[0]]),
        prompt=np.array([[prompt]]),
        sampled_at_ms=np.zeros((1, 1)),
        values=np.array([[[value, np.nan]]]),
        valid=np.ones((1, 1), dtype=np.bool_),
    )


def taught(plan: BoundsPlan, told: list[tuple[int, float]], teaches: bool = True) -> DetectorState:
    """Memory after probes of these (prompt, value), one after the other."""
    state, teaching = initial_bounds(1, plan), np.full((1, len(LAYOUT.replicas)), teaches)
    one = np.ones((1, 1), dtype=np.bool_)
    for prompt, value in told:
        state = bounds_tick(state, probe(prompt, value), one, one, teaching, plan)
    return state


def worst_of(state: DetectorState) -> NDArray[np.float64]:
    """float64 [N]: the worst values of the first kernel, slice and clause."""
    return np.asarray(state["worst"], dtype=np.float64)[0, 0, 0, :, 0].copy()


@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_a_build_is_certified_again_as_soon_as_it_is_within_its_bounds(noise: float) -> None:
    """Eight probes a second: condemned while it drifts, certified again ten seconds after, not in minutes."""
    told = condemned(240, scaled(BUILD, 20.0, 50.0, 120.0), noise)
    assert told[70:120].all()
    assert not told[130:].any()
    assert condemned(140, scaled(BUILD, 20.0, 50.0, 120.0), noise, ":drift=0")[-1].all()


def test_a_fault_in_few_probes_is_not_cleared_by_the_matches_between() -> None:
    """A fifth of the probes stays far off: runs of a dozen matches are frequent, and none certifies it."""
    told = np.asarray(condemned(400, of_some_probes(0.2, 100.0, 50.0), 0.1).any(axis=1))
    first = int(told.argmax())
    assert 50 <= first < 200
    assert told[first:].all()


def test_a_build_that_was_unhealthy_from_the_start_is_not_cleared_by_its_own_values() -> None:
    """Values that break the clause are not learned, so a fault is not taken for health."""
    assert condemned(400, scaled(BUILD, 20.0, 0.0), 0.1)[60:].all()


@given(
    st.lists(st.tuples(st.integers(0, 5), st.floats(0.0, 0.3)), min_size=1, max_size=40),
    st.integers(0, 2**16),
)
def test_values_within_the_bounds_keep_the_clause(told: list[tuple[int, float]], seed: int) -> None:
    """The mean of any values within the bounds of all prompts is at most the limit, whatever was learned.

    So is the mean with as many prompts that were never seen.
    """
    plan = plan_of(certified_fleet())
    limit = float(plan.rules.limit[0])
    state = taught(plan, told)
    worst = worst_of(state)
    seen = np.flatnonzero(np.isfinite(worst))
    if not seen.size:
        return
    bounds = np.array([bound(worst, int(n), limit, False) for n in seen])
    values = bounds - stream(seed, "below").uniform(0.0, 0.01, seen.size)
    assert np.mean(worst[seen]) <= limit * (1.0 + 1e-12)
    assert (bounds >= worst[seen] * (1.0 - 1e-12)).all()
    assert np.mean(values) <= limit * (1.0 + 1e-12)
    assert np.mean([bounds.mean(), bound(worst, -1, limit, False)]) <= limit * (1.0 + 1e-12)


def test_only_values_within_a_bound_move_it() -> None:
    """A far larger value of a known prompt differs and is not learned; a slightly larger one is."""
    plan = plan_of(certified_fleet())
    known = [(1, 0.01), (2, 0.02)]
    before = worst_of(taught(plan, known))
    assert np.array_equal(worst_of(taught(plan, [*known, (1, 0.2)])), before, equal_nan=True)
    assert 0.015 <= worst_of(taught(plan, [*known, (1, 0.015)]))[0] <= 0.015 * (1.0 + 1.0 / 32.0)


@pytest.mark.parametrize("value", [np.inf, -np.inf])
@pytest.mark.parametrize("is_rate", [False, True])
def test_what_is_no_number_differs_and_is_not_learned(value: float, is_rate: bool) -> None:
    """Without a clip an infinite value is beyond every bound and leaves the bounds unchanged."""
    plan = plan_of(certified_fleet())
    everywhere = np.ones_like(plan.rules.limit)
    rules = plan.rules._replace(
        is_rate=everywhere > (0.0 if is_rate else 1.0), rate_limit=0.9 * everywhere, clip=np.inf * everywhere
    )
    state = taught(replace(plan, rules=rules), [(1, 0.01), (2, value)])
    assert np.isfinite(worst_of(state)).sum() == 1
    assert np.asarray(state["runs"])[0, 0, -1, 2] == 1.0


def test_the_input_state_does_not_change() -> None:
    """The state before a tick is left as it was."""
    plan = plan_of(certified_fleet())
    before = taught(plan, [(1, 0.01)])
    kept = {name: np.array(array) for name, array in before.items()}
    teaching, one = np.ones((1, len(LAYOUT.replicas)), dtype=np.bool_), np.ones((1, 1), dtype=np.bool_)
    for prompt, value in ((1, 0.012), (2, 0.01), (1, 0.4)):
        bounds_tick(before, probe(prompt, value), one, one, teaching, plan)
    assert all(np.array_equal(kept[name], before[name], equal_nan=name == "worst") for name in kept)


def test_replicas_in_doubt_are_not_learned_from() -> None:
    """Values of a replica in doubt are compared and not remembered."""
    plan = plan_of(certified_fleet())
    assert np.isnan(worst_of(taught(plan, [(1, 0.01)], teaches=False))).all()


def test_a_prompt_without_a_place_is_judged_by_the_others() -> None:
    """With more prompts than places nothing is overwritten; further prompts share what is left."""
    plan = plan_of(certified_fleet())
    state = taught(plan, [(prompt, 0.01) for prompt in range(90)])
    prompts = np.asarray(state["prompts"])[0, 0]
    assert prompts.tolist() == list(range(prompts.size))
    whole = np.asarray(state["runs"])[0, 0, -1]
    assert whole[0] == 90 - prompts.size  # one match each; what was learned counts for nothing
    limit = float(plan.rules.limit[0])
    assert bound(worst_of(state), -1, limit, False) == pytest.approx(limit + 0.5 * (limit - 0.01), rel=0.01)


@pytest.mark.parametrize(("own", "expected"), [(np.nan, -0.9), (-0.95, -0.9), (-0.8, -0.8)])
def test_the_bound_of_a_rate_is_its_limit(own: float, expected: float) -> None:
    """Or the worst value, where a healthy prompt lies beyond it; "at least" clauses are signed."""
    assert bound(np.array([own, np.nan]), 0, -0.9, True) == expected
