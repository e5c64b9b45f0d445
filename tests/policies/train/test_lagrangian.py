"""The PID of the multiplier: its sign, its bounds, and its effect on rewards."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("stable_baselines3")

from policies.train.ppo import Multiplier, follow, penalty
from policies.train.recipe import LagrangianRecipe

COSTS = st.lists(st.floats(-1.0, 1.0), min_size=1, max_size=30)


@given(costs=COSTS, limit=st.floats(-0.5, 0.5))
def test_multiplier_stays_within_its_bounds(costs: list[float], limit: float) -> None:
    """For any costs, the multiplier and its integral lie between 0 and the declared maximum."""
    recipe, state = LagrangianRecipe(limit=limit), Multiplier()
    for cost in costs:
        state = follow(state, cost, recipe)
        assert 0.0 <= state.value <= recipe.most
        assert 0.0 <= state.total <= recipe.most


def test_multiplier_follows_the_sign_of_the_error() -> None:
    """It rises while the cost is above the limit and falls back to 0 while it is below."""
    recipe, state = LagrangianRecipe(), Multiplier()
    rising = []
    for _ in range(20):
        state = follow(state, 0.5, recipe)
        rising.append(state.value)
    assert np.all(np.diff(rising) > 0.0)
    for _ in range(200):
        state = follow(state, -0.2, recipe)
    assert state.value == 0.0


def test_a_falling_cost_is_not_rewarded_twice() -> None:
    """The derivative counts only rises: at equal errors a fall gives the same as no change."""
    recipe = LagrangianRecipe()
    fell = follow(Multiplier(total=0.3, last_cost=0.9), 0.2, recipe)
    stood = follow(Multiplier(total=0.3, last_cost=0.2), 0.2, recipe)
    rose = follow(Multiplier(total=0.3, last_cost=0.0), 0.2, recipe)
    assert fell.value == stood.value < rose.value


@given(multiplier=st.floats(0.0, 100.0))
def test_weights_of_reward_and_cost_sum_to_one(multiplier: float) -> None:
    """The penalised reward keeps the scale of the return, and a multiplier of 0 is plain PPO."""
    kept, charged = penalty(multiplier)
    assert kept + charged == pytest.approx(1.0)
    assert penalty(0.0) == (1.0, 0.0)
