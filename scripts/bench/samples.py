"""Benchmark of sample efficiency: ``selvage bench samples``.

Sample-efficiency cost of the large batches and few epochs of ``selvage bench train``: equally many steps
under the usual batch and epochs of Stable-Baselines3 (``small``) and under the timed ones (``large``), from
equal weights. Rewards are per tick of the policy as it drives, on episodes that neither has seen, means
over seeds of training; CPU seconds are those of one training. Takes about ten minutes; every training that
that has ended is reported on stderr, and an interruption leaves these lines.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from stable_baselines3 import PPO
from stable_baselines3.common.utils import set_random_seed

from scripts.studies.training import native_ppo
from scripts.train.sb3_env import FleetVecEnv
from simulator.env.core import EnvConfig

#: Seeds of training, and rollouts of each.
SEEDS, ROLLOUTS = (0, 1, 2), 16
#: Stable-Baselines3's defaults.
SMALL = {"batch_size": 64, "n_epochs": 10, "learning_rate": 3e-4}
#: Fleets and seed of the episodes on which trained policies are evaluated.
EXAM_FLEETS, EXAM_SEED = 64, 10_000


def run() -> dict[str, object]:
    """All figures, flat; machine and versions are added by the command."""
    with tempfile.TemporaryDirectory() as folder:
        config = native_ppo.environment(Path(folder))
        return study(config, SEEDS, ROLLOUTS, lambda line: print(line, file=sys.stderr))


def study(
    config: EnvConfig, seeds: Sequence[int], rollouts: int, report: Callable[[str], None] = lambda _: None
) -> native_ppo.Figures:
    """Reward per tick after equal numbers of steps, small batches against large, over ``seeds``.

    ``report`` is called after each training, so that an interrupted study leaves its results so far.
    """
    exam = native_ppo.make_env(config, EXAM_FLEETS)
    ways = {"small": SMALL, "large": native_ppo.LARGE}
    trained: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for seed in seeds:
        for name, how in ways.items():
            trained[name].append(_learned(config, exam, seed, how, rollouts))
            reward, spent_s = trained[name][-1]
            report(f"seed {seed}, {name}: reward {reward:.5f} per tick, {spent_s:.0f} CPU s")
    figures: native_ppo.Figures = {
        "steps": rollouts * native_ppo.FLEETS * native_ppo.TICKS,
        "seeds": len(seeds),
        "reward_untrained": round(examine(native_ppo.make_model(exam, seeds[0], native_ppo.LARGE), exam), 5),
    }
    for name, how in ways.items():
        figures |= _of_one_way(name, how, trained[name])
    return figures | _gain(trained["small"], trained["large"])


def _of_one_way(
    name: str, settings: dict[str, Any], trained: list[tuple[float, float]]
) -> native_ppo.Figures:
    """Settings of one way to train, and the results of its seeds: (reward, CPU seconds) of each."""
    rewards, spent_s = zip(*trained, strict=True)
    return {
        f"{name}_batch": settings["batch_size"],
        f"{name}_epochs": settings["n_epochs"],
        f"{name}_rewards": [round(reward, 5) for reward in rewards],
        f"{name}_reward": round(statistics.mean(rewards), 5),
        f"{name}_cpu_s": round(statistics.mean(spent_s), 1),
    }


def _gain(small: list[tuple[float, float]], large: list[tuple[float, float]]) -> native_ppo.Figures:
    """Gain in reward of small batches, seed by seed, with 95 % limits."""
    gains = [a - b for (a, _), (b, _) in zip(small, large, strict=True)]
    low, high = t_interval(gains)
    return {
        "small_minus_large": round(statistics.mean(gains), 5),
        "small_minus_large_95": [round(low, 5), round(high, 5)],
    }


def _learned(
    config: EnvConfig, exam: FleetVecEnv, seed: int, settings: dict[str, Any], rollouts: int
) -> tuple[float, float]:
    """(reward per tick in the evaluation, CPU seconds of training)."""
    began = time.process_time()
    model = native_ppo.make_model(native_ppo.make_env(config, native_ppo.FLEETS), seed, settings)
    model.learn(rollouts * native_ppo.FLEETS * native_ppo.TICKS)
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
    """95 % interval of the mean by Student's t; infinite with a single value."""
    if len(values) < 2:
        return -np.inf, np.inf
    half = float(stats.t.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / len(values) ** 0.5
    mean = statistics.mean(values)
    return mean - half, mean + half
