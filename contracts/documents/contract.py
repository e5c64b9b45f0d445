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
    """To the end of an answer."""
    ttft_ms: Positive | None = None
    """To the first token of an answer."""
    inter_token_ms: Positive | None = None
    """Mean time between tokens of an answer."""


class Slice(Strict):
    """A named part of the traffic, recognised by a request header."""

    name: Name
    """Its own in this contract; the value of the header that requests carry."""
    priority: Annotated[int, Field(ge=0, le=1000)] = 100
    """The lowest is shed first."""
    default: bool = False
    """Takes requests with a missing or unknown header; inherits the strictest hard clauses."""
    slo: SliceSlo = SliceSlo()


class Clause(Strict):
    """One promise about a metric. ``budget`` 0 makes it hard, above 0 soft."""

    id: Name
    """Its own in this contract; status, logs and metrics name it."""
    family: Family
    """N: numerical, S: statistical, R: runtime, O: observability."""
    metric: MetricName
    """What is measured, a registered metric."""
    estimator: Estimator = "none"
    """How far a server's answers let the metric be measured; none: it needs no estimate."""
    threshold: NonNegative
    """In ``unit``, the metric's registered unit."""
    unit: Annotated[str, Field(min_length=1, max_length=40)] | None = None
    """Must be the metric's registered unit; absent: that one."""
    slices: Annotated[tuple[Name, ...], Field(min_length=1, max_length=MAX_NAMED_SLICES + 1)] | None = None
    """Absent means every slice."""
    budget: Ratio
    """rho, the tolerated share of observations over the threshold."""
    null_rate: Ratio | None = None
    """Certified upper limit of a hard per-unit clause's rate; 0 alarms at once."""
    level: LevelName
    """What a breach leads to: L1 is told, L2 guards, L3 falls back."""
    clip: Positive | None = None
    """Values are clipped here before a mean is taken."""
    weight: Positive = 1.0
    """omega of the health sum."""
    remediation: Text
    """What the person on call should do."""
    reason: Text
    """Why it is promised, for people."""


class Refinement(Strict):
    """What to do for one family at one level instead of the plain guard or fallback."""

    family: Family
    """Clauses of this family."""
    level: LevelName
    """Breaches of this level."""
    action: Action
    """What is done in place of guard or fallback."""
    reason: Text
    """Why, for people."""


class Escalation(Strict):
    """Pi: the two thresholds of health H and what follows."""

    guard_threshold: Positive
    """Health H at and above which a kernel is guarded, without a unit."""
    fallback_threshold: Positive
    """Health H at and above which its traffic falls back; above the guard's."""
    when_uncertified: Literal["shed", "serve_known_good"]
    """Where no kernel keeps the contract: shed the slice, or serve it from the known-good kernel."""
    refinements: Annotated[tuple[Refinement, ...], Field(max_length=12)] = ()
    """Other actions for single families and levels; absent: guard and fallback."""


class Detection(Strict):
    """How much evidence an alarm needs and how many false ones are allowed."""

    window_s: Positive = 60.0
    """Newest seconds of observations that a judgement rests on."""
    min_samples: PositiveCount = 30
    """Least observations in that window before a clause is judged."""
    alarm_confidence: Annotated[float, Field(gt=0.5, lt=1.0)] = 0.999
    """Confidence that an alarm needs, between 0.5 and 1."""
    false_switch_budget_per_slice_month: Positive = 1.0
    """False switches that are allowed, a mean count per slice in 30 days."""
    stale_after_s: Positive = 30.0
    """Seconds without telemetry after which the last table is held."""
    ejection_cap_ratio: Ratio = 0.5
    """Share of a kernel's replicas, 0..1, that may be in quarantine at once."""


class RlAssumptions(Strict):
    """What the gradient-bias and reward-drift bounds assume."""

    temperature: Positive = 1.0
    """Of sampling in training, above 0; must be the contract's."""
    advantage_max: Positive
    """Largest absolute advantage (A2)."""
    score_norm_max: Positive
    """Largest norm of the score (A3)."""
    reward_min: float
    """Least reward, in the reward's own unit."""
    reward_max: float
    """Largest reward, in the reward's own unit."""


class ContractSpec(Strict):
    """The contract (N, S, R, O, Pi)."""

    description: Text
    """What is promised, for people."""
    temperature: Positive = 1.0
    """Of sampling, above 0, at which distributions are compared."""
    slices: Annotated[tuple[Slice, ...], Field(min_length=1, max_length=MAX_NAMED_SLICES + 1)]
    """Parts of the traffic; exactly one is the default."""
    clauses: Annotated[tuple[Clause, ...], Field(min_length=1, max_length=256)]
    """What is promised of them."""
    escalation: Escalation
    detection: Detection = Detection()
    on_controller_loss: Literal["hold", "fail_open", "fail_closed"] = "hold"
    """What gateways should do without a controller; noted, and not enforced yet."""
    assumptions: RlAssumptions | None = None


class KernelContract(Document):
    """What a kernel promises, slice by slice."""

    kind: Literal["KernelContract"] = "KernelContract"
    spec: ContractSpec
