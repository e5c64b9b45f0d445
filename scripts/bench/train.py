"""Benchmark of training: ``selvage bench train``.

``ppo_*``: Stable-Baselines3's PPO with its own network, large batches and few epochs, on the native vector
environment ``Selvage/FleetRouting-v0`` of ``selvage bench env``, end to end: rollouts with controller,
shield, costs and quality inside, network and updates (``scripts.studies.training.native_ppo``).
``lagrangian_over_ppo`` is what clause costs add to its time. ``recipe_*``: the same of the shipped recipe
without its warm start, whose detector is sequential and whose network reads every pair of kernel and slice.
CPU seconds of this process, one torch thread, compiling not counted. The cost of these settings in sample
efficiency is measured by ``selvage bench samples``.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from stable_baselines3.common.logger import configure
from stable_baselines3.common.utils import set_random_seed

from contracts.loading.shipped import SHIPPED_RECIPE
from contracts.loading.uris import resolve_uri
from policies.train.ppo import EachEpisode, PenalisedVecEnv, build_ppo, callbacks_of
from policies.train.recipe import LagrangianRecipe, RecipeSpec, load_recipe
from scripts.guard import Stopped
from scripts.studies.training import native_ppo
from scripts.train.env import ChoiceVecEnv, TrainingWorld

SEED = 2026
#: Rollouts of the recipe that are timed, after one that is not.
TIMED = 2
#: Timed runs of native PPO, and rollouts in each: a little more than an episode, so that each has its resets.
RUNS, ROLLOUTS = 5, 5


def run() -> dict[str, object]:
    """All figures, flat; machine and versions are added by the command."""
    with tempfile.TemporaryDirectory() as folder:
        config = native_ppo.environment(Path(folder))
        return {
            "seed": SEED,
            **native_ppo.speed(config, SEED, RUNS, ROLLOUTS),
            **recipe_speed(),
        }


def recipe_speed() -> dict[str, object]:
    """Steps per CPU second of the shipped recipe."""
    file = str(resolve_uri(SHIPPED_RECIPE, "selvage bench train"))
    recipe = load_recipe(file).spec
    world = TrainingWorld(recipe, file)
    plain = recipe.model_copy(update={"lagrangian": None})
    with_costs = recipe.model_copy(update={"lagrangian": recipe.lagrangian or LagrangianRecipe()})
    ppo_s, rollout_s = timed(world, plain)
    lagrangian_s, _ = timed(world, with_costs)
    steps = TIMED * world.core.batch * _steps(recipe)
    return {
        "recipe_fleets": world.core.batch,
        "recipe_steps_timed": steps,
        "recipe_steps_per_cpu_s": round(steps / ppo_s),
        "recipe_rollout_share": round(rollout_s / ppo_s, 3),
        "recipe_lagrangian_over_ppo": round(lagrangian_s / ppo_s, 3),
    }


def timed(world: TrainingWorld, recipe: RecipeSpec) -> tuple[float, float]:
    """CPU seconds of ``TIMED`` rollouts with their updates, and of the rollouts alone."""
    model, env = _model(world, recipe)
    marks: list[float] = []
    inside = _timed_rollouts(model)

    def between(_: int) -> bool:
        marks.append(time.process_time())
        return True

    steps = (TIMED + 2) * world.core.batch * _steps(recipe)
    callback = [*callbacks_of(env, recipe), EachEpisode(between, Stopped())]
    model.learn(steps, callback=callback)
    return marks[TIMED] - marks[0], sum(inside[1 : TIMED + 1])


def _model(world: TrainingWorld, recipe: RecipeSpec) -> tuple[Any, Any]:
    set_random_seed(SEED)
    env: Any = ChoiceVecEnv(world)
    if recipe.lagrangian is not None:
        env = PenalisedVecEnv(env, recipe.reward.scale)
    return build_ppo(env, world.layout, recipe, SEED, _steps(recipe), configure(None, [])), env


def _steps(recipe: RecipeSpec) -> int:
    return round(recipe.episodes.horizon_s) - 1


def _timed_rollouts(model: Any) -> list[float]:
    """CPU seconds of every rollout, filled in while the model learns."""
    spent: list[float] = []
    collect = model.collect_rollouts

    def timed_collect(*arguments: Any, **named: Any) -> Any:
        began = time.process_time()
        try:
            return collect(*arguments, **named)
        finally:
            spent.append(time.process_time() - began)

    model.collect_rollouts = timed_collect
    return spent
