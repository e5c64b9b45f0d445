"""Threshold: the two-threshold rule, acted on at once, without memory of what was."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from controller.ports import Observation, PolicyState, Proposal
from policies.rules.capacity import Headroom, capacity_memory, fit_capacity
from policies.rules.targets import home_level, two_threshold_table


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdPolicy:
    """Normal: home. Guard: ``guard_share`` to the best other compliant kernel. Fallback: to known-good.

    By default guard moves the whole slice: what stays on a kernel that breaks a clause keeps the slice
    outside its contract, and probes, not traffic, tell when the kernel is well again.

    kernels, slices: sizes of the fleet; priority: int64 [S], who is served first when capacity is short.
    """

    policy_id: str
    kernels: int
    slices: int
    priority: NDArray[np.int64]
    shed_when_uncertified: bool
    guard_share: float = 1.0
    headroom: Headroom = field(default_factory=Headroom)

    def initial(self, batch: int) -> PolicyState:
        """Only what the capacity plan remembers."""
        return capacity_memory(batch, self.slices, self.kernels)

    def propose(self, seen: Observation, state: PolicyState) -> tuple[Proposal, PolicyState]:
        """The rule's table, as far as capacity goes."""
        wanted, rank = two_threshold_table(
            seen, home_level(seen), self.guard_share, self.shed_when_uncertified
        )
        return fit_capacity(wanted, rank, seen, state, self.priority, self.headroom)
