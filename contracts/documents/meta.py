"""``MetaContract``: what the routing policy itself must keep, offline (certificate) and online."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from contracts.documents.envelope import Document, Name, NonNegative, PositiveCount, Strict, Text

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
]
Exemption = Literal["shield_forced_hard_move", "quarantine", "contract_sheds_when_uncertified"]


class MetaClause(Strict):
    """One promise about the policy; ``at_least`` clauses are lower limits (dwell)."""

    id: Name
    metric: PolicyMetric
    sense: Literal["at_most", "at_least"] = "at_most"
    threshold: NonNegative
    checked: Literal["offline", "online", "both"]
    on_violation: Literal["refuse_artifact", "clamp", "hold", "demote"]
    exempt: Annotated[tuple[Exemption, ...], Field(max_length=3)] = ()
    reason: Text


class MetaSpec(Strict):
    """Clauses and the baseline that a demoted policy hands over to."""

    description: Text
    clauses: Annotated[tuple[MetaClause, ...], Field(min_length=1, max_length=64)]
    baseline: Literal["threshold", "hysteresis", "fixed_known_good"]
    suite_seeds: PositiveCount = 20
    demotion_reason_required: bool = True


class MetaContract(Document):
    """The contract over the policy."""

    kind: Literal["MetaContract"] = "MetaContract"
    spec: MetaSpec
