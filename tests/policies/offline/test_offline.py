"""Learning and evaluating from logs, on toy problems with known answers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from contracts.errors import DocumentError
from policies.artefacts import load_artefact
from policies.offline.transitions import Transitions
from scripts.cli.main import app
from tests.policies.offline.test_transitions import made_up

pytestmark = pytest.mark.needs("rl")


def bandit(episodes: int, good_share: float, seed: int = 1) -> list[Transitions]:
    """Two slices, three choices: on the first slice 2 is good (reward 1), 0 is bad, 1 is never made."""
    logs = []
    for number in range(episodes):
        rng = np.random.default_rng([seed, number])
        good = rng.random(50) < good_share
        choice = np.stack([np.where(good, 2, 0), rng.integers(0, 3, 50)], axis=1)
        observation = rng.uniform(-1.0, 1.0, (51, 2)).astype(np.float32)
        logs.append(
            Transitions(
                header=made_up().header,
                observation=observation,
                choice=choice,
                reward=good.astype(np.float64),
                cost=np.where(good, -1.0, 3.0),
                log_probability=np.full(50, np.nan),
            )
        )
    return logs


def test_the_expectile_at_one_half_is_the_mean_and_rises_above() -> None:
    """Expectile 0.5 is the mean; a larger one lies above it."""
    import torch

    from policies.offline.train import expectile_loss

    drawn = torch.from_numpy(np.random.default_rng(2).exponential(size=4000))
    grid = np.linspace(0.2, 3.0, 281)

    def least(expectile: float) -> float:
        losses = [float(expectile_loss(drawn - float(value), expectile)) for value in grid]
        return float(grid[int(np.argmin(losses))])

    assert least(0.5) == pytest.approx(float(drawn.mean()), abs=0.01)
    assert least(0.9) > least(0.7) > least(0.5)


def test_the_better_of_two_logged_actions_is_learned_even_if_rare() -> None:
    """With one logged action in five good, the policy chooses the good one, and no unlogged one."""
    import torch
    from gymnasium import spaces
    from stable_baselines3.common.policies import ActorCriticPolicy

    from policies.offline.recipes import ConservativeRecipe
    from policies.offline.train import ConservativeTrainer, stack

    torch.manual_seed(0)
    policy = ActorCriticPolicy(spaces.Box(-1.0, 1.0, (2,)), spaces.MultiDiscrete([3, 3]), lambda _: 1e-3)
    recipe = ConservativeRecipe(steps=600, batch_size=256, learning_rate=3e-3, gamma=0.0, hidden=(32,))
    history = ConservativeTrainer(policy, stack(bandit(40, 0.2), 0.0), 3, recipe).run(600)
    asked, _ = policy.predict(np.zeros((1, 2), dtype=np.float32), deterministic=True)
    assert int(asked[0, 0]) == 2
    assert history[-1]["q_loss"] < history[0]["q_loss"]


def test_priced_costs_change_the_choice() -> None:
    """With costs priced, a reward beyond the budget is worth less than a cheap one."""
    from policies.offline.train import stack

    (log,) = bandit(1, 0.5)
    free, priced = stack([log], 0.0).reward.numpy(), stack([log], 1.0).reward.numpy()
    good = log.reward == 1.0
    np.testing.assert_array_equal(free, log.reward.astype(np.float32))
    np.testing.assert_array_equal(priced[good], free[good])
    np.testing.assert_allclose(priced[~good], free[~good] - 3.0)


def test_fitted_q_estimates_the_value_of_logged_actions() -> None:
    """The fitted value of "always good" is near 1, of "always bad" near 0; both are supported by the log."""
    from policies.offline.evaluate import fitted_value
    from policies.offline.recipes import FittedRecipe

    recipe = FittedRecipe(steps=500, members=2, gamma=0.5, learning_rate=3e-3, hidden=(32,))
    logs = bandit(30, 0.5)
    good = fitted_value(lambda seen: np.tile([2, 1], (len(seen), 1)), logs, 3, recipe)
    bad = fitted_value(lambda seen: np.tile([0, 1], (len(seen), 1)), logs, 3, recipe)
    assert good.reward == pytest.approx(1.0, abs=0.15)
    assert bad.reward == pytest.approx(0.0, abs=0.15)
    assert bad.cost == pytest.approx(3.0, abs=0.6)
    assert 0.3 < good.support < 0.6
    assert not good.identified


def test_unlogged_choices_have_no_support() -> None:
    """A policy that never makes a logged choice is reported as unsupported."""
    from policies.offline.evaluate import support

    assert support(lambda seen: np.tile([1, 7], (len(seen), 1)), bandit(5, 0.0)) == 0.0


def test_importance_sampling_of_the_logged_policy_itself_is_its_mean() -> None:
    """Weights of the policy that wrote the log are equal, and every episode counts."""
    from policies.offline.evaluate import weighted_value

    rng = np.random.default_rng(3)
    logs = [made_up(ticks=8, seed=int(seed)) for seed in rng.integers(1000, size=12)]
    densities = iter([log.log_probability for log in logs])
    value = weighted_value(lambda seen, choice: next(densities), logs, 0.9)
    discount = 0.9 ** np.arange(8)
    mean = np.stack([log.reward for log in logs]).mean(axis=0)
    assert value is not None
    assert value.effective_episodes == pytest.approx(12.0)
    assert value.reward == pytest.approx(float((mean * discount).sum() / discount.sum()))


def test_without_propensities_there_is_no_importance_sampling() -> None:
    """Logs of a deterministic policy give no weighted value."""
    from policies.offline.evaluate import weighted_value

    assert weighted_value(lambda seen, choice: np.zeros(len(seen)), bandit(2, 0.5), 0.9) is None


def test_the_softmax_of_scores_is_a_probability_over_all_choices() -> None:
    """Over every pair of choices of two slices the probabilities sum to 1."""
    from scripts.train.offline_fit import log_softmax

    scores = np.random.default_rng(4).normal(size=(1, 2, 3)).astype(np.float32)
    pairs = [np.array([[first, second]]) for first in range(3) for second in range(3)]
    assert sum(float(np.exp(log_softmax(scores, pair)[0])) for pair in pairs) == pytest.approx(1.0)


def test_a_policy_learned_from_logs_is_an_artefact_that_may_not_drive_yet(tmp_path: Path) -> None:
    """Recorded incidents give an ONNX artefact and an evaluation; without a certificate it may not drive."""
    runner = CliRunner()
    logs, out = tmp_path / "logs", tmp_path / "policy"
    scenario = "package:contracts/library/scenarios/silent-requantise.yaml"
    record = ["offline", "record", scenario, "--out", str(logs), "--seeds", "2", "--policy", "fixed"]
    train = ["offline", "train", str(logs), "--out", str(out), "--steps", "3", "--judge-steps", "3"]
    for words in (record, train):
        done = runner.invoke(app, words)
        assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert report["evaluation"]["fitted_q"]["identified"]
    assert 1.0 <= report["evaluation"]["importance_sampling"]["effective_episodes"] <= 2.0
    with pytest.raises(DocumentError, match="certificate"):
        load_artefact(report["manifest"])
    assert load_artefact(report["manifest"], allow_uncertified=True).manifest.spec.training.data
