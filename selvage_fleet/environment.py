"""The fleet as an environment for Gymnasium; importing this module registers it.

::

    env = gymnasium.make("selvage_fleet.environment:Selvage/FleetRouting-v0")

The part before the colon is what Gymnasium imports first. The installed package also names ``register`` in
the entry-point group ``gymnasium.envs``, with which older versions of Gymnasium (up to 0.29) need no import.
Needs the optional part ``rl``: pip install 'selvage-fleet[rl]'. ``simulator.env.gym`` documents observations,
actions and reward.
"""

from __future__ import annotations

from simulator.env.gym import ENV_ID, FleetRoutingEnv, register
from simulator.env.vector import FleetRoutingVectorEnv

__all__ = ["ENV_ID", "FleetRoutingEnv", "FleetRoutingVectorEnv", "register"]
