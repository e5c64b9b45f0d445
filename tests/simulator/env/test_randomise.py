"""Random episodes: reproducible, held out by family, and drawn from independent streams."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from controller.detect.sequential.detector import SequentialDetector
from policies.registry import make_configuration
from simulator.env.base import Base, load_base
from simulator.env.core import shipped_detector
from simulator.env.randomise import DrawnEpisode, draw_episode
from simulator.env.space import EpisodeSpace, Split, is_held_out
from tests.support.fleets.env_world import HORIZON_S, scenario_path
from tests.support.fleets.synthetic import scenario_document, write_world

SPACE = EpisodeSpace()


@cache
def base() -> Base:
    """The synthetic base, loaded once."""
    return load_base(scenario_path(), HORIZON_S)


def draw(fleet: int, split: Split = "all", seed: int = 1, space: EpisodeSpace = SPACE) -> DrawnEpisode:
    """One episode of ``fleet``."""
    return draw_episode(base(), space, seed, fleet, 0, split)


def test_equal_arguments_give_equal_episodes() -> None:
    """An episode depends only on seed, fleet and number."""
    for fleet in range(20):
        one, other = draw(fleet), draw(fleet)
        assert one.family == other.family
        assert one.scenario.plans == other.scenario.plans
        assert one.scenario.changes == other.scenario.changes
        assert np.array_equal(one.scenario.absent, other.scenario.absent)
        assert np.array_equal(
            one.scenario.workload.profile.rate_rps, other.scenario.workload.profile.rate_rps
        )


def test_training_and_held_out_episodes_share_no_family() -> None:
    """No family held out occurs in a training episode, and both splits occur."""
    train = {name for fleet in range(150) for name in draw(fleet, "train").family}
    held_out = [draw(fleet, "held_out") for fleet in range(60)]
    assert not any(is_held_out(name, SPACE.held_out_ratio) for name in train)
    assert all(any(is_held_out(name, SPACE.held_out_ratio) for name in e.family) for e in held_out)
    assert all(episode.held_out for episode in held_out)


def test_held_out_is_a_share_of_the_families() -> None:
    """About the stated share of names is held out, none at 0 and all at 1."""
    names = [f"kind|kernel|{number}" for number in range(4000)]
    share = np.mean([is_held_out(name, 0.2) for name in names])
    assert abs(share - 0.2) < 4 * np.sqrt(0.2 * 0.8 / 4000)
    assert not any(is_held_out(name, 0.0) for name in names)
    assert all(is_held_out(name, 1.0) for name in names)


def test_the_split_changes_no_other_number() -> None:
    """The split changes only faults: workload, pool, telemetry and changes of the fleet stay the same."""
    for fleet in range(30):
        one, other = draw(fleet, "train").scenario, draw(fleet, "held_out").scenario
        assert np.array_equal(one.absent, other.absent)
        assert one.telemetry == other.telemetry
        assert one.changes == other.changes
        assert np.array_equal(one.workload.slice_share, other.workload.slice_share)


def test_the_space_is_covered() -> None:
    """Calm and faulty episodes, many kinds, all shapes and targets, short pools and ordinary change occur."""
    episodes = [draw(fleet) for fleet in range(400)]
    parts = [name.split("|") for episode in episodes for name in episode.family]
    assert {part[3] for part in parts} == {"step", "ramp", "slow_onset", "intermittent"}
    assert len({part[0] for part in parts}) >= 13
    assert {"kernel", "replica", "zone", "arrivals"} <= {part[4] for part in parts}
    assert 0.08 < np.mean([not episode.family for episode in episodes]) < 0.24
    assert any(episode.scenario.absent.any() for episode in episodes)
    assert {change.kind for episode in episodes for change in episode.scenario.changes} >= {
        "rolling_restart",
        "cache_flush",
        "lost_scrapes",
    }


def test_requests_have_other_lengths_than_declared() -> None:
    """Mean lengths are between half and twice the declared ones; the declared ones are unchanged."""
    told = base().compiled
    prompts, answers = (np.empty(80), np.empty(80))
    for fleet in range(80):
        one = draw(fleet).scenario
        prompts[fleet] = one.workload.prompt_tokens[0].mean / told.workload.prompt_tokens[0].mean
        answers[fleet] = one.workload.output_tokens[0].mean / told.workload.output_tokens[0].mean
        assert np.array_equal(one.setup.capacity_rps, told.setup.capacity_rps)
    for factors in (prompts, answers):
        assert 0.5 - 1e-9 <= factors.min() < 0.7
        assert 1.5 < factors.max() <= 2.0 + 1e-9
    assert abs(np.corrcoef(prompts, answers)[0, 1]) < 0.4


def test_the_detector_equals_that_of_the_shipped_policies() -> None:
    """Array by array the plan of the configuration ``sequential``, which ``learned`` uses as well."""
    fleet = base().compiled.setup
    for configuration in ("sequential", "learned"):
        inside, driven = shipped_detector(fleet), make_configuration(configuration, fleet).detector
        assert isinstance(inside, SequentialDetector)
        assert isinstance(driven, SequentialDetector)
        np.testing.assert_equal(asdict(inside.plan), asdict(driven.plan))


def test_faults_of_the_base_scenario_are_left_out(tmp_path: Path) -> None:
    """Faults scheduled by the base scenario occur in no drawn episode."""
    crash = {"name": "own", "kind": "crash", "target": {"kernel": "bf16"}, "onset_s": 5.0}
    path = write_world(tmp_path, scenario_document(horizon_s=60.0, faults=[crash]))
    own = load_base(path)
    calm = draw_episode(own, EpisodeSpace(calm_share=1.0), 1, 0, 0)
    assert own.compiled.plans == calm.scenario.plans == ()
    assert own.compiled.ticks == 60


def test_every_kernel_keeps_a_replica() -> None:
    """However many replicas are missing, no kernel of the pool is without one."""
    space = replace(SPACE, away_share=1.0)
    owner = base().compiled.layout.replica_kernel
    for fleet in range(10):
        present = ~draw(fleet, space=space).scenario.absent
        assert np.array_equal(np.unique(owner[present]), np.unique(owner))
        assert present.sum() == len(np.unique(owner))


def test_doses_and_onsets_keep_their_ranges() -> None:
    """Onsets are in the stated part of the horizon, and free doses within their ranges."""
    for fleet in range(200):
        for plan in draw(fleet).scenario.plans:
            assert 0.1 * HORIZON_S <= plan.onset_s <= 0.5 * HORIZON_S
            if plan.kind == "slow":
                assert 1.5 <= plan.dose <= 8.0
            if plan.kind == "http_errors":
                assert 0.02 <= plan.dose <= 0.8


def test_impossible_ranges_are_refused() -> None:
    """A split without episodes, or a share beyond 1, is refused with what was expected."""
    with pytest.raises(ValueError, match="split: expected one that some family belongs to"):
        draw(0, "held_out", space=replace(SPACE, held_out_ratio=0.0))
    with pytest.raises(ValueError, match=r"calm_share: expected a ratio in 0\.\.1, got 2"):
        EpisodeSpace(calm_share=2.0)
