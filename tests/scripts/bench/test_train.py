"""The benchmark of training returns its named figures, and timing changes no result."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.fleets.env_world import config

pytestmark = pytest.mark.needs("gymnasium", "stable_baselines3", "torch")

KEYS = {
    "ppo_fleets",
    "ppo_batch",
    "ppo_epochs",
    "ppo_runs",
    "ppo_steps_timed",
    "ppo_steps_per_cpu_s",
    "ppo_steps_per_cpu_s_fastest",
    "ppo_env_share",
    "ppo_update_share",
    "lagrangian_over_ppo",
}


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    from scripts.studies.training import native_ppo

    monkeypatch.setattr(native_ppo, "FLEETS", 4)
    monkeypatch.setattr(native_ppo, "TICKS", 16)
    monkeypatch.setitem(native_ppo.LARGE, "batch_size", 32)


@pytest.mark.usefixtures("_small")
def test_speed_counts_every_step_and_no_share_exceeds_the_whole() -> None:
    """Steps are fleets times ticks times rollouts; environment and updates are parts of the whole."""
    from scripts.studies.training import native_ppo

    figures: dict[str, Any] = native_ppo.speed(config(horizon_s=20.0), 1, 1, 2)
    assert set(figures) == KEYS
    assert figures["ppo_steps_timed"] == 2 * 4 * 16
    shares = figures["ppo_env_share"], figures["ppo_update_share"]
    assert all(isinstance(share, float) and 0.0 < share < 1.0 for share in shares)
    assert figures["ppo_steps_per_cpu_s"] > 0


@pytest.mark.usefixtures("_small")
def test_a_timed_model_learns_what_an_untimed_one_learns() -> None:
    """Wrapped or not, equal seeds and steps end with equal weights."""
    from scripts.studies.training import native_ppo

    world = config(horizon_s=20.0)
    timed = native_ppo.Timed(world, 5)
    timed.run(2)
    plain = native_ppo.make_model(native_ppo.make_env(world, 4), 5, native_ppo.LARGE)
    plain.learn(2 * 4 * 16)
    weights = [model.policy.action_net.weight.detach().numpy() for model in (timed.model, plain)]
    assert np.array_equal(*weights)
