"""The lock-step fleets as a vector environment of Stable-Baselines3.

A composition root hands it to a trainer; neither the simulator nor the trainer knows the other. Where a
fleet's horizon ends, its info carries ``terminal_observation`` and ``TimeLimit.truncated``, so that the
value of the last state is bootstrapped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scripts.train.lockstep import LockStepVecEnv
from simulator.env.vector import FleetRoutingVectorEnv

#: What every step's info holds: ``costs`` float64 [C], all others floats.
SHOWN = (
    "costs",
    "cost",
    "shielded",
    "goodput",
    "quality",
    "moved",
    "capacity",
    "offered",
    "failed",
    "shed",
    "exposed",
)


class FleetVecEnv(LockStepVecEnv):
    """``env`` for Stable-Baselines3. One seed serves all fleets, which differ by their number.

    shown: which terms each fleet's info carries; building infos is what this adapter costs, and a trainer
    that reads none asks for ``()``. ``costs`` float64 [B]: the last step's cost per offered request.
    """

    def __init__(self, env: FleetRoutingVectorEnv, shown: Sequence[str] = SHOWN) -> None:
        self.env, self.shown = env, tuple(shown)
        self._seed: int | None = None
        super().__init__(env, env.num_envs, env.single_observation_space, env.single_action_space)

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Seed of the next reset."""
        self._seed = seed
        return [seed] * self.num_envs

    def reset(self) -> NDArray[np.float32]:
        """First observations, float32 [B, size]."""
        observation, infos = self.env.reset(seed=self._seed)
        self._seed = None
        self.reset_infos = [{"family": family} for family in infos["family"]]
        return np.asarray(observation)

    def step_wait(
        self,
    ) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.bool_], list[dict[str, Any]]]:
        """One tick of every fleet."""
        seen, reward, _, over, infos = self.env.step(self._actions)
        self.costs = infos["cost"] / np.maximum(infos["offered"], 1.0)
        rows: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        if self.shown:
            columns = [infos[name] if name == "costs" else infos[name].tolist() for name in self.shown]
            rows = [dict(zip(self.shown, row, strict=True)) for row in zip(*columns, strict=True)]
        if over.any():
            for row, last in zip(rows, infos["final_obs"], strict=True):
                row |= {"terminal_observation": last, "TimeLimit.truncated": True}
        return seen, reward.astype(np.float32), over, rows
