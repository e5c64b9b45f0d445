"""Stable-Baselines3's own PPO on ``Selvage/FleetRouting-v0`` in lock-step, timed. EDGE: imports torch.

Measured by ``selvage bench train`` beside the shipped recipe: the library's own ``MlpPolicy`` (64 by 64) on
the native vector environment of ``selvage bench env``, with large batches, few epochs and one torch thread.
``selvage bench samples`` measures the cost of these settings.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stable_baselines3 import PPO
from stable_baselines3.common.logger import configure

from contracts.loading.shipped import LIBRARY
from policies.train.policy import one_thread
from policies.train.ppo import LagrangianCallback, PenalisedVecEnv
from policies.train.recipe import LagrangianRecipe
from scripts.studies.training.measured_env import make_config, timed, write_scenario
from scripts.train.sb3_env import FleetVecEnv
from simulator.env.core import EnvConfig
from simulator.env.vector import FleetRoutingVectorEnv

#: Fleets and ticks of a rollout.
FLEETS, TICKS = 256, 64
#: Of the timed training; a change of the routing table shows within seconds, so the horizon is short.
LARGE = {"batch_size": 4096, "n_epochs": 2, "learning_rate": 1e-3}
HORIZON = {"gamma": 0.9, "gae_lambda": 0.9}

Figures = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuTimes:
    """CPU seconds of ``steps`` environment steps end to end, and of these in the environment and updates."""

    steps: int
    whole_s: float
    env_s: float
    update_s: float


def environment(folder: Path) -> EnvConfig:
    """The environment of ``selvage bench env``, its scenario written into ``folder``."""
    return make_config(write_scenario(folder, f"{LIBRARY}suites/e5-pool.yaml"))


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

    def run(self, rollouts: int) -> CpuTimes:
        """Collect and update ``rollouts`` times, going on where the last call stopped."""
        self._spent_s |= {"env": 0.0, "update": 0.0}
        steps, began = rollouts * self._rollout, time.process_time()
        self.model.learn(steps, callback=self._callbacks or None, reset_num_timesteps=False)
        whole_s = time.process_time() - began
        return CpuTimes(
            steps=steps, whole_s=whole_s, env_s=self._spent_s["env"], update_s=self._spent_s["update"]
        )


def speed(config: EnvConfig, seed: int, runs: int, rollouts: int) -> Figures:
    """Steps per CPU second, their breakdown, and the cost of the Lagrangian; plain and with it by turns."""
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
