"""Benchmark of training: ``selvage bench train``.

PPO on the shipped recipe's environment, end to end: rollouts with detectors, controller and shield, truth
and rewards, and the updates; no warm start. CPU seconds of this process, compiling not counted. Then what
the large batch costs: the same number of environment steps under Stable-Baselines3's usual batch and epochs
(``small``) and under the recipe's (``large``), from equal weights on equal episodes; returns are the
greedy policy's validation reward per tick after so many steps, and CPU seconds are those it took.
"""

from __future__ import annotations

import time
from typing import Any

from stable_baselines3.common.logger import configure
from stable_baselines3.common.utils import set_random_seed

from contracts.uris import resolve_uri
from policies.train_clone import scores_of
from policies.train_ppo import EachEpisode, PenalisedVecEnv, build_ppo, callbacks_of
from policies.train_recipe import LagrangianRecipe, PpoRecipe, RecipeSpec, load_recipe
from policies.train_world import score_choices
from scripts.cmd_train import SHIPPED_RECIPE
from scripts.train_env import ChoiceVecEnv, TrainingWorld
from scripts.train_run import Stopped

SEED = 2026
#: Rollouts that are timed, after one that is not.
TIMED = 2
#: Rollouts of the study, of ``STUDY_FLEETS`` fleets each.
STUDIED, STUDY_FLEETS = 4, 16
#: Stable-Baselines3's defaults: batches of 64 and ten epochs.
SMALL_BATCH, SMALL_EPOCHS = 64, 10


def run() -> dict[str, object]:
    """All figures, flat; machine and versions are added by the command."""
    file = str(resolve_uri(SHIPPED_RECIPE, "selvage bench train"))
    recipe = load_recipe(file).spec
    world = TrainingWorld(recipe, file)
    plain = recipe.model_copy(update={"lagrangian": None})
    with_costs = recipe.model_copy(update={"lagrangian": recipe.lagrangian or LagrangianRecipe()})
    ppo_s, rollout_s = timed(world, plain)
    lagrangian_s, _ = timed(world, with_costs)
    steps = TIMED * world.core.batch * _steps(recipe)
    return {
        "seed": SEED,
        "fleets": world.core.batch,
        "horizon_s": recipe.episodes.horizon_s,
        "steps_timed": steps,
        "ppo_steps_per_cpu_s": round(steps / ppo_s),
        "rollout_share": round(rollout_s / ppo_s, 3),
        "lagrangian_over_ppo": round(lagrangian_s / ppo_s, 3),
        **study(recipe, file),
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


def study(recipe: RecipeSpec, file: str) -> dict[str, object]:
    """Validation reward after equal numbers of steps, small batches against large ones."""
    usual = PpoRecipe()
    total = STUDY_FLEETS * _steps(recipe)
    small = usual.model_copy(
        update={"minibatches": total // SMALL_BATCH, "epochs": SMALL_EPOCHS, "learning_rate": 3e-4}
    )
    check = recipe.validation
    exam = TrainingWorld(recipe, file, horizon_s=recipe.episodes.horizon_s, fleets=check.episodes)
    figures: dict[str, object] = {"study_steps": STUDIED * total}
    for name, ppo in (("small", small), ("large", recipe.ppo)):
        world = TrainingWorld(recipe, file, fleets=STUDY_FLEETS)
        tried = recipe.model_copy(update={"ppo": ppo, "lagrangian": None})
        began = time.process_time()
        model, _ = _model(world, tried)
        model.learn(STUDIED * total)
        spent_s = time.process_time() - began
        score = score_choices(exam, scores_of(model.policy.scorer), check.seed, 1)
        figures[f"study_{name}_batch"] = total // ppo.minibatches
        figures[f"study_{name}_epochs"] = ppo.epochs
        figures[f"study_{name}_reward"] = round(score.reward, 5)
        figures[f"study_{name}_cpu_s"] = round(spent_s, 1)
    return figures


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
