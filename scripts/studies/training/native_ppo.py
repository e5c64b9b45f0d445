"""EDGE (torch, Stable-Baselines3): its PPO on ``Selvage/FleetRouting-v0`` in lock-step, timed and examined.

What ``selvage bench train`` measures beside the shipped recipe: the library's own ``MlpPolicy`` (64 by 64) on
the native vector environment of ``selvage bench env``, with large batches, few epochs and one torch thread.
``selvage bench samples`` asks what these settings cost: the same number of steps under the library's usual
batch and epochs (``small``), from equal weights.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from stable_baselines3 import PPO
from stable_baselines3.common.logger import configure
from stable_baselines3.common.utils import set_random_seed

from policies.train.policy import one_thread
from policies.train.ppo import LagrangianCallback, PenalisedVecEnv
from policies.train.recipe import LagrangianRecipe
from scripts.studies.training.measured_env import LIBRARY, make_config, timed, write_scenario
from scripts.train.sb3_env import FleetVecEnv
from simulator.env.core import EnvConfig
from simulator.env.vector import FleetRoutingVectorEnv

#: Fleets and ticks of a rollout.
FLEETS, TICKS = 256, 64
#: Of the timed training; a shove of the routing table shows within seconds, so the future is short.
LARGE = {"batch_size": 4096, "n_epochs": 2, "learning_rate": 1e-3}
#: Stable-Baselines3's defaults.
SMALL = {"batch_size": 64, "n_epochs": 10, "learning_rate": 3e-4}
HORIZON = {"gamma": 0.9, "gae_lambda": 0.9}
#: Fleets and seed of the episodes that trained policies are examined on.
EXAM_FLEETS, EXAM_SEED = 64, 10_000

Figures = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """CPU seconds of ``steps`` environment steps end to end, and of these in the environment and updates."""

    steps: int
    whole_s: float
    env_s: float
    update_s: float


def environment(folder: Path) -> EnvConfig:
    """The environment of ``selvage bench env``, its scenario written into ``folder``."""
    return make_config(write_scenario(folder, f"{LIBRARY}/suites/e5-pool.yaml"))


def make_env(config: EnvConfig, fleets: int) -> FleetVecEnv:
    """``fleets`` fleets for a trainer that reads no infos."""
    return FleetVecEnv(FleetRoutingVectorEnv(fleets, config), shown=())


def make_model(env: Any, seed: int, settings: dict[str, Any]) -> PPO:
    """PPO with Stable-Baselines3's own network, on one torch thread."""
    one_thread()
    model = PPO("MlpPolicy", env, n_steps=TICKS, seed=seed, device="cpu", **HORIZON, **settings)
    model.set_logger(configure(None, []))
    return model


class Timed:
    """A model whose environment and updates are timed. lagrangian: costs are mixed into its rewards."""

    def __init__(self, config: EnvConfig, seed: int, *, lagrangian: bool = False) -> None:
        env: Any = make_env(config, FLEETS)
        self._spent_s = {"env": 0.0, "update": 0.0}
        env.step_wait = timed(env.step_wait, "env", self._spent_s)
        self._callbacks: list[Any] = []
        if lagrangian:
            env = PenalisedVecEnv(env, 1.0)
            self._callbacks.append(LagrangianCallback(env, LagrangianRecipe()))
        self.model = make_model(env, seed, LARGE)
        self.model.train = timed(self.model.train, "update", self._spent_s)
        self._rollout = FLEETS * TICKS

    def run(self, rollouts: int) -> Spent:
        """Collect and update ``rollouts`` times, going on where the last call stopped."""
        self._spent_s |= {"env": 0.0, "update": 0.0}
        steps, began = rollouts * self._rollout, time.process_time()
        self.model.learn(steps, callback=self._callbacks or None, reset_num_timesteps=False)
        whole_s = time.process_time() - began
        return Spent(
            steps=steps, whole_s=whole_s, env_s=self._spent_s["env"], update_s=self._spent_s["update"]
        )


def speed(config: EnvConfig, seed: int, runs: int, rollouts: int) -> Figures:
    """Steps per CPU second, where they go, and what the Lagrangian adds; plain and with it by turns."""
    plain, penalised = Timed(config, seed), Timed(config, seed, lagrangian=True)
    for warmed in (plain, penalised):
        warmed.run(1)
    pairs = [(plain.run(rollouts), penalised.run(rollouts)) for _ in range(runs)]
    rates = [own.steps / own.whole_s for own, _ in pairs]
    whole_s = sum(own.whole_s for own, _ in pairs)
    return {
        "ppo_fleets": FLEETS,
        "ppo_batch": LARGE["batch_size"],
        "ppo_epochs": LARGE["n_epochs"],
        "ppo_runs": runs,
        "ppo_steps_timed": pairs[0][0].steps * runs,
        "ppo_steps_per_cpu_s": round(statistics.median(rates)),
        "ppo_steps_per_cpu_s_fastest": round(max(rates)),
        "ppo_env_share": round(sum(own.env_s for own, _ in pairs) / whole_s, 3),
        "ppo_update_share": round(sum(own.update_s for own, _ in pairs) / whole_s, 3),
        "lagrangian_over_ppo": round(statistics.median(more.whole_s / own.whole_s for own, more in pairs), 3),
    }


def study(
    config: EnvConfig, seeds: Sequence[int], rollouts: int, report: Callable[[str], None] = lambda _: None
) -> Figures:
    """Reward per tick after equal numbers of steps, small batches against large, over ``seeds``.

    ``report`` hears of each training as it ends, so that an interrupted study leaves what it has.
    """
    exam = make_env(config, EXAM_FLEETS)
    ways = {"small": SMALL, "large": LARGE}
    trained: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for seed in seeds:
        for name, how in ways.items():
            trained[name].append(_learned(config, exam, seed, how, rollouts))
            reward, spent_s = trained[name][-1]
            report(f"seed {seed}, {name}: reward {reward:.5f} per tick, {spent_s:.0f} CPU s")
    figures: Figures = {
        "steps": rollouts * FLEETS * TICKS,
        "seeds": len(seeds),
        "reward_untrained": round(examine(make_model(exam, seeds[0], LARGE), exam), 5),
    }
    for name, how in ways.items():
        figures[f"{name}_batch"] = how["batch_size"]
        figures[f"{name}_epochs"] = how["n_epochs"]
        figures[f"{name}_rewards"] = [round(reward, 5) for reward, _ in trained[name]]
        figures[f"{name}_reward"] = round(statistics.mean(reward for reward, _ in trained[name]), 5)
        figures[f"{name}_cpu_s"] = round(statistics.mean(spent_s for _, spent_s in trained[name]), 1)
    gains = [a - b for (a, _), (b, _) in zip(trained["small"], trained["large"], strict=True)]
    low, high = t_interval(gains)
    return figures | {
        "small_minus_large": round(statistics.mean(gains), 5),
        "small_minus_large_95": [round(low, 5), round(high, 5)],
    }


def _learned(
    config: EnvConfig, exam: FleetVecEnv, seed: int, settings: dict[str, Any], rollouts: int
) -> tuple[float, float]:
    """(reward per tick in the examination, CPU seconds of training)."""
    began = time.process_time()
    model = make_model(make_env(config, FLEETS), seed, settings)
    model.learn(rollouts * FLEETS * TICKS)
    spent_s = time.process_time() - began
    return examine(model, exam), spent_s


def examine(model: PPO, exam: FleetVecEnv) -> float:
    """Mean reward per tick of the policy as it drives, actions drawn, over one episode of every fleet."""
    set_random_seed(EXAM_SEED)
    exam.seed(EXAM_SEED)
    seen, rewards, over = exam.reset(), [], False
    while not over:
        seen, reward, done, _ = exam.step(_drawn(model, seen))
        rewards.append(float(reward.mean()))
        over = bool(done[0])
    return statistics.mean(rewards)


def _drawn(model: PPO, seen: NDArray[np.float32]) -> NDArray[np.float32]:
    action, _ = model.predict(seen, deterministic=False)
    return np.asarray(np.clip(action, -1.0, 1.0))


def t_interval(values: Sequence[float]) -> tuple[float, float]:
    """95 % interval of the mean by Student's t; endless with a single value."""
    if len(values) < 2:
        return -np.inf, np.inf
    half = float(stats.t.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / len(values) ** 0.5
    mean = statistics.mean(values)
    return mean - half, mean + half
