"""PPO, and PPO under a PID-Lagrangian, on the vector environment. EDGE: imports torch, Stable-Baselines3.

Maximise return subject to ``cost <= limit`` (Stooke, Achiam and Abbeel 2020): the policy is trained on
``(r - multiplier c) / (1 + multiplier)``, and the multiplier follows the error ``cost - limit`` of finished
episodes by a PID controller. The Lagrangian is a wrapper that mixes cost into the reward and a callback that
moves the multiplier after every rollout; Stable-Baselines3 itself is untouched.

A rollout is one episode of every fleet, so that a run that stops between two of them can be resumed exactly
(``policies.train.checkpoint``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper

from policies.learned.choosing import InputLayout
from policies.train.policy import ChoicePolicy, one_thread
from policies.train.recipe import LagrangianRecipe, RecipeSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Multiplier:
    """State between episodes: the multiplier >= 0, the error's sum >= 0, and the last cost (None: first)."""

    value: float = 0.0
    total: float = 0.0
    last_cost: float | None = None


def follow(before: Multiplier, cost: float, recipe: LagrangianRecipe) -> Multiplier:
    """The multiplier after an episode (or a batch of them) of mean ``cost``.

    ``most`` bounds the multiplier and the sum of errors (anti-windup). The derivative counts rises alone: a
    falling cost must not lower the multiplier twice.
    """
    error = cost - recipe.limit
    total = min(max(before.total + recipe.integral * error, 0.0), recipe.most)
    rise = 0.0 if before.last_cost is None else max(cost - before.last_cost, 0.0)
    value = recipe.proportional * error + total + recipe.derivative * rise
    return Multiplier(value=min(max(value, 0.0), recipe.most), total=total, last_cost=cost)


def penalty(multiplier: float) -> tuple[float, float]:
    """Weights of reward and cost; they sum to 1, so that the scale of the return stays."""
    return 1.0 / (1.0 + multiplier), multiplier / (1.0 + multiplier)


class PenalisedVecEnv(VecEnvWrapper):
    """Rewards become ``(r - multiplier scale c) / (1 + multiplier)``, c the step's ``costs`` [B] of ``venv``.

    scale: that of the rewards. ``episode_cost`` is the mean cost per step since it was last taken.
    """

    def __init__(self, venv: VecEnv, scale: float) -> None:
        super().__init__(venv)
        self.multiplier, self._scale = Multiplier(), scale
        self._cost, self._steps = 0.0, 0

    def reset(self) -> NDArray[np.float32]:
        """As the wrapped environment."""
        return np.asarray(self.venv.reset())

    def step_wait(
        self,
    ) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.bool_], list[dict[str, Any]]]:
        """One tick with the penalised reward."""
        seen, reward, over, infos = self.venv.step_wait()
        costs = self.venv.costs
        self._cost, self._steps = self._cost + float(costs.mean()), self._steps + 1
        kept, charged = penalty(self.multiplier.value)
        mixed = kept * reward - (charged * self._scale) * costs
        return seen, mixed.astype(np.float32), over, infos

    def take_cost(self) -> float:
        """Mean cost per step since the last call."""
        mean = self._cost / max(self._steps, 1)
        self._cost, self._steps = 0.0, 0
        return mean


class LagrangianCallback(BaseCallback):
    """Moves the multiplier at the end of every rollout and logs it with the cost."""

    def __init__(self, env: PenalisedVecEnv, recipe: LagrangianRecipe) -> None:
        super().__init__()
        self._env, self._recipe = env, recipe

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        cost = self._env.take_cost()
        self._env.multiplier = follow(self._env.multiplier, cost, self._recipe)
        self.logger.record("lagrangian/cost", cost)
        self.logger.record("lagrangian/multiplier", self._env.multiplier.value)


class Stop(Protocol):
    """A flag that asks a run to stop."""

    flag: bool


class EachEpisode(BaseCallback):
    """Calls ``between`` with the number of finished rollouts before every rollout but the first.

    Training ends at once if ``stop`` is set, and at the next step if ``between`` returns False.
    """

    def __init__(self, between: Callable[[int], bool], stop: Stop, done: int = 0) -> None:
        super().__init__()
        self._between, self._stop, self._done, self._started = between, stop, done, False
        self._more = True

    def _on_rollout_start(self) -> None:
        if self._started:
            self._done += 1
            self._more = self._between(self._done)
        self._started = True

    def _on_step(self) -> bool:
        return self._more and not self._stop.flag


def build_ppo(
    env: VecEnv, layout: InputLayout, recipe: RecipeSpec, seed: int, steps: int, logger: Logger | None = None
) -> PPO:
    """PPO over ``env``, which is wrapped beforehand if a Lagrangian is used; ``steps``: of an episode."""
    one_thread()
    network = recipe.network
    kwargs = {"layout": layout, "width": network.width, "stay_bonus": network.stay_bonus}
    model = PPO(
        ChoicePolicy, env, policy_kwargs=kwargs, seed=seed, **settings_of(recipe, env.num_envs, steps)
    )
    if logger is not None:
        model.set_logger(logger)
    return model


def settings_of(recipe: RecipeSpec, fleets: int, steps: int) -> dict[str, Any]:
    """The recipe's settings of PPO by the names of Stable-Baselines3; ``steps``: of an episode."""
    ppo = recipe.ppo
    return {
        "learning_rate": ppo.learning_rate,
        "n_steps": steps,
        "batch_size": steps * fleets // ppo.minibatches,
        "n_epochs": ppo.epochs,
        "gamma": ppo.gamma,
        "gae_lambda": ppo.gae_lambda,
        "clip_range": ppo.clip_range,
        "ent_coef": ppo.entropy,
        "vf_coef": ppo.value,
        "max_grad_norm": ppo.max_grad_norm,
        "target_kl": ppo.target_kl,
        "device": "cpu",
    }


def callbacks_of(env: VecEnv, recipe: RecipeSpec) -> list[BaseCallback]:
    """The Lagrangian's callback, if there is one."""
    if recipe.lagrangian is None or not isinstance(env, PenalisedVecEnv):
        return []
    return [LagrangianCallback(env, recipe.lagrangian)]
