"""``MetaContract``: what the routing policy itself must keep, offline (certificate) and online.

Offline, a clause is judged by the upper confidence limit of its metric on one of two suites: *incidents*
(with faults, so that there is reason to switch) or *quiet* (no fault, so that every switch is false and
enough slice-months fit into minutes). Online, a supervisor computes the same metrics from executed plans.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from contracts.documents.envelope import (
    Count,
    Document,
    Name,
    NonNegative,
    Positive,
    PositiveCount,
    Sha256,
    Strict,
    Text,
    Uri,
)

PolicyMetric = Literal[
    "switch_rate_per_slice_hour",
    "weight_move_per_tick",
    "dwell_s",
    "oscillation_sign_changes_per_hour",
    "false_switches_per_slice_month",
    "detection_lag_s",
    "mttr_s",
    "shed_ratio",
    "empty_pool_ticks",
    "ejected_ratio",
    "fleet_ejected_ratio",
    "decision_ms_p99",
    "telemetry_age_s",
    "telemetry_age_before_fallback_s",
    "new_kernel_traffic_ratio",
    "demoted_episode_ratio",
    "useful_loss_ratio",
    "failed_excess_ratio",
]
Exemption = Literal[
    "shield_forced_hard_move", "quarantine", "contract_sheds_when_uncertified", "capacity_short"
]


class MetaClause(Strict):
    """One limit on a metric of the policy; ``at_least`` clauses are lower limits (dwell)."""

    id: Name
    """Name of the clause, unique in this meta-contract."""
    metric: PolicyMetric
    """Metric of the policy that the clause limits."""
    sense: Literal["at_most", "at_least"] = "at_most"
    """Good side of the threshold."""
    threshold: NonNegative
    """Limit on the metric, in the metric's unit."""
    checked: Literal["offline", "online", "both"]
    """offline: for the certificate; online: by the supervisor; or both."""
    judged_on: Literal["incidents", "quiet"] | None = None
    """Suite on which the clause is judged offline; absent for a clause that is checked online only."""
    on_violation: Literal["refuse_artifact", "clamp", "hold", "demote"]
    """refuse_artifact: the certificate fails; clamp, hold or demote: what the controller does online."""
    exempt: Annotated[tuple[Exemption, ...], Field(max_length=4)] = ()
    """Events that do not count as violations."""
    reason: Text
    """Why the clause exists, as text for people."""


class Repromotion(Strict):
    """When a demoted policy drives again without an operator."""

    after_s: Positive = 3600.0
    """Shortest time since the demotion, and since the last violation by proposals that were not executed,
    s."""
    at_most: Count = 1
    """Most repromotions, a count; after them the policy stays demoted until an operator resets it."""


class Certification(Strict):
    """Suites on which the offline clauses are judged."""

    incidents: Uri
    """``Suite`` with faults, for the clauses judged on incidents."""
    quiet: Uri
    """``Suite`` without faults, for the clauses judged on quiet fleets."""
    quiet_slice_days: Positive = 120.0
    """Shortest simulated time on the quiet suite, slice-days; to show at most 1 false switch per slice-month
    takes 111 slice-days without any."""
    worlds_sha256: Sha256 | None = None
    """SHA-256 over every scenario, contract and profile that the suites refer to; absent: not pinned."""
    inputs_sha256: Sha256 | None = None
    """SHA-256 over the suites' scenarios, contracts, profiles, pools, traces and plug-in code; absent: not
    pinned."""


class MetaSpec(Strict):
    """Clauses of the meta-contract, and the baseline policy that replaces a demoted policy."""

    description: Text
    """What the meta-contract demands, as text for people."""
    clauses: Annotated[tuple[MetaClause, ...], Field(min_length=1, max_length=64)]
    """Limits on metrics of the policy."""
    baseline: Literal["threshold", "hysteresis", "fixed_known_good"]
    """Built-in policy that replaces a demoted policy."""
    repromotion: Repromotion = Repromotion()
    certification: Certification | None = None
    suite_seeds: PositiveCount = 20
    """Fewest seeds that each scenario of the suites runs on, a count."""


class MetaContract(Document):
    """The contract on a routing policy."""

    kind: Literal["MetaContract"] = "MetaContract"
    spec: MetaSpec
