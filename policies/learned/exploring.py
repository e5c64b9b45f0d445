"""Explores around another policy with known propensities, so that its log can evaluate other policies.

Each slice's *choice* is the kernel that the base policy gives most of it (or shedding). With probability
``rate`` per tick the choice is redrawn, uniformly from the open kernels: a replica in rotation, certified,
not in alarm. The shield bounds the effect. Choices and the logarithm of their probability are kept in the
policy's memory, where a log finds them. Fleet b draws from the stream (seed, "explore", b, tick), so a state
restored at any tick continues with the same draws.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contracts.rng import stream
from controller.ports import Observation, Policy, PolicyState, Proposal
from policies.rules.threshold import compliant

#: Memory names of the exploration; those of the base policy have the prefix below.
CHOICE, LOG_PROBABILITY, TICK = "explored_choice", "explored_log_probability", "explored_tick"
_BASE = "base."

Choices = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExploringPolicy:
    """``base`` with random draws; see the module. slices: S."""

    base: Policy
    slices: int
    rate: float
    seed: int

    def __post_init__(self) -> None:
        if not 0.0 < self.rate <= 1.0:
            raise ValueError(f"rate: expected a probability above 0, got {self.rate}")

    @property
    def policy_id(self) -> str:
        """The base policy's id with the exploration."""
        return f"{self.base.policy_id}+explore(rate={self.rate:g},seed={self.seed})"

    def initial(self, batch: int) -> PolicyState:
        """Memory of the base policy, without draws."""
        mine: PolicyState = {
            CHOICE: np.zeros((batch, self.slices), dtype=np.int64),
            LOG_PROBABILITY: np.zeros(batch),
            TICK: np.zeros(batch, dtype=np.int64),
        }
        return mine | {_BASE + name: array for name, array in self.base.initial(batch).items()}

    def propose(self, observation: Observation, state: PolicyState) -> tuple[Proposal, PolicyState]:
        """The base policy's table, with new rows for the slices with redrawn choices."""
        inner = {name.removeprefix(_BASE): array for name, array in state.items() if name.startswith(_BASE)}
        proposal, inner = self.base.propose(observation, inner)
        tick, usual = state[TICK].astype(np.int64), choice_of(proposal.table)
        open_to = compliant(observation).transpose(0, 2, 1)
        chosen = self._drawn(usual, open_to, tick)
        memory: PolicyState = {
            CHOICE: chosen,
            LOG_PROBABILITY: log_probability(chosen, usual, open_to, self.rate),
            TICK: tick + 1,
        }
        one_hot = np.eye(proposal.table.shape[2])[chosen]
        table = np.where((chosen == usual)[:, :, None], proposal.table, one_hot)
        return Proposal(table=table, ejected=proposal.ejected), memory | {
            _BASE + name: array for name, array in inner.items()
        }

    def _drawn(self, usual: Choices, open_to: NDArray[np.bool_], ticks: Choices) -> Choices:
        chosen = usual.copy()
        for b, tick in enumerate(ticks):
            rng = stream(self.seed, "explore", b, int(tick))
            coins, places = rng.random(self.slices), rng.random(self.slices)
            for s in np.flatnonzero(coins < self.rate):
                options = np.flatnonzero(open_to[b, s])
                if len(options):
                    chosen[b, s] = options[int(places[s] * len(options))]
        return chosen


def choice_of(table: NDArray[np.float64]) -> Choices:
    """Choices int64 [B, S] of a table [B, S, K + 1]: the heaviest column, K for shedding."""
    return np.asarray(table.argmax(axis=2), dtype=np.int64)


def log_probability(
    chosen: Choices, usual: Choices, open_to: NDArray[np.bool_], rate: float
) -> NDArray[np.float64]:
    """Log probability float64 [B] of ``chosen`` [B, S]; open_to: bool [B, S, K]."""
    count = open_to.sum(axis=2)
    kernels = open_to.shape[2]
    is_open = np.take_along_axis(open_to, np.minimum(chosen, kernels - 1)[:, :, None], axis=2)[:, :, 0]
    drawn = np.where(is_open & (chosen < kernels), rate / np.maximum(count, 1), 0.0)
    # Without open kernels, a draw keeps the usual choice.
    kept = np.where(count > 0, 1.0 - rate, 1.0)
    return np.asarray(np.log(drawn + np.where(chosen == usual, kept, 0.0)).sum(axis=1))
