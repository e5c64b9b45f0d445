"""Explore around another policy with known propensities, so that its log can evaluate other policies.

Gaussian noise of standard deviation ``std`` is added to the action that asks for the base policy's table;
the shield bounds what comes of it. The action and the logarithm of its density stand in the policy's memory,
where a log finds them. Fleet b draws from the stream (seed, "explore", b), numbered by tick, so that a state
restored at any tick goes on with the same noise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contracts.streams import stream
from controller.features import Encoder
from controller.ports import Observation, Policy, PolicyState, Proposal

#: Names in the memory that belong to the exploration; the base policy's follow with this prefix.
ACTION, LOG_DENSITY, TICK = "explored_action", "explored_log_density", "explored_tick"
_BASE = "base."


@dataclass(frozen=True, slots=True, kw_only=True)
class ExploringPolicy:
    """``base`` with noise; see the module."""

    base: Policy
    encoder: Encoder
    std: float
    seed: int

    def __post_init__(self) -> None:
        if not self.std > 0.0:
            raise ValueError(f"std: expected a number > 0, got {self.std}")

    @property
    def policy_id(self) -> str:
        """The base policy's id with the noise."""
        return f"{self.base.policy_id}+noise(std={self.std:g},seed={self.seed})"

    def initial(self, batch: int) -> PolicyState:
        """Memory of the base policy, and nothing drawn yet."""
        mine: PolicyState = {
            ACTION: np.zeros((batch, self.encoder.action_size), dtype=np.float32),
            LOG_DENSITY: np.zeros(batch),
            TICK: np.zeros(batch, dtype=np.int64),
        }
        return mine | {_BASE + name: array for name, array in self.base.initial(batch).items()}

    def propose(self, seen: Observation, state: PolicyState) -> tuple[Proposal, PolicyState]:
        """The base policy's table, moved by noise."""
        inner = {name.removeprefix(_BASE): array for name, array in state.items() if name.startswith(_BASE)}
        proposal, inner = self.base.propose(seen, inner)
        tick = state[TICK].astype(np.int64)
        noise = self._noise(tick)
        wanted = self.encoder.action(proposal.table, seen.home)
        action = (wanted + self.std * noise).astype(np.float32)
        table = self.encoder.table(action, seen.home, seen.ready.shape[1])
        memory: PolicyState = {
            ACTION: action,
            LOG_DENSITY: log_density(action, wanted, self.std),
            TICK: tick + 1,
        }
        return Proposal(table=table, ejected=proposal.ejected), memory | {
            _BASE + name: array for name, array in inner.items()
        }

    def _noise(self, ticks: NDArray[np.int64]) -> NDArray[np.float64]:
        size = self.encoder.action_size
        return np.array(
            [stream(self.seed, "explore", b, int(t)).normal(size=size) for b, t in enumerate(ticks)]
        )


def log_density(action: NDArray[np.float32], mean: NDArray[np.float32], std: float) -> NDArray[np.float64]:
    """Log density float64 [B] of ``action`` [B, A] under independent normals around ``mean``."""
    distance = (action.astype(np.float64) - mean) / std
    constant = action.shape[1] * (np.log(std) + 0.5 * np.log(2.0 * np.pi))
    return np.asarray(-0.5 * (distance**2).sum(axis=1) - constant)
