"""The fleet as an environment for Gymnasium; importing this module registers it.

::

    env = gymnasium.make("selvage_fleet.environment:Selvage/FleetRouting-v0")

Needs the optional part ``rl``: pip install 'selvage-fleet[rl]'. ``simulator.env.gym`` says what is seen, done
and rewarded.
"""

from __future__ import annotations

from simulator.env.gym import ENV_ID, FleetRoutingEnv
from simulator.env.vector import FleetRoutingVectorEnv

__all__ = ["ENV_ID", "FleetRoutingEnv", "FleetRoutingVectorEnv"]
