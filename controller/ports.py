"""The controller's ports: four protocols (policy, telemetry, actuator, clock) and the records they exchange.

Ports are synchronous and return at once. A simulator calls ``tick`` at zero simulated time, an operator from
a thread; neither may sleep inside a port. Axes are those of ``contracts.compiled.contract``: B fleets, S
slices, K kernels, R replicas; a routing table has K + 1 columns, of which the last is the share that is shed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from contracts.telemetry import FleetTelemetry

#: Memory of a policy: named arrays whose leading axis is the fleet, so that it serialises and batches.
PolicyState = dict[str, NDArray[np.generic]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """Everything that a policy may see at one control tick, for B fleets; never the ground truth."""

    now_s: NDArray[np.float64]  # [B]
    table: NDArray[np.float64]  # [B, S, K + 1], the routing table in force, last column shed
    since_move_s: NDArray[np.float64]  # [B, S], time since the slice's row last changed
    offered_rps: NDArray[np.float64]  # [B, S], requests per second, smoothed

    health: NDArray[np.float64]  # [B, K, S], H >= 0, 0 where every clause is kept
    level: NDArray[np.int64]  # [B, K, S], a ``contracts.compiled.contract.Level``
    hard_violated: NDArray[np.bool_]  # [B, K, S], a hard clause is condemned
    certified: NDArray[np.bool_]  # [B, K, S], not condemned, or re-certified since: may serve
    evidence_count: NDArray[np.float64]  # [B, K, S], probe observations in the judged window
    evidence_age_s: NDArray[np.float64]  # [B, K, S], age of the newest probe (inf: none)
    evidence_ratio: NDArray[np.float64]  # [B, K, S], 0..2, see ``Judgement.evidence_ratio``
    family_excess: NDArray[np.float64]  # [B, K, S, 4], largest excess in alarm of families N, S, R, O

    ready: NDArray[np.int64]  # [B, K], replicas in rotation
    capacity_rps: NDArray[np.float64]  # [B, K], best estimate for the replicas in rotation
    #: float64 [B, K], lower limit of ``capacity_rps``, but no less than the load that the replicas carry now
    sure_rps: NDArray[np.float64]
    load_ratio: NDArray[np.float64]  # [B, K], offered load of the last ticks over ``capacity_rps``
    running: NDArray[np.float64]  # [B, K], requests per replica in the newest scrapes
    waiting: NDArray[np.float64]  # [B, K], queued requests per replica, likewise

    consecutive_failed: NDArray[np.int64]  # [B, R], failed attempts since the last answered one
    failed_ratio: NDArray[np.float64]  # [B, R], failed over ended attempts, smoothed
    in_rotation: NDArray[np.bool_]  # [B, R]
    quarantined: NDArray[np.bool_]  # [B, R]

    role_known_good: NDArray[np.bool_]  # [K]
    home: NDArray[np.int64]  # [S], the kernel that serves a slice while everything is healthy
    replica_kernel: NDArray[np.int64]  # [R], the kernel that a replica runs

    #: float64 [B, K, S], ``controller.encoding.running.running_ratio``; only for a policy with the attribute
    #: ``reads_running = True``.
    running_ratio: NDArray[np.float64] | None = None
    #: bool [B, R], the replica drifted from the certified baseline (None: probes are not compared).
    drifted: NDArray[np.bool_] | None = None
    #: float64 [K, S], ``FleetSetup.quality_loss`` (None: not measured).
    certified_loss: NDArray[np.float64] | None = None

    @property
    def may_serve(self) -> NDArray[np.bool_]:
        """bool [B, S, K], ``certified`` with the axes of a table."""
        return self.certified.swapaxes(1, 2)

    @property
    def planned_rps(self) -> NDArray[np.float64]:
        """float64 [B, K], the capacity that moves are planned against: ``sure_rps``."""
        return self.sure_rps


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """The routing table and the ejections that a policy asks for; the shield makes it an allowed plan."""

    table: NDArray[np.float64]  # [B, S, K + 1], rows sum to 1
    ejected: NDArray[np.bool_]  # [B, R], replicas that the policy takes out of rotation
    #: bool [B], the whole table differs from the one in force only because capacity is short
    capacity_only: NDArray[np.bool_] | None = None
    capacity_rows: NDArray[np.bool_] | None = None  # [B, S], the same for each row

    def for_capacity(self) -> NDArray[np.bool_]:
        """bool [B, S]: rows that, by the policy's account, differ from the last table for capacity alone."""
        rows = self.capacity_rows
        if rows is None:
            rows = np.zeros(self.table.shape[:2], dtype=np.bool_)
        return rows if self.capacity_only is None else rows | self.capacity_only[:, None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingPlan:
    """What the actuator applies. ``forbidden`` and ``capacity_rows`` are for scoring (None: unknown)."""

    table: NDArray[np.float64]  # [B, S, K + 1]
    in_rotation: NDArray[np.bool_]  # [B, R], False: out of the balancing set, and left running
    version: NDArray[np.int64]  # [B], number of plans so far that differ from the one before
    #: bool [B, S, K], cells whose hard clause was known to be violated when the plan was made, except those
    #: from which the contract chose to serve.
    forbidden: NDArray[np.bool_] | None = None
    capacity_rows: NDArray[np.bool_] | None = None  # [B, S], rows that moved for capacity alone
    #: bool [B, R], replicas found hung in this tick: end their open streams, so that clients try elsewhere
    #: (None: no replica).
    reset: NDArray[np.bool_] | None = None


class Policy(Protocol):
    """A routing policy: proposes a table from an observation. Pure: all memory is in ``PolicyState``."""

    @property
    def policy_id(self) -> str:
        """Stable name with its settings, for reports and logs."""

    def initial(self, batch: int) -> PolicyState:
        """Memory of ``batch`` fleets before their first tick."""

    def propose(self, observation: Observation, state: PolicyState) -> tuple[Proposal, PolicyState]:
        """The proposal for each of the B fleets, and the memory for the next tick."""


class TelemetrySource(Protocol):
    """A fleet's telemetry: the simulated fleet, scrapes of live servers, or a cluster."""

    def read(self) -> FleetTelemetry:
        """All telemetry that arrived since the previous call."""


class RouteActuator(Protocol):
    """Carries plans out: the simulated fleet, Envoy or HTTPRoutes. A failed ``apply`` changes nothing."""

    def apply(self, plan: RoutingPlan) -> bool:
        """Put ``plan`` in force; False where it was not acknowledged and the previous plan stays."""


class Clock(Protocol):
    """The clock of a world, simulated or real."""

    def now_ms(self) -> float:
        """Milliseconds since the world's epoch."""
