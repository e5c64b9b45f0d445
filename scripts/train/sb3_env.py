"""The lock-step fleets as vector environments of Stable-Baselines3: one world inside, no separate fleets.

A composition root hands it to a trainer; neither the simulator nor the trainer knows the other. When a
fleet's horizon ends, its info carries ``terminal_observation`` and ``TimeLimit.truncated``, so that the value
of the last state is bootstrapped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecEnv

from simulator.env.vector import FleetRoutingVectorEnv


class LockStepVecEnv(VecEnv):
    """``count`` fleets that ``shared`` steps together. Subclasses reset and step."""

    def __init__(self, shared: Any, count: int, observation_space: Any, action_space: Any) -> None:
        self._shared = shared
        super().__init__(count, observation_space, action_space)

    def step_async(self, actions: Any) -> None:
        """Keep ``actions`` for ``step_wait``; nothing runs in parallel."""
        self._actions = actions

    def close(self) -> None:
        """Nothing to close."""

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """The common attribute of the fleets, once per requested fleet."""
        return [getattr(self._shared, attr_name, None) for _ in self._places(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Refused: fleets in lock-step have no attributes of their own."""
        raise NotImplementedError(f"set_attr({attr_name!r}): fleets in lock-step share one environment")

    def env_method(
        self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any
    ) -> list[Any]:
        """Refused: a method would act on all fleets, not on some."""
        raise NotImplementedError(f"env_method({method_name!r}): fleets in lock-step share one environment")

    def env_is_wrapped(self, wrapper_class: type[Any], indices: Any = None) -> list[bool]:  # noqa: ARG002
        """No fleet is wrapped by itself."""
        return [False for _ in self._places(indices)]

    def _places(self, indices: Any) -> Iterable[int]:
        return list(self._get_indices(indices))


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

    shown: which terms each fleet's info carries; building infos is the cost of this adapter, and a trainer
    that reads none passes ``()``. ``costs`` float64 [B]: the last step's cost per offered request.
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
