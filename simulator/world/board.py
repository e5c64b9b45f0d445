"""The state of every replica of B fleets as arrays: changed by events, read by telemetry and ground truth."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from contracts.telemetry import ProbeOutcome, ReplicaState
from faults.effects import ALL_REQUESTS, HEALTHY, ReplicaEffect
from simulator.world.compiled_scenario import CompiledScenario


class ReplicaBoard:
    """One row per fleet, one column per replica; all arrays [B, R]."""

    def __init__(self, each: Sequence[CompiledScenario]) -> None:
        shape = (len(each), len(each[0].layout.replicas))
        #: Int8: state in discovery, a ``ReplicaState``.
        self.state = np.full(shape, int(ReplicaState.READY), dtype=np.int8)
        self.state[np.stack([scenario.absent for scenario in each])] = int(ReplicaState.ABSENT)
        #: Measured condition in force.
        self.condition = np.zeros(shape, dtype=np.int64)
        #: The requests that it strikes, as in ``faults.effects.Struck``.
        self.only_slice = np.full(shape, -1, dtype=np.int64)
        self.after_tokens = np.zeros(shape, dtype=np.int64)
        self.min_batch = np.zeros(shape, dtype=np.int64)
        #: Whether any condition so far struck only some requests.
        self.triggered = False
        #: Int8: how a probe ends, a ``ProbeOutcome``; absent replicas are not probed.
        self.probed = np.where(self.is_ready(), int(ProbeOutcome.ANSWERED), int(ProbeOutcome.NONE))
        self.probed = self.probed.astype(np.int8)
        #: Share of its requests, and of its probes, that a replica answers with an error.
        self.error_ratio = np.zeros(shape, dtype=np.float64)
        #: Whether a fault keeps it dead.
        self.crashed = np.zeros(shape, dtype=np.bool_)
        self.hung = np.zeros(shape, dtype=np.bool_)
        #: Whether neither scrapes nor probe results arrive.
        self.telemetry_lost = np.zeros(shape, dtype=np.bool_)
        self.wrong_fingerprint = np.zeros(shape, dtype=np.bool_)
        #: Share of answers without a required trace field.
        self.trace_missing = np.zeros(shape, dtype=np.float64)
        loss = [scenario.telemetry.scrape_loss_ratio for scenario in each]
        #: Chance of a scrape to be lost.
        self.scrape_loss = np.repeat(np.array(loss)[:, None], shape[1], axis=1)
        #: Effect of the faults on each replica, lists [B][R].
        self.effects = [[HEALTHY] * shape[1] for _ in each]

    def enter_effect(self, fleet: int, replica: int, effect: ReplicaEffect) -> None:
        """Set the effect of the faults on one replica."""
        place = fleet, replica
        self.effects[fleet][replica] = effect
        self.condition[place] = effect.condition
        self.only_slice[place] = effect.struck.slice
        self.after_tokens[place] = effect.struck.after_tokens
        self.min_batch[place] = effect.struck.min_batch
        self.triggered |= effect.struck != ALL_REQUESTS
        self.error_ratio[place] = effect.http_error_ratio
        self.crashed[place] = effect.crashed
        self.hung[place] = effect.hang
        self.telemetry_lost[place] = effect.telemetry_lost
        self.wrong_fingerprint[place] = effect.wrong_fingerprint
        self.trace_missing[place] = effect.trace_fields_missing_ratio
        self._settle(fleet, replica)

    def probed_condition(self, running: NDArray[np.int64]) -> NDArray[np.int64]:
        """Int64 [B, R], condition that a probe meets on a replica where ``running`` [B, R] other requests
        run.

        A probe makes one token, so conditions of later tokens spare it, and conditions of larger batches.
        """
        if not self.triggered:
            return self.condition
        spared = (self.after_tokens > 0) | (running + 1 < self.min_batch)
        return np.where(spared, 0, self.condition)

    def enter_state(self, fleet: int, replica: int, state: ReplicaState) -> None:
        """Set the state of one replica in discovery."""
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
