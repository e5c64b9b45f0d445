"""The value of a tick in training, and the objective by which policies are compared."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.train.recipe import RewardRecipe

WEIGHTS = RewardRecipe()

shares = st.floats(0.0, 1.0)


def test_the_objective_grows_with_every_loss() -> None:
    """Less reward, more weight on unhealthy kernels and more false switches cost their stated prices."""
    base = WEIGHTS.objective(0.98, 0.01, 1e-4)
    assert WEIGHTS.objective(0.97, 0.01, 1e-4) == pytest.approx(base + 0.01)
    assert WEIGHTS.objective(0.98, 0.03, 1e-4) == pytest.approx(base + 0.02 * WEIGHTS.violating)
    assert WEIGHTS.objective(0.98, 0.01, 2e-4) == pytest.approx(base + 1e-4 * WEIGHTS.false_switch)


@given(shares, shares, shares)
def test_training_maximises_what_the_objective_minimises(
    reward: float, unhealthy: float, false: float
) -> None:
    """The value of a tick is the negative objective of its terms, scaled."""
    worth = WEIGHTS.of_ticks(np.array([reward]), np.array([unhealthy]), np.array([false]))
    assert worth == pytest.approx(
        [-WEIGHTS.scale * WEIGHTS.objective(reward, unhealthy, false)], rel=1e-12, abs=1e-12
    )
