"""Shield alone: proposals that know nothing, so that what is seen is the shield's own work."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controller.ports import Observation, PolicyState, Proposal


@dataclass(frozen=True, slots=True, kw_only=True)
class UniformPolicy:
    """The same weight on every kernel, whatever it is and however it does."""

    policy_id: str = "shield-alone"

    def initial(self, batch: int) -> PolicyState:  # noqa: ARG002 - the protocol's argument
        """Nothing to remember."""
        return {}

    def propose(self, seen: Observation, state: PolicyState) -> tuple[Proposal, PolicyState]:
        """1 / K everywhere, nothing shed."""
        table = np.zeros(seen.table.shape)
        table[:, :, :-1] = 1.0 / len(seen.role_known_good)
        return Proposal(table=table, ejected=np.zeros(seen.in_rotation.shape, dtype=np.bool_)), state
