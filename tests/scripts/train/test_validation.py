"""Scores of configurations on drawn episodes: the environment's reward, E5's measures, one objective."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from controller.ports import PolicyState
from policies.registry import make_configuration
from policies.train.recipe import RewardRecipe
from scripts.e5.configurations import parse_configuration
from scripts.train.validation import (
    Drawn,
    EpisodeSet,
    ValidationScore,
    draw,
    measured_rows,
    records,
    rewards,
    score_of,
    violating,
)
from simulator.env.core import EnvConfig, EnvCore
from tests.support.fleets.env_world import scenario_path

WEIGHTS = RewardRecipe()


def episode_set(**changes: Any) -> EpisodeSet:
    """Four short episodes of the synthetic world."""
    return EpisodeSet(scenarios=(scenario_path(),), seed=3, fleets=4, horizon_s=120.0, **changes)


@cache
def drawn() -> tuple[Drawn, ...]:
    """The same, drawn once."""
    return draw(episode_set())


def test_the_reward_is_the_environments() -> None:
    """Rewards computed from the record are those of the environment under the same policy, tick by tick."""
    part = drawn()[0]
    configuration = make_configuration("hysteresis", part.base.compiled.setup)
    same = EnvConfig(scenarios=(scenario_path(),), horizon_s=120.0, detector=lambda _: configuration.detector)
    core = EnvCore(same, batch=4)
    core.reset(seed=3)
    assert tuple(core.fleet_seeds) == part.seeds
    state: PolicyState = configuration.policy.initial(4)
    found = []
    while not core.fleets.over:
        proposal, state = configuration.policy.propose(core.perception.observation, state)
        found.append(core.step_proposal(proposal).terms.reward)
    work = part.base.compiled.capacity_rps.min() / part.base.compiled.capacity_rps
    own = np.stack(
        [rewards(record, work, WEIGHTS) for record in records(parse_configuration("hysteresis"), part)]
    )
    np.testing.assert_allclose(own[:, 1:], np.stack(found, axis=1), atol=1e-6)


def evaluate(configuration: str, drawn: tuple[Drawn, ...]) -> ValidationScore:
    """Score of ``configuration`` ("policy:settings@confidence") on ``drawn``."""
    rows = [row for part in drawn for row in measured_rows(configuration, part, WEIGHTS)]
    return score_of(rows, WEIGHTS)


def test_equal_sets_give_equal_scores_and_other_seeds_others() -> None:
    """A score depends on the configuration and on the set alone."""
    assert evaluate("threshold", drawn()) == evaluate("threshold", draw(episode_set()))
    other = draw(EpisodeSet(scenarios=(scenario_path(),), seed=4, fleets=4, horizon_s=120.0))
    assert evaluate("threshold", drawn()) != evaluate("threshold", other)


def test_a_configuration_that_never_moves_never_switches_falsely() -> None:
    """Without any lever there are no false switches, no moves, and the weight on unhealthy kernels stays."""
    score = evaluate("fixed-bare", drawn())
    assert score.false_switches == 0.0
    assert score.moved == 0.0
    bare = np.mean(
        [violating(record).mean() for record in records(parse_configuration("fixed-bare"), drawn()[0])]
    )
    assert score.violating == pytest.approx(bare)


def test_the_informed_reference_hears_of_each_episodes_own_faults() -> None:
    """Told of every fault, the reference keeps less weight on unhealthy kernels than without notices."""
    assert evaluate("informed", drawn()).violating < evaluate("fixed-bare", drawn()).violating


def test_training_scores_use_no_held_out_family() -> None:
    """The default set draws episodes of the training split alone."""
    assert EpisodeSet().split == "train"
    assert not any(episode.held_out for part in drawn() for episode in part.episodes)
