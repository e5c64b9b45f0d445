"""Settings of offline training and evaluation."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ConservativeRecipe:
    """Settings of the training, named as in the paper.

    gamma: per tick. expectile: of V, above 0.5. beta: inverse temperature of the imitation weights, in
    1/reward after scaling to unit spread. target_rate: of the slow copy of Q. cost_weight: reward per
    request beyond a budget. hidden: layers of Q and V.
    """

    steps: int = 4000
    batch_size: int = 512
    gamma: float = 0.99
    expectile: float = 0.7
    beta: float = 3.0
    learning_rate: float = 3e-4
    target_rate: float = 0.005
    cost_weight: float = 0.005
    hidden: tuple[int, ...] = (128, 128)
    seed: int = 1

    def __post_init__(self) -> None:
        if not 0.5 <= self.expectile < 1.0:
            raise ValueError(f"expectile: expected a number in [0.5, 1), got {self.expectile}")
        if not 0.0 <= self.gamma < 1.0:
            raise ValueError(f"gamma: expected a number in [0, 1), got {self.gamma}")
        if self.cost_weight < 0.0:
            raise ValueError(f"cost_weight: expected a number >= 0, got {self.cost_weight}")


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedRecipe:
    """Settings of fitted Q."""

    steps: int = 3000
    batch_size: int = 512
    gamma: float = 0.99
    learning_rate: float = 1e-3
    members: int = 4
    hidden: tuple[int, ...] = (128, 128)
    seed: int = 1
