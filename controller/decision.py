"""Records of one tick: ``Perception``, the input of the policy, and ``Decision``, the result with its
evidence.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contracts.telemetry import FleetTelemetry, ProbeOutcome
from controller.cells import some_in
from controller.detect.detector import AlarmState
from controller.judge.judge import Judgement
from controller.perceive.estimate import Estimate
from controller.ports import Observation, RoutingPlan
from controller.shield.gate import Shielded
from controller.state import ControllerState

#: A plain integer: comparing with an enumeration takes longer.
_UNREADABLE = int(ProbeOutcome.UNREADABLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Perception:
    """Result of the first half of a tick, before the policy proposes: estimates, alarms and judgement."""

    before: ControllerState  # what the tick began with
    after: ControllerState  # with evidence and judgement of this tick; table and policy memory still the last
    telemetry: FleetTelemetry
    estimate: Estimate
    verdicts: AlarmState  # of the replicas
    judgement: Judgement  # of the kernels
    observation: Observation  # what the policy may see


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Decision of one tick, for B fleets, with its evidence."""

    plan: RoutingPlan  # what to actuate
    moved: NDArray[np.bool_]  # [B], table or rotation differ from the last plan
    capacity_move: NDArray[np.bool_]  # [B], the table changed for capacity alone

    proposed: NDArray[np.float64]  # [B, S, K + 1], the policy's own table
    driven: NDArray[np.float64]  # [B, S, K + 1], the table that entered the shield
    shield_delta: NDArray[np.float64]  # [B, S, K + 1], change of ``proposed`` by supervisor and shield
    shielded: Shielded  # what the shield did and why
    held: NDArray[np.bool_]  # [B], telemetry is silent: the last table stands
    degraded: NDArray[np.bool_]  # [B], it has been silent for too long: known good

    quarantined: NDArray[np.bool_]  # [B, R]
    quarantine_reason: NDArray[np.int64]  # [B, R], a ``judge.replicas.quarantine.QuarantineReason``
    replica_alarm: NDArray[np.bool_]  # [B, R, S, C]
    judged: NDArray[np.float64]  # [B, K, S, C, 4], sums behind the verdicts on kernels
    replica_judged: NDArray[np.float64]  # [B, R, S, C, 4], sums behind the verdicts on replicas
    judgement: Judgement
    observation: Observation
    drifted: NDArray[np.bool_] | None  # [B, R], drifted from certification (None: probes are not compared)
    unreadable: NDArray[np.int64]  # [B, R], answers to probes in this tick that could not be read

    demoted: NDArray[np.bool_]  # [B], the baseline drives
    demotion_reason: NDArray[np.int64]  # [B], place in ``contracts.compiled.meta.METRICS``
    baseline_proposed: NDArray[np.float64] | None  # [B, S, K + 1] (None: no meta-contract)
    readings: NDArray[np.float64] | None  # [B, M], what the supervisor read (None: no meta-contract)
    own_moves: NDArray[np.int64]  # [B, S], a ``controller.supervise.own_moves_records.OwnMove``

    @property
    def table(self) -> NDArray[np.float64]:
        """float64 [B, S, K + 1], in force from now on; last column shed."""
        return self.plan.table


def unreadable_answers(telemetry: FleetTelemetry) -> NDArray[np.int64]:
    """int64 [B, R], unreadable answers to probes in this tick; they are no evidence."""
    probes, counts = telemetry.probes, np.zeros(telemetry.replica_state.shape, dtype=np.int64)
    unreadable = probes.outcome == _UNREADABLE
    if some_in(unreadable):
        fleet, slot = np.nonzero(unreadable)
        np.add.at(counts, (fleet, probes.replica[fleet, slot]), 1)
    return counts
