"""The state of every replica of B fleets as arrays: what events change and telemetry and truth read."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from contracts.telemetry import ReplicaState
from faults.effects import HEALTHY, ReplicaEffect
from simulator.world import CompiledScenario


class ReplicaBoard:
    """One row per fleet, one column per replica; all arrays [B, R].

    state: int8, what discovery says. condition: int64, measured condition in force. answers: bool, the
    process computes (neither dead, starting nor hung). crashed: bool, a fault keeps it dead.
    telemetry_lost, wrong_fingerprint: bool. trace_missing, scrape_loss: float64 ratios.
    """

    def __init__(self, each: Sequence[CompiledScenario]) -> None:
        shape = (len(each), len(each[0].layout.replicas))
        self.state = np.full(shape, int(ReplicaState.READY), dtype=np.int8)
        self.state[np.stack([scenario.absent for scenario in each])] = int(ReplicaState.ABSENT)
        self.condition = np.zeros(shape, dtype=np.int64)
        self.answers = self.state == int(ReplicaState.READY)
        self.crashed = np.zeros(shape, dtype=np.bool_)
        self.hung = np.zeros(shape, dtype=np.bool_)
        self.telemetry_lost = np.zeros(shape, dtype=np.bool_)
        self.wrong_fingerprint = np.zeros(shape, dtype=np.bool_)
        self.trace_missing = np.zeros(shape, dtype=np.float64)
        loss = [scenario.telemetry.scrape_loss_ratio for scenario in each]
        self.scrape_loss = np.repeat(np.array(loss)[:, None], shape[1], axis=1)
        self.effects = [[HEALTHY] * shape[1] for _ in each]

    def take(self, fleet: int, replica: int, effect: ReplicaEffect) -> None:
        """Enter what faults do to one replica."""
        place = fleet, replica
        self.effects[fleet][replica] = effect
        self.condition[place] = effect.condition
        self.crashed[place] = effect.crashed
        self.hung[place] = effect.hang
        self.telemetry_lost[place] = effect.telemetry_lost
        self.wrong_fingerprint[place] = effect.wrong_fingerprint
        self.trace_missing[place] = effect.trace_fields_missing_ratio
        self._settle(fleet, replica)

    def enter(self, fleet: int, replica: int, state: ReplicaState) -> None:
        """Enter what discovery says of one replica."""
        self.state[fleet, replica] = int(state)
        self._settle(fleet, replica)

    def is_ready(self) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        """Bool [B, R]: discovery lists the replica as an endpoint."""
        return np.asarray(self.state == int(ReplicaState.READY))

    def _settle(self, fleet: int, replica: int) -> None:
        place = fleet, replica
        runs = self.state[place] in (int(ReplicaState.READY), int(ReplicaState.DRAINING))
        self.answers[place] = runs and not self.hung[place]
