"""Training end to end on tiny recipes: equal seeds, interruptions, cloning, and the penalised reward."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

torch = pytest.importorskip("torch")
pytest.importorskip("stable_baselines3")

from contracts.errors import DocumentError  # noqa: E402
from contracts.loading.loader import document_sha256  # noqa: E402
from policies.learned.network import Scorer  # noqa: E402
from policies.train.clone import clone, learn_from_teacher, scores_of  # noqa: E402
from policies.train.ppo import PenalisedVecEnv  # noqa: E402
from policies.train.recipe import BehaviourCloningRecipe, PrivilegedTeacherRecipe, RecipeSpec, load_recipe  # noqa: E402
from policies.train.world import score_choices, score_policy  # noqa: E402
from scripts.cli.main import app  # noqa: E402
from scripts.cli.train import parse_seeds  # noqa: E402
from scripts.guard import Stopped, stoppable  # noqa: E402
from scripts.train import run  # noqa: E402
from scripts.train.env import ChoiceVecEnv, TrainingWorld  # noqa: E402
from scripts.train.run import SeedResult, SeedRun, train_seed  # noqa: E402
from tests.support.fleets.env_world import scenario_path  # noqa: E402
from tests.support.fleets.synthetic import write_world  # noqa: E402
from tests.support.paths import LIBRARY  # noqa: E402

RECIPES = sorted((LIBRARY / "recipes").glob("*.yaml"))
RECIPE = """
apiVersion: selvage.dev/v1alpha1
kind: TrainingRecipe
metadata: {{name: tiny}}
spec:
  description: Small enough for a test.
  episodes: {{scenarios: ["{scenario}"], horizon_s: 21.0, fleets: 3, kernels_max: 4}}
  network: {{width: 4}}
  behaviour_cloning: {{rounds: 1, epochs: 1}}
  ppo: {{episodes: {updates}, epochs: 1, minibatches: 2}}
  lagrangian: {{}}
  validation: {{episodes: 2, horizon_s: 10.0, every: 1}}
"""


def recipe_file(folder: Path, updates: int = 2) -> Path:
    """The tiny recipe as a file."""
    path = folder / "tiny.yaml"
    path.write_text(RECIPE.format(scenario=scenario_path(), updates=updates))
    return path


def spec(folder: Path, **changes: Any) -> RecipeSpec:
    """Its spec, with changes."""
    return load_recipe(recipe_file(folder)).spec.model_copy(update=changes)


def best(folder: Path) -> dict[str, np.ndarray]:
    """Every tensor of a run's checkpoint but the state of the shuffle."""
    with np.load(folder / "checkpoint.npz", allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files if not name.startswith("shuffle")}


def test_shipped_recipes_are_complete_and_their_hash_is_their_meaning() -> None:
    """Every shipped recipe loads, cuts its rollouts evenly, and a changed number changes its hash."""
    for path in RECIPES:
        recipe = load_recipe(path)
        episodes, ppo = recipe.spec.episodes, recipe.spec.ppo
        assert episodes.fleets * (round(episodes.horizon_s) - 1) % ppo.minibatches == 0
        other = recipe.spec.model_copy(update={"ppo": ppo.model_copy(update={"gamma": 0.5})})
        changed = recipe.model_copy(update={"spec": other})
        assert document_sha256(changed) != document_sha256(recipe)


def test_a_stopped_run_ends_as_an_uninterrupted_one(tmp_path: Path) -> None:
    """Equal seeds give equal weights, whether the run was interrupted between two updates or not."""
    file = str(recipe_file(tmp_path))
    whole = train_seed(file, 5, str(tmp_path / "whole"))
    first = train_seed(file, 5, str(tmp_path / "parts"), updates=1)
    second = train_seed(file, 5, str(tmp_path / "parts"))
    assert (first.finished, second.finished, whole.finished) == (True, True, True)
    assert second.env_steps == whole.env_steps
    mine, theirs = best(tmp_path / "whole"), best(tmp_path / "parts")
    assert mine.keys() == theirs.keys()
    for name, values in mine.items():
        np.testing.assert_array_equal(values, theirs[name], err_msg=name)
    other = train_seed(file, 6, str(tmp_path / "other"))
    assert other.seed == 6
    assert any(not np.array_equal(mine[n], v) for n, v in best(tmp_path / "other").items() if "policy/" in n)


def test_a_checkpoint_of_another_recipe_is_refused(tmp_path: Path) -> None:
    """A run goes on only under the recipe it was begun with."""
    train_seed(str(recipe_file(tmp_path, 1)), 0, str(tmp_path / "run"))
    with pytest.raises(DocumentError, match="recipe"):
        train_seed(str(recipe_file(tmp_path, 3)), 0, str(tmp_path / "run"))


def test_a_checkpoint_of_another_scenario_is_refused(tmp_path: Path) -> None:
    """Nor does it resume in another fleet."""
    world = write_world(tmp_path)
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(RECIPE.format(scenario=world.name, updates=1))
    train_seed(str(recipe), 0, str(tmp_path / "run"))
    contract = tmp_path / "contract.yaml"
    contract.write_text(contract.read_text().replace("0.002", "0.003"))
    with pytest.raises(DocumentError, match="scenarios"):
        train_seed(str(recipe), 0, str(tmp_path / "run"))


def test_a_stop_leaves_a_checkpoint(tmp_path: Path) -> None:
    """Stopped before its first update, a run has saved its warm start and reports that it is unfinished."""
    file, stopped = recipe_file(tmp_path), Stopped()
    stopped.flag = True
    result = SeedRun(load_recipe(file), str(file), 0, tmp_path / "run", stopped).train(None, lambda *_: None)
    assert not result.finished
    assert (tmp_path / "run" / "checkpoint.json").exists()
    assert (tmp_path / "run" / "curve.csv").read_text().count("\n") >= 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_seed_is_the_last_one(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal during the first of three seeds begins no other; its number is in the exit code."""
    began: list[int] = []

    def seed_run(file: str, seed: int, folder: str, updates: int | None = None) -> SeedResult:
        began.append(seed)
        with stoppable() as stopped:
            os.kill(os.getpid(), number)
        return SeedResult(
            seed=seed,
            folder=folder,
            env_steps=0,
            chosen_at=0,
            score=0.0,
            rewards=(0.0,),
            finished=not stopped.flag,
        )

    monkeypatch.setattr(run, "train_seed", seed_run)
    words = [
        "train",
        "--recipe",
        str(recipe_file(tmp_path)),
        "--seeds",
        "0-2",
        "--out",
        str(tmp_path / "out"),
    ]
    before = signal.signal(
        number, signal.default_int_handler
    )  # where tests began in the background it is ignored
    try:
        done = CliRunner().invoke(app, words)
    finally:
        signal.signal(number, before)
    assert (began, done.exit_code) == ([0], 128 + number), done.output
    assert done.stderr.splitlines()[-1].startswith("interrupted: nothing was finished")
    assert "Traceback" not in done.output


def test_cloning_fits_the_teacher(tmp_path: Path) -> None:
    """After a few rounds the pupil earns the teacher's reward on the teacher's episodes."""
    recipe = spec(tmp_path)
    world = TrainingWorld(recipe, str(tmp_path / "x"), horizon_s=60.0, fleets=8)
    torch.manual_seed(0)
    scorer = Scorer(world.layout, 8)
    losses = clone(world, scorer, BehaviourCloningRecipe(rounds=2, epochs=10, minibatch=256), 7).losses
    assert np.isfinite(losses).all()
    from policies.registry import make_policy

    teacher = score_policy(world, lambda fleet: make_policy("sequential", fleet), 7, 1)
    pupil = score_choices(world, scores_of(scorer), 7, 1)
    assert pupil.reward == pytest.approx(teacher.reward, abs=0.02)


def test_a_privileged_teacher_changes_weights_and_adds_its_caution(tmp_path: Path) -> None:
    """Imitating the truth keeps the weights finite and leaves its caution on the bonus of staying."""
    recipe = spec(tmp_path)
    world = TrainingWorld(recipe, str(tmp_path / "x"), horizon_s=40.0, fleets=4)
    torch.manual_seed(0)
    scorer = Scorer(world.layout, 4)
    before = {name: tensor.clone() for name, tensor in scorer.state_dict().items()}
    losses = learn_from_teacher(world, scorer, PrivilegedTeacherRecipe(rounds=1, epochs=2, caution=(2.0,)), 3)
    assert np.isfinite(losses).all()
    after = scorer.state_dict()
    assert all(bool(torch.isfinite(tensor).all()) for tensor in after.values())
    assert float(after["stay"] - before["stay"]) == pytest.approx(2.0, abs=0.5)


def test_the_penalty_mixes_cost_into_the_reward(tmp_path: Path) -> None:
    """With multiplier m the reward becomes (r - m scale c) / (1 + m); the mean cost is handed over once."""
    recipe = spec(tmp_path)
    env = PenalisedVecEnv(ChoiceVecEnv(TrainingWorld(recipe, str(tmp_path / "x"))), recipe.reward.scale)
    env.reset()
    env.multiplier = type(env.multiplier)(value=1.0)
    stay = env.venv.world.choice
    env.step_async(stay)
    _, mixed, _, _ = env.step_wait()
    world = env.venv.world
    expected = 0.5 * world.reward - 0.5 * recipe.reward.scale * world.cost
    np.testing.assert_allclose(mixed, expected, rtol=1e-5, atol=1e-6)
    assert env.take_cost() == pytest.approx(float(world.cost.mean()))
    assert env.take_cost() == 0.0


@pytest.mark.parametrize(("text", "seeds"), [("0-2", (0, 1, 2)), ("7", (7,)), ("1,9", (1, 9))])
def test_seeds_are_ranges_or_lists(text: str, seeds: tuple[int, ...]) -> None:
    """``a-b`` is a range with both ends, ``a,b`` a list."""
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", "x", "3-1", "1,1", "-2"])
def test_other_seeds_are_refused(text: str) -> None:
    """Other texts, empty ones and repetitions are refused."""
    with pytest.raises(DocumentError, match="--seeds"):
        parse_seeds(text)


def test_export_writes_what_the_run_found_best(tmp_path: Path) -> None:
    """Train, export, evaluate-able: the ONNX file holds the best seed's weights, the manifest every seed."""
    from policies.artefacts import load_artefact
    from scripts.cli.main import app

    runner, out, recipe = CliRunner(), tmp_path / "run", str(recipe_file(tmp_path, 1))
    trained = runner.invoke(
        app, ["train", "--recipe", recipe, "--seeds", "0-1", "--out", str(out), "--no-compare"]
    )
    assert trained.exit_code == 0, trained.output
    made = [
        runner.invoke(app, ["policy", "export", str(out), "--recipe", recipe, "--out", str(tmp_path / place)])
        for place in "ab"
    ]
    assert [result.exit_code for result in made] == [0, 0], made[0].output
    first, second = (load_artefact(str(tmp_path / p / "routing.yaml"), allow_uncertified=True) for p in "ab")
    assert first.content == second.content
    assert first.manifest == second.manifest
    runs = first.manifest.spec.training.runs
    assert [run.seed for run in runs] == [0, 1]
    shipped = next(run for run in runs if run.shipped)
    assert shipped.score == max(run.score for run in runs)
