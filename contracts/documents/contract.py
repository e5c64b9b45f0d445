"""``KernelContract``: slices, clauses, escalation, detection. Words and maths as in the design notes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from contracts.documents.envelope import (
    Document,
    MetricName,
    Name,
    NonNegative,
    Positive,
    PositiveCount,
    Ratio,
    Strict,
    Text,
)

#: A contract names at most this many slices, plus the default one (HTTPRoute holds 16 rules).
MAX_NAMED_SLICES = 15

Family = Literal["N", "S", "R", "O"]
Estimator = Literal["full_vocab", "top_k", "sampled", "none"]
LevelName = Literal["L1", "L2", "L3"]
Action = Literal[
    "probe_more",
    "recertify",
    "guard",
    "fallback",
    "higher_precision_kernel",
    "other_decoding_strategy",
    "quarantine",
    "rollback",
]


class SliceSlo(Strict):
    """Per-request latency objectives, ms; absent means no objective."""

    latency_ms: Positive | None = None
    ttft_ms: Positive | None = None
    inter_token_ms: Positive | None = None


class Slice(Strict):
    """A named part of the traffic, recognised by a request header."""

    name: Name
    priority: Annotated[int, Field(ge=0, le=1000)] = 100
    """The lowest is shed first."""
    default: bool = False
    """Takes requests with a missing or unknown header; inherits the strictest hard clauses."""
    slo: SliceSlo = SliceSlo()


class Clause(Strict):
    """One promise about a metric. ``budget`` 0 makes it hard, above 0 soft."""

    id: Name
    family: Family
    metric: MetricName
    estimator: Estimator = "none"
    threshold: NonNegative
    """In ``unit``, the metric's registered unit."""
    unit: Annotated[str, Field(min_length=1, max_length=40)] | None = None
    slices: Annotated[tuple[Name, ...], Field(min_length=1, max_length=MAX_NAMED_SLICES + 1)] | None = None
    """Absent means every slice."""
    budget: Ratio
    """rho, the tolerated share of observation units over the threshold."""
    null_rate: Ratio | None = None
    """Certified upper limit of a hard per-unit clause's rate; 0 alarms at once."""
    level: LevelName
    clip: Positive | None = None
    """Values are clipped here before a mean is taken."""
    weight: Positive = 1.0
    """omega of the health sum."""
    remediation: Text
    reason: Text


class Refinement(Strict):
    """What to do for one family at one level instead of the plain guard or fallback."""

    family: Family
    level: LevelName
    action: Action
    reason: Text


class Escalation(Strict):
    """Pi: the two thresholds of health H and what follows."""

    guard_threshold: Positive
    fallback_threshold: Positive
    when_uncertified: Literal["shed", "serve_known_good"]
    refinements: Annotated[tuple[Refinement, ...], Field(max_length=12)] = ()


class Detection(Strict):
    """How much evidence an alarm needs and how many false ones are allowed."""

    window_s: Positive = 60.0
    min_samples: PositiveCount = 30
    alarm_confidence: Annotated[float, Field(gt=0.5, lt=1.0)] = 0.999
    false_switch_budget_per_slice_month: Positive = 1.0
    stale_after_s: Positive = 30.0
    ejection_cap_ratio: Ratio = 0.5


class RlAssumptions(Strict):
    """What the gradient-bias and reward-drift bounds assume."""

    temperature: Positive = 1.0
    advantage_max: Positive
    score_norm_max: Positive
    reward_min: float
    reward_max: float


class ContractSpec(Strict):
    """The contract (N, S, R, O, Pi)."""

    description: Text
    temperature: Positive = 1.0
    slices: Annotated[tuple[Slice, ...], Field(min_length=1, max_length=MAX_NAMED_SLICES + 1)]
    clauses: Annotated[tuple[Clause, ...], Field(min_length=1, max_length=256)]
    escalation: Escalation
    detection: Detection = Detection()
    on_controller_loss: Literal["hold", "fail_open", "fail_closed"] = "hold"
    assumptions: RlAssumptions | None = None


class KernelContract(Document):
    """What a kernel promises, slice by slice."""

    kind: Literal["KernelContract"] = "KernelContract"
    spec: ContractSpec
