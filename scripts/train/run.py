"""One seed of a training run: warm start, PPO episode by episode, validation, checkpoints and curves.

The result depends on recipe and seed alone: not on how often the run was stopped, nor on parallel
work.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.logger import Logger, configure
from stable_baselines3.common.utils import set_random_seed

from contracts.loading.files import write_json
from policies.registry import make_policy
from policies.train import checkpoint as train_checkpoint
from policies.train.checkpoint import TrainingProgress
from policies.train.clone import add_caution, clone, learn_from_teacher, scores_of
from policies.train.policy import one_thread, scorer_state
from policies.train.ppo import EachEpisode, Multiplier, PenalisedVecEnv, build_ppo, callbacks_of
from policies.train.recipe import RecipeSpec, TrainingRecipe, load_recipe
from policies.train.world import DriverScore, score_choices, score_policy
from scripts.guard import Stopped, stoppable
from scripts.train.env import ChoiceVecEnv, TrainingWorld
from scripts.train.inputs import training_inputs

Weights = dict[str, NDArray[np.float32]]
#: Added to the run's seed for the episodes of behaviour cloning and of the privileged teacher, so that parts
#: use different ones.
BEHAVIOUR_CLONING_SEED = 1_000_000
TEACHER_SEED = 2_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedResult:
    """Result of one seed. score, rewards: of the kept candidate on the validation episodes."""

    seed: int
    folder: str
    env_steps: int
    chosen_at: int
    score: float
    rewards: tuple[float, ...]
    finished: bool


def train_in_worker(task: tuple[str, int, str, int | None]) -> SeedResult:
    """``train_seed`` with its arguments as one tuple, for workers."""
    return train_seed(*task)


def train_seed(
    recipe_file: str,
    seed: int,
    folder: str,
    updates: int | None = None,
    report: Callable[[int, int], None] = lambda *_: None,
) -> SeedResult:
    """Train ``seed`` of the recipe in ``folder``, or resume from its checkpoint.

    updates: PPO episodes, the recipe's for None. ``report`` is called with finished and wanted ones.
    """
    with stoppable() as stopped:
        recipe = load_recipe(recipe_file)
        if recipe.spec.ppo.algorithm == "recurrent-ppo":
            return _recurrent(recipe.spec, recipe_file, seed, folder, updates, stopped, report)
        return SeedRun(recipe, recipe_file, seed, Path(folder), stopped).train(updates, report)


def _recurrent(
    spec: RecipeSpec,
    file: str,
    seed: int,
    folder: str,
    updates: int | None,
    stopped: Stopped,
    report: Callable[[int, int], None],
) -> SeedResult:
    from scripts.train.recurrent import train_recurrent

    wanted = spec.ppo.episodes if updates is None else updates
    steps, score = train_recurrent(spec, file, seed, Path(folder), wanted, stopped, report)
    return SeedResult(
        seed=seed,
        folder=folder,
        env_steps=steps,
        chosen_at=wanted,
        score=score.reward,
        rewards=score.rewards,
        finished=not stopped.flag,
    )


class SeedRun:
    """The parts of one seed's run."""

    def __init__(self, recipe: TrainingRecipe, file: str, seed: int, folder: Path, stopped: Stopped) -> None:
        one_thread()
        set_random_seed(seed)
        self._recipe, self._file, self._stopped = recipe, file, stopped
        self._seed, self._folder = seed, folder
        spec = self.spec = recipe.spec
        self._world = TrainingWorld(spec, file)
        check = spec.validation
        self._exam = TrainingWorld(spec, file, horizon_s=check.horizon_s, fleets=check.episodes)
        env: Any = ChoiceVecEnv(self._world)
        self._env = env if spec.lagrangian is None else PenalisedVecEnv(env, spec.reward.scale)
        self._steps = round(spec.episodes.horizon_s) - 1
        folder.mkdir(parents=True, exist_ok=True)
        layout = self._world.layout
        self.model = build_ppo(self._env, layout, spec, seed, self._steps, _logger(folder))
        self._best: Weights = {}

    def train(self, updates: int | None, report: Callable[[int, int], None]) -> SeedResult:
        """Warm start or checkpoint, then PPO."""
        wanted = self.spec.ppo.episodes if updates is None else updates
        self._begin()
        report(self._progress.updates, wanted)
        left = wanted - self._progress.updates
        if left > 0 and not self._stopped.flag:
            self._learn(left, wanted, report)
        return self._result(self._progress.updates >= wanted)

    # ------------------------------------------------------------ beginning

    def _begin(self) -> None:
        sha256 = training_inputs(self._recipe, self._file)["inputs_sha256"]
        if train_checkpoint.exists(self._folder):
            self._best, self._progress = train_checkpoint.load(self._folder, self.model, sha256)
            if isinstance(self._env, PenalisedVecEnv):
                self._env.multiplier = self._progress.multiplier
            return
        self._progress = TrainingProgress(
            inputs_sha256=sha256,
            seed=self._seed,
            updates=0,
            env_steps=0,
            multiplier=Multiplier(),
            best_at=0,
            best_score=-np.inf,
        )
        self._warm_start()
        self._examine()
        self._imitate_truth()
        self._save()

    def _warm_start(self) -> None:
        behaviour_cloning = self.spec.behaviour_cloning
        if behaviour_cloning.rounds == 0:
            return
        clone(self._world, self.model.policy.scorer, behaviour_cloning, BEHAVIOUR_CLONING_SEED + self._seed)
        steps = behaviour_cloning.rounds * behaviour_cloning.episodes * self._steps * self._env.num_envs
        self._progress = replace(self._progress, env_steps=steps)

    def _imitate_truth(self) -> None:
        """The network fitted to the privileged teacher, with the caution that scores best on validation."""
        privileged_teacher, scorer = self.spec.privileged_teacher, self.model.policy.scorer
        if privileged_teacher is None:
            return
        learn_from_teacher(self._world, scorer, privileged_teacher, TEACHER_SEED + self._seed)
        steps = privileged_teacher.rounds * privileged_teacher.episodes * self._steps * self._env.num_envs
        self._progress = replace(self._progress, env_steps=self._progress.env_steps + steps)
        scores, now = [], privileged_teacher.caution[0]
        for caution in privileged_teacher.caution:
            add_caution(scorer, caution - now)
            scores.append(self._examine())
            now = caution
        add_caution(scorer, privileged_teacher.caution[int(np.argmax(scores))] - now)

    # ------------------------------------------------------------ PPO

    def _learn(self, left: int, wanted: int, report: Callable[[int, int], None]) -> None:
        done = self._progress.updates
        self._world.begin_before(self._seed, done)

        def between(number: int) -> bool:
            self._note(number)
            if number % self.spec.validation.every == 0 or number == wanted:
                self._examine()
            self._save()
            report(number, wanted)
            return not self._stopped.flag and number < wanted

        steps = left * self._steps * self._env.num_envs
        callback = [*callbacks_of(self._env, self.spec), EachEpisode(between, self._stopped, done)]
        self.model.learn(steps, callback=callback, log_interval=1, reset_num_timesteps=True)
        if not self._stopped.flag and self._progress.updates < wanted:
            between(wanted)

    def _note(self, number: int) -> None:
        per_update = self._steps * self._env.num_envs
        multiplier = self._env.multiplier if isinstance(self._env, PenalisedVecEnv) else Multiplier()
        self._progress = replace(
            self._progress,
            updates=number,
            env_steps=self._progress.env_steps + per_update,
            multiplier=multiplier,
        )

    def _examine(self) -> float:
        """Reward of the greedy policy on the validation episodes; kept if it is the best so far."""
        check, scorer = self.spec.validation, self.model.policy.scorer
        score = score_choices(self._exam, scores_of(scorer), check.seed, 1)
        row = {"update": float(self._progress.updates), "env_steps": float(self._progress.env_steps)}
        row["stay_bonus"] = float(scorer.stay.detach())
        row |= score.plain() | {"multiplier": self._progress.multiplier.value}
        self._progress = replace(self._progress, curve=(*self._progress.curve, row))
        write_curve(self._folder / "curve.csv", self._progress.curve)
        if score.reward > self._progress.best_score:
            self._best = {
                name: tensor.numpy().copy() for name, tensor in scorer_state(self.model.policy).items()
            }
            at = self._progress.updates
            self._progress = replace(
                self._progress, best_at=at, best_score=score.reward, best_rewards=score.rewards
            )
        return score.reward

    # ------------------------------------------------------------ files

    def _save(self) -> None:
        train_checkpoint.save(self._folder, self.model, self._best, self._progress)

    def _result(self, finished: bool) -> SeedResult:
        progress = self._progress
        result = SeedResult(
            seed=self._seed,
            folder=str(self._folder),
            env_steps=progress.env_steps,
            chosen_at=progress.best_at,
            score=progress.best_score,
            rewards=progress.best_rewards,
            finished=finished,
        )
        write_json(self._folder / "result.json", asdict(result) | {"folder": "."})
        return result


def _logger(folder: Path) -> Logger:
    """TensorBoard if it is installed; the validation curve is a separate CSV."""
    try:
        return configure(str(folder / "tensorboard"), ["tensorboard"])
    except (ImportError, AssertionError):
        return configure(str(folder / "tensorboard"), ["csv"])


def write_curve(path: Path, rows: tuple[dict[str, float], ...]) -> None:
    """The validation curve as CSV."""
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def baseline_scores(recipe_file: str, configurations: tuple[str, ...]) -> dict[str, DriverScore]:
    """Scores of policies without learning on the validation episodes, each with its own detector."""
    spec = load_recipe(recipe_file).spec
    check = spec.validation
    found = {}
    for configuration in configurations:
        episodes = spec.episodes.model_copy(update={"detector": configuration})
        mine = spec.model_copy(update={"episodes": episodes})
        exam = TrainingWorld(mine, recipe_file, horizon_s=check.horizon_s, fleets=check.episodes)
        found[configuration] = score_policy(exam, partial(make_policy, configuration), check.seed, 1)
    return found
