"""The state of every replica of B fleets as arrays: what events change and telemetry and truth read."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from contracts.telemetry import ProbeOutcome, ReplicaState
from faults.effects import HEALTHY, ReplicaEffect
from simulator.world.compiled_scenario import CompiledScenario


class ReplicaBoard:
    """One row per fleet, one column per replica; all arrays [B, R]."""

    def __init__(self, each: Sequence[CompiledScenario]) -> None:
        shape = (len(each), len(each[0].layout.replicas))
        #: Int8: what discovery says, a ``ReplicaState``.
        self.state = np.full(shape, int(ReplicaState.READY), dtype=np.int8)
        self.state[np.stack([scenario.absent for scenario in each])] = int(ReplicaState.ABSENT)
        #: Measured condition in force.
        self.condition = np.zeros(shape, dtype=np.int64)
        #: Int8: how a probe ends, a ``ProbeOutcome``; nobody probes what is absent.
        self.probed = np.where(self.is_ready(), int(ProbeOutcome.ANSWERED), int(ProbeOutcome.NONE))
        self.probed = self.probed.astype(np.int8)
        #: A fault keeps it dead.
        self.crashed = np.zeros(shape, dtype=np.bool_)
        self.hung = np.zeros(shape, dtype=np.bool_)
        #: Neither scrapes nor probe results arrive.
        self.telemetry_lost = np.zeros(shape, dtype=np.bool_)
        self.wrong_fingerprint = np.zeros(shape, dtype=np.bool_)
        #: Share of answers without a required trace field.
        self.trace_missing = np.zeros(shape, dtype=np.float64)
        loss = [scenario.telemetry.scrape_loss_ratio for scenario in each]
        #: Chance of a scrape to be lost.
        self.scrape_loss = np.repeat(np.array(loss)[:, None], shape[1], axis=1)
        #: What faults do to each replica, lists [B][R].
        self.effects = [[HEALTHY] * shape[1] for _ in each]

    def enter_effect(self, fleet: int, replica: int, effect: ReplicaEffect) -> None:
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

    def enter_state(self, fleet: int, replica: int, state: ReplicaState) -> None:
        """Enter what discovery says of one replica."""
        self.state[fleet, replica] = int(state)
        self._settle(fleet, replica)

    def is_ready(self) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        """Bool [B, R]: discovery lists the replica as an endpoint."""
        return np.asarray(self.state == int(ReplicaState.READY))

    def _settle(self, fleet: int, replica: int) -> None:
        place = fleet, replica
        state = ReplicaState(int(self.state[place]))
        runs = state in (ReplicaState.READY, ReplicaState.DRAINING)
        refused = ProbeOutcome.NONE if state == ReplicaState.ABSENT else ProbeOutcome.REFUSED
        computed = ProbeOutcome.TIMED_OUT if self.hung[place] else ProbeOutcome.ANSWERED
        self.probed[place] = int(computed if runs else refused)
