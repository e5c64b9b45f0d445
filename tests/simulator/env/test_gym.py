"""The environment through Gymnasium and Stable-Baselines3."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.fleets.env_world import config, scenario_path

pytestmark = pytest.mark.needs("gymnasium")

TERMS = {"goodput", "quality", "moved", "capacity", "cost", "costs", "shielded", "exposed", "shed", "failed"}


def made(**more: Any) -> Any:
    """The registered environment on the synthetic fleet."""
    import gymnasium

    import simulator.env.gym

    return gymnasium.make(simulator.env.gym.ENV_ID, scenarios=(scenario_path(),), horizon_s=20.0, **more)


def vector(count: int, **more: Any) -> Any:
    """The native vector environment on the synthetic fleet."""
    import gymnasium

    import simulator.env.gym

    return gymnasium.make_vec(
        simulator.env.gym.ENV_ID,
        num_envs=count,
        vectorization_mode="vector_entry_point",
        scenarios=(scenario_path(),),
        horizon_s=20.0,
        **more,
    )


def test_gymnasium_checker_passes() -> None:
    """The registered environment passes Gymnasium's own checker."""
    from gymnasium.utils.env_checker import check_env

    check_env(made().unwrapped)


@pytest.mark.needs("stable_baselines3")
def test_stable_baselines_checker_passes() -> None:
    """The registered environment passes Stable-Baselines3's checker."""
    from stable_baselines3.common.env_checker import check_env

    check_env(made().unwrapped)


def test_a_step_has_five_parts_and_every_term() -> None:
    """Step returns five values; info holds cost, costs per clause, the shield's share and all terms."""
    env = made()
    observation, info = env.reset(seed=3)
    assert env.observation_space.contains(observation)
    assert set(info) == {"family", "held_out"}
    observation, reward, terminated, truncated, info = env.step(env.action_space.sample())
    assert env.observation_space.contains(observation)
    assert isinstance(reward, float)
    assert (terminated, truncated) == (False, False)
    assert set(info) >= TERMS
    assert isinstance(info["cost"], float)
    assert info["costs"].shape == (len(env.unwrapped.clauses),)


def test_the_horizon_truncates_and_never_terminates() -> None:
    """An episode ends only by its time limit, which is truncation."""
    env = made()
    env.reset(seed=1)
    ends = [env.step(env.action_space.sample())[2:4] for _ in range(19)]
    assert ends == [(False, False)] * 18 + [(False, True)]


def test_seeds_are_exact() -> None:
    """Two copies, one seed, the same actions: equal observations, rewards and infos at every step."""
    one, other = made(), made()
    assert np.array_equal(one.reset(seed=5)[0], other.reset(seed=5)[0])
    one.action_space.seed(5)
    for number in range(19):
        action = one.action_space.sample()
        first, second = one.step(action), other.step(action)
        assert np.array_equal(first[0], second[0]), f"step {number}"
        assert first[1] == second[1]
        assert np.array_equal(first[4]["costs"], second[4]["costs"])


def test_a_fleet_of_the_vector_is_the_single_environment() -> None:
    """Fleet 1 of three and the single environment of fleet 1 agree bit for bit, across a reset too."""
    many, single = vector(3), made(fleet=1)
    seen, _ = many.reset(seed=8)
    assert np.array_equal(seen[1], single.reset(seed=8)[0])
    many.action_space.seed(8)
    for _ in range(25):
        action = many.action_space.sample()
        seen, reward, terminated, truncated, infos = many.step(action)
        own, own_reward, _, over, own_info = single.step(action[1])
        assert reward[1] == own_reward
        assert infos["cost"][1] == own_info["cost"]
        assert not terminated.any()
        assert truncated.all() == truncated.any() == over
        if over:
            assert np.array_equal(infos["final_obs"][1], own)
            own, _ = single.reset()
        assert np.array_equal(seen[1], own)


def test_the_vector_is_declared_and_reports_what_ended() -> None:
    """Autoreset is of the declared kind; final observations and infos come with the last step."""
    from gymnasium.vector import AutoresetMode

    many = vector(2)
    assert many.metadata["autoreset_mode"] == AutoresetMode.SAME_STEP
    _, infos = many.reset(seed=0)
    assert infos["family"].shape == (2,)
    actions = np.zeros(many.action_space.shape, dtype=np.float32)
    for _ in range(18):
        _, _, _, _, infos = many.step(actions)
        assert "final_obs" not in infos
    seen, _, _, truncated, infos = many.step(actions)
    assert truncated.all()
    assert many.observation_space.contains(seen)
    assert infos["_final_obs"].all()
    assert set(infos["final_info"]) >= TERMS


def test_gymnasiums_own_vectors_work() -> None:
    """The single environment also runs in Gymnasium's synchronous vector."""
    import gymnasium

    import simulator.env.gym

    many = gymnasium.make_vec(
        simulator.env.gym.ENV_ID, num_envs=2, vectorization_mode="sync", config=config(horizon_s=10.0)
    )
    seen, _ = many.reset(seed=0)
    assert seen.shape[0] == 2
    assert many.step(many.action_space.sample())[1].shape == (2,)


def test_a_configuration_is_given_once() -> None:
    """A config together with its fields is refused."""
    from simulator.env.gym import FleetRoutingEnv

    with pytest.raises(TypeError, match="expected config or its fields, got both: horizon_s"):
        FleetRoutingEnv(config(), horizon_s=3.0)
