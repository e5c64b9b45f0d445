"""Policies with constant proposals: home, the known-good kernel, or an equal share for every kernel.

``fixed`` is the lower bound that the others are compared with. ``shield-alone`` proposes without using the
observation, so its results show the shield's own work.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from controller.ports import Observation, PolicyState, Proposal


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedPolicy:
    """Weight 1 on the home kernel of each slice."""

    policy_id: str = "fixed"

    def initial(self, batch: int) -> PolicyState:  # noqa: ARG002 - the protocol's argument
        """Nothing to remember."""
        return {}

    def propose(self, observation: Observation, state: PolicyState) -> tuple[Proposal, PolicyState]:
        """The home table."""
        return Proposal(
            table=home_table(observation), ejected=np.zeros(observation.in_rotation.shape, dtype=np.bool_)
        ), state


def home_table(observation: Observation) -> NDArray[np.float64]:
    """float64 [B, S, K + 1] with weight 1 at home."""
    table = np.zeros(observation.table.shape)
    table[:, np.arange(len(observation.home)), observation.home] = 1.0
    return table


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownGoodPolicy:
    """Every slice on the known-good kernel, always; the shield limits it to capacity."""

    policy_id: str = "fixed_known_good"

    def initial(self, batch: int) -> PolicyState:  # noqa: ARG002 - the protocol's argument
        """Nothing to remember."""
        return {}

    def propose(self, observation: Observation, state: PolicyState) -> tuple[Proposal, PolicyState]:
        """Weight 1 in the known-good column."""
        table = np.zeros(observation.table.shape)
        table[:, :, int(np.argmax(observation.role_known_good))] = 1.0
        return Proposal(table=table, ejected=np.zeros(observation.in_rotation.shape, dtype=np.bool_)), state


@dataclass(frozen=True, slots=True, kw_only=True)
class UniformPolicy:
    """The same weight on every kernel, regardless of its state."""

    policy_id: str = "shield-alone"

    def initial(self, batch: int) -> PolicyState:  # noqa: ARG002 - the protocol's argument
        """Nothing to remember."""
        return {}

    def propose(self, observation: Observation, state: PolicyState) -> tuple[Proposal, PolicyState]:
        """1 / K everywhere, nothing shed."""
        table = np.zeros(observation.table.shape)
        table[:, :, :-1] = 1.0 / len(observation.role_known_good)
        return Proposal(table=table, ejected=np.zeros(observation.in_rotation.shape, dtype=np.bool_)), state
