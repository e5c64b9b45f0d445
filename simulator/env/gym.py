"""``Selvage/FleetRouting-v0``: one simulated fleet as a constrained decision process for Gymnasium.

Importing this module registers the environment::

    import gymnasium
    import selvage_fleet.environment
    env = gymnasium.make("Selvage/FleetRouting-v0")

A step is one control tick. The environment runs the controller itself: the controller estimates, judges and
quarantines from telemetry, the action takes the place of a policy's proposal, and the shield decides which
part of it is allowed.

**Observation**, ``Box`` float32: ``controller.encoding.features`` lists every number with unit, bounds and
source. All numbers come from telemetry.

**Action**, ``Box(-1, 1)``: one number per slice and kernel and one per slice for shedding (answered 429),
mapped to routing tables by ``controller.encoding.actions.table_from_action``. The action 0 is the home table.

**Reward and costs** come from ground truth. The formulae with units and bounds are in
``contracts.scoring.reward``. In short ``reward = goodput * quality - w_move * moved - w_capacity * capacity``
in [-w_move - w_capacity, 1], and clause c costs ``exceed_c - rho_c * n_c`` with limit 0.

**Info**: ``cost`` (largest soft clause), ``costs`` float64 [C] in the order of ``env.unwrapped.clauses``,
``shielded`` in [0, 1] (half the L1 distance per slice between the requested table and the one in force),
every reward term, the request counts of the tick, and from ``reset`` the ``family`` of the drawn faults.

**Start**: an empty fleet, every slice at home, one tick old. **End**: never terminated; truncated at the
horizon. Episodes are drawn by ``simulator.env.randomise``; ``reset(seed=s)`` gives the first episode of s, a
reset without a seed the next one.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from simulator import env
from simulator.env.core import EnvConfig, EnvCore, Step
from simulator.env.reward import RewardTerms

ENV_ID = "Selvage/FleetRouting-v0"


class FleetRoutingEnv(gymnasium.Env):
    """One fleet; see the module. Arguments are the fields of ``EnvConfig``, or one ``config``."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - Gymnasium's own form

    def __init__(self, config: EnvConfig | None = None, *, fleet: int = 0, **changes: Any) -> None:
        self.core = EnvCore(config_of(config, changes), 1, first_fleet=fleet)
        self.observation_space, self.action_space = spaces_of(self.core)
        self.clauses, self.slices = self.core.clauses, self.core.slices
        self._seeded = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Begin an episode; see the module. ``options`` are not used."""
        super().reset(seed=seed, options=options)
        if seed is None and not self._seeded:
            seed = int(self.np_random.integers(2**31))
        self._seeded = True
        observation = self.core.reset(seed)[0]
        episode = self.core.episodes[0]
        return observation, {"family": episode.family, "held_out": episode.held_out}

    def step(
        self, action: NDArray[np.floating]
    ) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Advance one tick; see the module."""
        step = self.core.step(np.asarray(action)[None])
        info = {name: _first(values) for name, values in info_of(step).items()}
        return self.core.observation()[0], float(step.terms.reward[0]), False, step.over, info


def config_of(config: EnvConfig | None, changes: dict[str, Any]) -> EnvConfig:
    """The given configuration, or one made of keyword arguments."""
    if config is not None and changes:
        raise TypeError(f"expected config or its fields, got both: {', '.join(sorted(changes))}")
    return EnvConfig(**changes) if config is None else config


def spaces_of(core: EnvCore) -> tuple[Any, Any]:
    """Observation and action space of one fleet."""
    low, high = core.encoder.bounds()
    size = (core.encoder.action_size,)
    return spaces.Box(low, high, dtype=np.float32), spaces.Box(-1.0, 1.0, size, dtype=np.float32)


def info_of(step: Step) -> dict[str, NDArray[np.float64]]:
    """All outputs of a step except the observation, each [B] (``costs`` [B, C])."""
    terms = {
        item.name: getattr(step.terms, item.name) for item in fields(RewardTerms) if item.name != "reward"
    }
    return terms | {"shielded": step.shielded}


def _first(values: NDArray[np.float64]) -> Any:
    return float(values[0]) if values.ndim == 1 else values[0].copy()


def register() -> None:
    """Register the environment with Gymnasium; repeated calls have no effect."""
    if ENV_ID not in gymnasium.registry:
        gymnasium.register(
            id=ENV_ID,
            entry_point=f"{__name__}:FleetRoutingEnv",
            vector_entry_point=f"{env.__name__}.vector:FleetRoutingVectorEnv",
        )


register()
