"""Tuning: seeded, within its space, and never worse than the default policy on its training episodes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from policies.kinds import POLICIES
from policies.registry import make_configuration
from policies.train.tune import ALARM, SPACES, Trial, best, tune
from scripts.cli.main import app
from scripts.e5.configurations import parse_configuration
from tests.support.fleets.builders import make_fleet, make_layout


def bowl(configuration: str) -> float:
    """An objective with its minimum at a dwell of 100 s."""
    values = dict(
        part.split("=") for part in configuration.partition("@")[0].partition(":")[2].split(",") if part
    )
    return abs(float(values.get("dwell_s", 120.0)) - 100.0)


def test_equal_seeds_give_equal_trials() -> None:
    """The same seed tries the same settings in the same order, another seed others."""
    one, again = (tune("hysteresis", bowl, trials=12, seed=5) for _ in range(2))
    assert one == again
    assert one != tune("hysteresis", bowl, trials=12, seed=6)


def test_the_first_trial_is_the_default_policy() -> None:
    """The defaults are tried first, so the best trial is no worse than they are."""
    trials = tune("hysteresis", bowl, trials=12, seed=5)
    assert trials[0].configuration == "hysteresis"
    assert len(trials) == 12
    assert best(trials, 1)[0].objective <= trials[0].objective


@pytest.mark.parametrize("policy", sorted(SPACES))
def test_every_suggestion_is_a_configuration_within_its_space(policy: str) -> None:
    """Every suggestion parses, is accepted by the policy, and lies within the stated ranges."""
    fleet = make_fleet(make_layout())
    assert set(SPACES[policy]) - {ALARM} <= set(POLICIES[policy].parameters)
    for trial in tune(policy, bowl, trials=10, seed=1):
        configuration = parse_configuration(trial.configuration)
        make_configuration(configuration.spec, fleet)
        assert configuration.policy == policy
        if trial.number and ALARM in SPACES[policy]:
            assert configuration.alarm_confidence is not None
            assert 0.9 <= configuration.alarm_confidence <= 0.9999


def test_best_keeps_each_setting_once_and_the_earlier_of_equals() -> None:
    """Equal settings count once; of equal objectives the earlier trial comes first."""
    trials = (
        Trial(number=0, configuration="a", objective=2.0),
        Trial(number=1, configuration="b", objective=1.0),
        Trial(number=2, configuration="c", objective=1.0),
        Trial(number=3, configuration="b", objective=1.0),
    )
    assert [trial.configuration for trial in best(trials, 3)] == ["b", "c", "a"]


def test_policies_without_a_space_are_refused() -> None:
    """A policy that cannot be tuned is refused, and the message names those that can."""
    with pytest.raises(ValueError, match="expected one of breaker"):
        tune("fixed", bowl, trials=2, seed=1)
    result = CliRunner().invoke(app, ["tune", "fixed", "--out", "x.json"])
    assert result.exit_code != 0


@pytest.mark.slow
def test_the_command_is_reproducible(tmp_path: Path) -> None:
    """The same command with a tiny budget writes the same file, and chooses the best on validation."""
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(RECIPE, encoding="utf-8")
    texts = []
    for name in ("one", "two"):
        out = tmp_path / f"{name}.json"
        words = ["tune", "hysteresis", "--steps", "480", "--fleets", "2", "--horizon-s", "120"]
        result = CliRunner().invoke(app, [*words, "--recipe", str(recipe), "--out", str(out)])
        assert result.exit_code == 0, result.output
        texts.append(out.read_text(encoding="utf-8"))
    assert texts[0] == texts[1]
    content = json.loads(texts[0])
    assert content["env_steps"] == 480
    assert content["chosen"] == min(content["finals"], key=lambda row: row["objective"])["configuration"]


RECIPE = """\
apiVersion: selvage.dev/v1alpha1
kind: TrainingRecipe
metadata: {name: tiny}
spec:
  description: tests only
  episodes: {scenarios: [package:contracts/library/suites/e5-base.yaml]}
  validation: {seed: 10000, episodes: 2, horizon_s: 120.0}
"""
