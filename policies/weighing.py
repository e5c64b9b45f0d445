"""Policies that are a single function without memory: weights per slice and kernel from the observation.

``weighing`` registers such a function by name. Its result need not be a table: rows are normalised to sum to
1, and a slice with only zero weights goes home.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contracts.errors import PluginError
from contracts.plugins import Parameter
from controller.ports import Observation, PolicyState, Proposal
from policies.kinds import POLICIES, PolicyKind
from policies.rules.fixed import home_table
from policies.spec import Settings

#: A weighing function; returns finite numbers >= 0 that broadcast to [B, S, K].
Weigh = Callable[[Observation, Settings], ArrayLike]


@dataclass(frozen=True, slots=True, kw_only=True)
class WeighingPolicy:
    """Weights by ``weigh``; nothing shed, no replica ejected."""

    policy_id: str
    weigh: Weigh
    settings: Settings

    def initial(self, batch: int) -> PolicyState:  # noqa: ARG002 - the protocol's argument
        """Nothing to remember."""
        return {}

    def propose(self, observation: Observation, state: PolicyState) -> tuple[Proposal, PolicyState]:
        """The weights as a table; home for slices with only zero weights. PluginError for invalid weights."""
        weights, table = self._weights(observation), home_table(observation)
        total = weights.sum(axis=2, keepdims=True)
        shares = weights / np.where(total > 0.0, total, 1.0)
        table[:, :, :-1] = np.where(total > 0.0, shares, table[:, :, :-1])
        ejected = np.zeros(observation.in_rotation.shape, dtype=np.bool_)
        return Proposal(table=table, ejected=ejected), state

    def _weights(self, observation: Observation) -> NDArray[np.float64]:
        found = np.asarray(self.weigh(observation, self.settings), dtype=np.float64)
        batch, slices, columns = observation.table.shape
        expected = f"policy {self.policy_id!r}: expected finite weights >= 0 [fleets, slices, kernels]"
        try:
            weights = np.broadcast_to(found, (batch, slices, columns - 1))
        except ValueError:
            wanted = f"{[batch, slices, columns - 1]}, got {list(found.shape)}"
            raise PluginError(f"{expected} of shape {wanted}; mend its function") from None
        if not bool(np.all((weights >= 0.0) & (weights < np.inf))):
            raise PluginError(f"{expected}, got {weights.min():g} to {weights.max():g}; mend its function")
        return weights


def weighing(name: str, description: str, **parameters: Parameter) -> Callable[[Weigh], Weigh]:
    """Register the decorated function as the policy ``name``, with ``parameters``, shield and quarantine.

    The function is called with an ``Observation`` and the settings by name. ValueError if the name is taken.
    """

    def keep(weigh: Weigh) -> Weigh:
        kind = PolicyKind(
            factory=lambda _, policy_id, settings: WeighingPolicy(
                policy_id=policy_id, weigh=weigh, settings=settings
            ),
            parameters=parameters,
            quarantine=True,
            shield=True,
            description=description,
        )
        POLICIES.register(name, kind)
        return weigh

    return keep
