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
    """What a policy may know at a tick, for B fleets."""

    now_s: NDArray[np.float64]  # [B]
    table: NDArray[np.float64]  # [B, S, K + 1], in force, last column shed
    since_move_s: NDArray[np.float64]  # [B, S], time since the slice's row last changed
    offered_rps: NDArray[np.float64]  # [B, S], requests per second, smoothed

    health: NDArray[np.float64]  # [B, K, S], H >= 0
    level: NDArray[np.int64]  # [B, K, S], a ``contracts.compiled.contract.Level``
    hard_violated: NDArray[np.bool_]  # [B, K, S], a hard clause is condemned
    certified: NDArray[np.bool_]  # [B, K, S], not condemned, or re-certified since: may serve
    evidence_count: NDArray[np.float64]  # [B, K, S], probe observations in the judged window
    evidence_age_s: NDArray[np.float64]  # [B, K, S], age of the newest probe (inf: none)
    evidence_ratio: NDArray[np.float64]  # [B, K, S], 0..2, see ``Judgement.evidence_ratio``
    family_excess: NDArray[np.float64]  # [B, K, S, 4], largest excess in alarm of families N, S, R, O

    ready: NDArray[np.int64]  # [B, K], replicas in rotation
    capacity_rps: NDArray[np.float64]  # [B, K], of those replicas, best estimate
    load_ratio: NDArray[np.float64]  # [B, K], offered load of the last ticks over that
    running: NDArray[np.float64]  # [B, K], requests per replica in the newest scrapes
    waiting: NDArray[np.float64]  # [B, K], the same in the queues

    consecutive_failed: NDArray[np.int64]  # [B, R], answers
    failed_ratio: NDArray[np.float64]  # [B, R], smoothed
    in_rotation: NDArray[np.bool_]  # [B, R]
    quarantined: NDArray[np.bool_]  # [B, R]

    role_known_good: NDArray[np.bool_]  # [K]
    home: NDArray[np.int64]  # [S], kernel a slice is served by when all is well
    replica_kernel: NDArray[np.int64]  # [R]

    #: float64 [B, K, S], ``controller.encoding.running.running_ratio``; only for a policy that says
    #: ``reads_running = True``.
    running_ratio: NDArray[np.float64] | None = None
    #: bool [B, R], probes say that the replica is not what was certified (None: nobody compares).
    drifted: NDArray[np.bool_] | None = None
    #: float64 [K, S], ``FleetSetup.quality_loss`` (None: not measured).
    certified_loss: NDArray[np.float64] | None = None
    #: float64 [B, K], what those replicas surely carry, and at least what they have (None: the estimate is
    #: sure).
    sure_rps: NDArray[np.float64] | None = None

    @property
    def may_serve(self) -> NDArray[np.bool_]:
        """bool [B, S, K], ``certified`` with the axes of a table."""
        return self.certified.swapaxes(1, 2)

    @property
    def planned_rps(self) -> NDArray[np.float64]:
        """float64 [B, K], what moves are planned against."""
        return self.capacity_rps if self.sure_rps is None else self.sure_rps


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """What a policy wants."""

    table: NDArray[np.float64]  # [B, S, K + 1], rows sum to 1
    ejected: NDArray[np.bool_]  # [B, R], out of rotation by the policy
    capacity_only: NDArray[np.bool_] | None = None  # [B], the table differs for want of capacity alone
    capacity_rows: NDArray[np.bool_] | None = None  # [B, S], the same row by row

    def for_capacity(self) -> NDArray[np.bool_]:
        """bool [B, S]: rows that differ from the last table for want of capacity alone, says the policy."""
        rows = self.capacity_rows
        if rows is None:
            rows = np.zeros(self.table.shape[:2], dtype=np.bool_)
        return rows if self.capacity_only is None else rows | self.capacity_only[:, None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingPlan:
    """What the actuator applies. ``forbidden`` and ``capacity_rows`` are for scoring (None: nobody said)."""

    table: NDArray[np.float64]  # [B, S, K + 1]
    in_rotation: NDArray[np.bool_]  # [B, R], False: out of the balancing set, and left running
    version: NDArray[np.int64]  # [B]
    #: bool [B, S, K], cells whose hard clause was known to be violated when the plan was made, except what
    #: the contract chose to serve from.
    forbidden: NDArray[np.bool_] | None = None
    capacity_rows: NDArray[np.bool_] | None = None  # [B, S], rows that moved for capacity alone
    #: bool [B, R], replicas that hang since this plan: end their open streams, so that clients try elsewhere
    #: (None: none).
    reset: NDArray[np.bool_] | None = None


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
