"""The lock-step fleets as Stable-Baselines3 sees them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.fleets.env_world import config

pytestmark = pytest.mark.needs("gymnasium", "stable_baselines3")


def made(count: int, horizon_s: float = 20.0) -> Any:
    """The adapter over ``count`` fleets."""
    from scripts.train.sb3_env import FleetVecEnv
    from simulator.env.vector import FleetRoutingVectorEnv

    return FleetVecEnv(FleetRoutingVectorEnv(count, config(horizon_s=horizon_s)))


def test_the_adapter_tells_what_the_environment_tells() -> None:
    """Observations, rewards and costs are those of the lock-step environment, fleet by fleet."""
    from simulator.env.vector import FleetRoutingVectorEnv

    adapter, plain = made(3), FleetRoutingVectorEnv(3, config(horizon_s=20.0))
    adapter.seed(4)
    seen, _ = plain.reset(seed=4)
    assert np.array_equal(adapter.reset(), seen)
    plain.action_space.seed(1)
    for _ in range(25):
        action = plain.action_space.sample()
        seen, reward, _, over, infos = plain.step(action)
        mine, own_reward, done, rows = adapter.step(action)
        assert np.array_equal(mine, seen)
        assert np.array_equal(own_reward, reward.astype(np.float32))
        assert np.array_equal(done, over)
        assert [row["cost"] for row in rows] == infos["cost"].tolist()
        assert ("terminal_observation" in rows[0]) == bool(over[0])


def test_an_adapter_that_shows_nothing_still_ends_episodes_and_counts_costs() -> None:
    """Without shown terms infos are empty except for the horizon; costs are those per offered request."""
    from scripts.train.sb3_env import FleetVecEnv

    shown, silent = made(2), FleetVecEnv(made(2).env, shown=())
    for adapter in (shown, silent):
        adapter.seed(7)
        adapter.reset()
    for _ in range(25):
        action = np.zeros((2, shown.action_space.shape[0]), dtype=np.float32)
        seen, reward, over, rows = shown.step(action)
        own_seen, own_reward, own_over, own_rows = silent.step(action)
        assert np.array_equal(own_seen, seen)
        assert np.array_equal(own_reward, reward)
        assert np.array_equal(own_over, over)
        ends = {"terminal_observation", "TimeLimit.truncated"}
        assert [set(row) for row in own_rows] == [ends if over[0] else set()] * 2
        expected = [row["cost"] / max(row["offered"], 1.0) for row in rows]
        assert silent.costs.tolist() == expected


def test_fleets_in_lock_step_refuse_to_be_set_apart() -> None:
    """Setting an attribute or calling a method on some fleets is refused with the reason."""
    adapter = made(2)
    assert adapter.env_is_wrapped(object) == [False, False]
    assert adapter.get_attr("slices", [1]) == [adapter.env.slices]
    with pytest.raises(NotImplementedError, match="share one environment"):
        adapter.set_attr("anything", 1)
    with pytest.raises(NotImplementedError, match="share one environment"):
        adapter.env_method("anything")


@pytest.mark.needs("torch")
def test_ppo_takes_the_fleets_as_they_are() -> None:
    """PPO collects, updates and crosses a horizon on the lock-step fleets; equal seeds train equally."""
    from stable_baselines3 import PPO

    trained = []
    for _ in range(2):
        model = PPO("MlpPolicy", made(4), n_steps=16, batch_size=32, n_epochs=1, seed=3, device="cpu")
        model.learn(128)
        trained.append(model.policy.action_net.weight.detach().numpy().copy())
    assert np.isfinite(trained[0]).all()
    assert np.array_equal(trained[0], trained[1])
