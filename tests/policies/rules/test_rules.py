"""Fixed, uniform, threshold and the registry, recomputed from their definitions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.compiled.contract import Level
from controller.ports import Observation
from policies.registry import BASELINES, make_configuration, make_policy
from policies.spec import parse_spec
from tests.support.fleets.builders import make_fleet, make_layout
from tests.support.fleets.seen import calm, unhealthy

LAYOUT = make_layout(kernels=4, slices=2, per_kernel=2)
FLEET = make_fleet(LAYOUT)


def propose(spec: str, observation: Observation) -> np.ndarray:
    """Table [S, K + 1] that a fresh policy proposes."""
    policy = make_policy(spec, FLEET)
    return np.asarray(policy.propose(observation, policy.initial(len(observation.now_s)))[0].table[0])


def test_fixed_always_stays_home() -> None:
    """Weight 1 at home even when home is at level fallback."""
    assert propose("fixed", unhealthy(calm(FLEET), 0, 0, Level.FALLBACK))[:, 0].tolist() == [1.0, 1.0]


def test_uniform_ignores_everything() -> None:
    """1 / K everywhere, nothing shed."""
    table = propose("shield-alone", unhealthy(calm(FLEET), 0, 0, Level.FALLBACK))
    assert table.tolist() == [[0.25, 0.25, 0.25, 0.25, 0.0]] * 2


def test_guard_moves_the_stated_share_of_only_that_slice() -> None:
    """Level guard moves ``guard_share`` to another compliant kernel; other slices stay whole."""
    table = propose("threshold:guard_share=0.3", unhealthy(calm(FLEET), 0, 1, Level.GUARD))
    assert table[0].tolist() == [1.0, 0.0, 0.0, 0.0, 0.0]
    assert table[1].tolist() == pytest.approx([0.7, 0.3, 0.0, 0.0, 0.0])


def test_fallback_prefers_known_good_then_the_best_certified() -> None:
    """Level fallback empties home: known-good if it complies, else the largest compliant kernel."""
    seen = unhealthy(calm(FLEET), 0, 0, Level.FALLBACK)
    assert propose("threshold", seen)[0].tolist() == [0.0, 0.0, 0.0, 1.0, 0.0]
    twice = seen.capacity_rps * [1.0, 1.0, 2.0, 1.0]
    seen = unhealthy(replace(seen, capacity_rps=twice, sure_rps=twice), 3, 0, Level.GUARD)
    assert propose("threshold", seen)[0].tolist() == [0.0, 0.0, 1.0, 0.0, 0.0]


def test_an_alarm_that_only_informs_moves_nothing() -> None:
    """Health below the guard threshold (L1), at home or on the target, does not change the table."""
    seen = unhealthy(calm(FLEET), 0, 0, Level.GUARD)
    health = seen.health.copy()
    health[:, 1] = 0.4
    np.testing.assert_array_equal(
        propose("threshold", replace(seen, health=health)), propose("threshold", seen)
    )


def test_hysteresis_takes_the_healthiest_target() -> None:
    """With no failover target in memory, hysteresis goes where health is best."""
    seen = unhealthy(calm(FLEET), 0, 0, Level.GUARD)
    health = seen.health.copy()
    health[:, 1] = 0.4
    assert propose("hysteresis", replace(seen, health=health))[0].tolist() == [0.0, 0.0, 1.0, 0.0, 0.0]


@pytest.mark.parametrize("shed, column", [(True, 4), (False, 3)])
def test_without_certified_kernel_the_contract_chooses(shed: bool, column: int) -> None:
    """Without a target: shed, or serve known-good, as the contract states."""
    seen = calm(FLEET)
    for kernel in range(4):
        seen = unhealthy(seen, kernel, 0, Level.FALLBACK)
    fleet = replace(FLEET, contract=replace(FLEET.contract, shed_when_uncertified=shed))
    for name in ("threshold", "hysteresis"):
        policy = make_policy(name, fleet)
        assert policy.propose(seen, policy.initial(1))[0].table[0, 0, column] == 1.0


def test_home_without_replicas_counts_as_fallback() -> None:
    """A home kernel without replicas in rotation is left, healthy or not."""
    seen = calm(FLEET)
    ready, capacity = seen.ready.copy(), seen.capacity_rps.copy()
    ready[:, 0], capacity[:, 0] = 0, 0.0
    down = replace(seen, ready=ready, capacity_rps=capacity, sure_rps=capacity)
    assert propose("threshold", down)[:, 3].tolist() == [
        1.0,
        1.0,
    ]


@given(st.integers(0, 2**32 - 1), st.floats(0.0, 1.0))
def test_threshold_is_its_definition(seed: int, share: float) -> None:
    """For every state of levels and certificates the table is the rule's, written out plainly."""
    rng = np.random.Generator(np.random.PCG64(seed))
    level = rng.integers(0, 3, (1, 4, 2))
    certified = rng.random((1, 4, 2)) < 0.7
    seen = replace(calm(FLEET), level=level, health=level + rng.random((1, 4, 2)), certified=certified)
    table = propose(f"threshold:guard_share={share}", seen)
    for s in range(2):
        good = [k for k in range(4) if level[0, k, s] == 0 and certified[0, k, s]]
        others = [k for k in good if k != 0]
        expected = np.zeros(5)
        if level[0, 0, s] == 0 or (level[0, 0, s] == 1 and not others):
            expected[0] = 1.0
        elif level[0, 0, s] == 1:
            expected[0], expected[others[0]] = 1.0 - share, share
        else:
            expected[3 if 3 in good or not others else others[0]] = 1.0
        np.testing.assert_allclose(table[s], expected, atol=1e-6)


def test_specs_are_parsed_or_refused() -> None:
    """Text and keywords set parameters; unknown names, keys and values are named."""
    assert parse_spec("hysteresis:dwell_s=60,step_s=5") == ("hysteresis", {"dwell_s": 60.0, "step_s": 5.0})
    assert make_policy("threshold", FLEET).policy_id == "threshold"
    assert make_policy("threshold:guard_share=0.25", FLEET).policy_id == "threshold:guard_share=0.25"
    assert make_policy("hysteresis", FLEET, step_s=5).policy_id == "hysteresis:step_s=5"
    for spec, message in (
        ("oracle", "unknown policy 'oracle'; known: breaker"),
        ("threshold:speed=1", "unknown parameter 'speed'; known: fill_ratio"),
        ("fixed:speed=1", "known: none"),
        ("threshold:guard_share", "expected key=number"),
        ("threshold:guard_share=half", "expected key=number"),
        ("threshold:guard_share=nan", "finite"),
        ("threshold:guard_share=1.5", "between 0 and 1, got 1.5"),
        ("hysteresis:dwell_s=-5", "dwell_s: expected a finite number >= 0, got -5"),
    ):
        with pytest.raises(ValueError, match=message):
            make_policy(spec, FLEET)


def test_configurations_differ_by_their_levers() -> None:
    """Fixed-bare and breaker act without quarantine and shield; the rules act with both."""
    levers = {name: make_configuration(name, FLEET).options for name in BASELINES}
    assert [(levers[name].quarantine, levers[name].shield) for name in sorted(levers)] == [
        (False, False),  # breaker
        (True, True),  # burn-rate
        (True, False),  # fixed
        (False, False),  # fixed-bare
        (True, True),  # hysteresis
        (True, True),  # informed
        (True, True),  # linear-program
        (True, True),  # sequential
        (False, True),  # shield-alone
        (True, True),  # threshold
    ]
