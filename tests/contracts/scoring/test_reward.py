"""The reward: bounds, and one meaning for numbers, arrays and compiled code."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.jit import compiled
from contracts.scoring.reward import RewardWeights, capacity_of, goodput_of, quality_of, reward_of

RATIO = st.floats(0.0, 1.0)
COUNT = st.integers(0, 10_000)

WEIGHTS = RewardWeights()


@given(good=COUNT, bad=COUNT, excess=st.floats(0.0, 1e5), tokens=COUNT, moved=RATIO, work=RATIO)
def test_a_reward_keeps_its_bounds(
    good: int, bad: int, excess: float, tokens: int, moved: float, work: float
) -> None:
    """Goodput, quality and capacity are ratios, and the reward lies in [-w_move - w_capacity, 1]."""
    goodput, quality = goodput_of(good, good + bad), quality_of(excess, tokens, WEIGHTS.quality)
    capacity = capacity_of(work * good, good)
    for ratio in (goodput, quality, capacity):
        assert 0.0 <= ratio <= 1.0
    reward = reward_of(goodput, quality, moved, capacity, WEIGHTS.move, WEIGHTS.capacity)
    assert -WEIGHTS.move - WEIGHTS.capacity <= reward <= 1.0


def test_the_reward_of_a_tick_by_hand() -> None:
    """Of 10 requests 8 were good and answers lost a tenth; half moved; answers cost half of the maximum."""
    goodput, quality = goodput_of(8, 10), quality_of(10.0, 100.0, 1.0)
    assert goodput == 0.8
    assert quality == 0.9
    expected = 0.8 * 0.9 - 0.02 * 0.5 - 0.02 * 0.5
    assert reward_of(goodput, quality, 0.5, capacity_of(5.0, 10.0), 0.02, 0.02) == pytest.approx(expected)


def test_an_empty_tick_is_worth_its_moves() -> None:
    """Without requests goodput and capacity are 0 and nothing is divided by zero."""
    assert goodput_of(0, 0) == 0.0
    assert quality_of(0.0, 0.0, 1.0) == 1.0
    assert capacity_of(0.0, 0) == 0.0


@pytest.mark.parametrize(
    ("law", "arguments"),
    [
        (goodput_of, (7.0, 9.0)),
        (quality_of, (3.3, 17.0, 1.7)),
        (capacity_of, (2.1, 7.0)),
        (reward_of, (0.71, 0.93, 0.13, 0.57, 0.02, 0.03)),
    ],
)
def test_compiled_code_means_the_same(law: object, arguments: tuple[float, ...]) -> None:
    """Numbers, arrays and compiled code give the same bits."""
    assert callable(law)
    plain = law(*arguments)
    assert compiled(law)(*arguments) == plain
    arrays = [np.full(3, number) for number in arguments]
    assert (law(*arrays) == plain).all()


def test_weights_are_numbers_from_zero_on() -> None:
    """A bad weight is reported with its name, what was expected and what was given."""
    with pytest.raises(ValueError, match="reward weight move: expected a number >= 0, got -1"):
        RewardWeights(move=-1.0)
    with pytest.raises(ValueError, match="reward weight quality"):
        RewardWeights(quality=float("inf"))
