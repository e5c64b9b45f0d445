"""B fleets in lock-step as one Gymnasium vector environment: one SimPy environment, one engine, one tick.

Fleet b of ``FleetRoutingVectorEnv(num_envs=B)`` after ``reset(seed=s)`` equals the fleet of
``FleetRoutingEnv(fleet=b)`` after ``reset(seed=s)``: it depends on s and b, never on B.

All fleets reach their horizon in the same step. Autoreset is of the same-step kind: that step returns the
first observations of the next episodes, ``infos["final_obs"]`` the last observations of the ended episodes,
and ``infos["final_info"]`` their info.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from simulator.env.core import EnvConfig, EnvCore
from simulator.env.gym import config_of, info_of, spaces_of

Infos = dict[str, Any]


class FleetRoutingVectorEnv(VectorEnv):
    """``num_envs`` fleets; see the module. Other arguments are the fields of ``EnvConfig``, or ``config``."""

    metadata: dict[str, Any] = {"render_modes": [], "autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012

    def __init__(
        self, num_envs: int = 64, config: EnvConfig | None = None, *, first_fleet: int = 0, **changes: Any
    ) -> None:
        self.num_envs = num_envs
        self.core = EnvCore(config_of(config, changes), num_envs, first_fleet)
        self.single_observation_space, self.single_action_space = spaces_of(self.core)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.clauses, self.slices = self.core.clauses, self.core.slices
        self._seeded = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], Infos]:
        """Begin an episode of every fleet. One seed serves all: fleets differ by their number."""
        super().reset(seed=seed, options=options)
        if seed is None and not self._seeded:
            seed = int(self.np_random.integers(2**31))
        self._seeded = True
        return self.core.reset(seed), self._families()

    def step(
        self, actions: NDArray[np.floating]
    ) -> tuple[NDArray[np.float32], NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], Infos]:
        """Advance every fleet by one tick; see the module for what follows the horizon."""
        step = self.core.step(np.asarray(actions))
        observation, infos = self.core.observation(), _infos(info_of(step))
        terminated = np.zeros(self.num_envs, dtype=np.bool_)
        truncated = np.full(self.num_envs, step.over)
        if step.over:
            last = np.empty(self.num_envs, dtype=object)
            last[:] = list(observation)
            infos |= {
                "final_obs": last,
                "_final_obs": truncated.copy(),
                "final_info": dict(infos),
                "_final_info": truncated.copy(),
            }
            observation = self.core.reset()
        return observation, step.terms.reward, terminated, truncated, infos

    def _families(self) -> Infos:
        names = np.empty(self.num_envs, dtype=object)
        names[:] = [episode.family for episode in self.core.episodes]
        held_out = np.array([episode.held_out for episode in self.core.episodes])
        return _infos({"family": names, "held_out": held_out})


def _infos(values: dict[str, NDArray[Any]]) -> Infos:
    """Gymnasium's form: with each array a mask of the fleets that have the value, here all."""
    everybody = {f"_{name}": np.ones(len(array), dtype=np.bool_) for name, array in values.items()}
    return {**values, **everybody}
