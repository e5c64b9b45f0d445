"""The controller's edge: four small protocols and the records that cross them.

Ports are synchronous and return at once. A simulator calls ``tick`` at zero simulated time, an
operator from a thread; neither may sleep inside a port.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from contracts.telemetry import FleetTelemetry

#: Policy memory: named arrays whose leading axis is the fleet, so that it serialises and batches.
PolicyState = dict[str, NDArray[np.generic]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What a policy may know at a tick. Leading axis B (fleets).

    now_s: float64 [B]. table: float64 [B, S, K + 1], in force, last column shed.
    health: float64 [B, K, S], H >= 0. level: int64 [B, K, S], a ``contracts.compiled.Level``.
    hard_violated: bool [B, K, S], a hard clause is in alarm.
    evidence_count: float64 [B, K, S], probe units in the judged window; evidence_age_s: float64
        [B, K, S], age of the newest (inf: none).
    certified: bool [B, K, S], may serve as far as evidence goes: not condemned, or re-certified since.
    ready: int64 [B, K], replicas in rotation; capacity_rps: float64 [B, K], of those replicas.
    load_ratio: float64 [B, K], offered load of the last ticks over capacity.
    offered_rps: float64 [B, S], smoothed.
    consecutive_failed: int64 [B, R]; failed_ratio: float64 [B, R]; in_rotation: bool [B, R].
    quarantined: bool [B, R].
    since_move_s: float64 [B, S], time since the slice's row last changed.
    role_known_good: bool [K]; home: int64 [S], kernel a slice is served by when all is well.
    replica_kernel: int64 [R].

    For learned policies (None where nobody filled them in): family_excess: float64 [B, K, S, 4], largest
    relative excess of the clauses in alarm of the families N, S, R, O. running_ratio: float64 [B, K, S],
    ``controller.running.running_ratio``, only where the policy says ``reads_running = True``.
    evidence_ratio: float64 [B, K, S], 0..2, of the pooled detectors: log-evidence over its threshold, the
    largest over clauses that move traffic, >= 1 in alarm; detectors without evidence say 0 or 1.
    changed: bool [B, R], probes say that the replica is not what was certified (``controller.paired``).
    running, waiting: float64 [B, K], requests per replica in the newest scrapes.
    certified_loss: float64 [K, S], total variation to the reference of each healthy kernel on a slice, as
        measured when it was certified (``FleetSetup.quality_loss``).
    """

    now_s: NDArray[np.float64]
    table: NDArray[np.float64]
    health: NDArray[np.float64]
    level: NDArray[np.int64]
    hard_violated: NDArray[np.bool_]
    evidence_count: NDArray[np.float64]
    evidence_age_s: NDArray[np.float64]
    certified: NDArray[np.bool_]
    ready: NDArray[np.int64]
    capacity_rps: NDArray[np.float64]
    load_ratio: NDArray[np.float64]
    offered_rps: NDArray[np.float64]
    consecutive_failed: NDArray[np.int64]
    failed_ratio: NDArray[np.float64]
    in_rotation: NDArray[np.bool_]
    quarantined: NDArray[np.bool_]
    since_move_s: NDArray[np.float64]
    role_known_good: NDArray[np.bool_]
    home: NDArray[np.int64]
    replica_kernel: NDArray[np.int64]
    family_excess: NDArray[np.float64] | None = None
    running_ratio: NDArray[np.float64] | None = None
    evidence_ratio: NDArray[np.float64] | None = None
    changed: NDArray[np.bool_] | None = None
    running: NDArray[np.float64] | None = None
    waiting: NDArray[np.float64] | None = None
    certified_loss: NDArray[np.float64] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """What a policy wants: table float64 [B, S, K + 1] (rows sum to 1), ejected bool [B, R].

    capacity_only: bool [B], the table differs from the last one for want of capacity alone (None: no).
    capacity_rows: bool [B, S], the same row by row (None: all rows of a fleet alike).
    """

    table: NDArray[np.float64]
    ejected: NDArray[np.bool_]
    capacity_only: NDArray[np.bool_] | None = None
    capacity_rows: NDArray[np.bool_] | None = None

    def for_capacity(self) -> NDArray[np.bool_]:
        """bool [B, S]: rows that differ from the last table for want of capacity alone, says the policy."""
        rows = np.zeros(self.table.shape[:2], dtype=np.bool_)
        if self.capacity_rows is not None:
            rows |= self.capacity_rows
        return rows if self.capacity_only is None else rows | self.capacity_only[:, None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingPlan:
    """What the actuator applies: table float64 [B, S, K + 1], in_rotation bool [B, R], version [B].

    ``in_rotation`` False takes a replica out of the balancing set and leaves it running. forbidden: bool
    [B, S, K], cells whose hard clause was known to be violated when the plan was made, except what the
    contract chose to serve from (None: nobody said); capacity_rows: bool [B, S], rows that moved for capacity
    alone (None: nobody said). Both for scoring.
    """

    table: NDArray[np.float64]
    in_rotation: NDArray[np.bool_]
    version: NDArray[np.int64]
    forbidden: NDArray[np.bool_] | None = None
    capacity_rows: NDArray[np.bool_] | None = None


class Policy(Protocol):
    """Who proposes. Pure: all memory is in ``PolicyState``."""

    @property
    def policy_id(self) -> str:
        """Stable name with its settings, for reports and logs."""

    def initial(self, batch: int) -> PolicyState:
        """Memory of ``batch`` fleets before the first tick."""

    def propose(self, seen: Observation, state: PolicyState) -> tuple[Proposal, PolicyState]:
        """Proposal for every fleet, and the memory for the next tick."""


class TelemetrySource(Protocol):
    """Where telemetry comes from."""

    def read(self) -> FleetTelemetry:
        """All that arrived since the previous call."""


class RouteActuator(Protocol):
    """Where plans go. A failed ``apply`` leaves the previous plan in force."""

    def apply(self, plan: RoutingPlan) -> bool:
        """Put ``plan`` in force; True when acknowledged."""


class Clock(Protocol):
    """What time it is in this world."""

    def now_ms(self) -> float:
        """Milliseconds since the world's epoch."""
