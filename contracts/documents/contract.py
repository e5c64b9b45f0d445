"""``KernelContract``: slices, clauses, escalation and detection; symbols as in the design notes."""

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
    """Latency objectives per request, ms; an absent field sets no objective."""

    latency_ms: Positive | None = None
    """Time from a request's arrival to the end of its answer, ms; absent: no objective."""
    ttft_ms: Positive | None = None
    """Time from a request's arrival to the first token of its answer, ms; absent: no objective."""
    inter_token_ms: Positive | None = None
    """Mean time between the tokens of one answer, ms; absent: no objective."""


class Slice(Strict):
    """A named part of the traffic, recognised by a request header."""

    name: Name
    """Name of the slice, unique in this contract; requests carry it as the value of the slice header."""
    priority: Annotated[int, Field(ge=0, le=1000)] = 100
    """Priority of the slice, 0..1000; the slice with the lowest priority is shed first."""
    default: bool = False
    """True for the one slice that takes requests with a missing or unknown header; the strictest hard clauses
    of all slices bind it."""
    slo: SliceSlo = SliceSlo()


class Clause(Strict):
    """One promise about a metric. ``budget`` 0 makes it hard, above 0 soft."""

    id: Name
    """Name of the clause, unique in this contract; status, logs and metrics show it."""
    family: Family
    """Family of the clause. N: numerical, S: statistical, R: runtime, O: observability."""
    metric: MetricName
    """Name of the registered metric that the clause limits."""
    estimator: Estimator = "none"
    """How the metric is computed from a server's answers: over the full vocabulary, the top-k tokens or
    sampled tokens; none: the metric needs no estimator."""
    threshold: NonNegative
    """Limit on the metric, in the metric's registered unit."""
    unit: Annotated[str, Field(min_length=1, max_length=40)] | None = None
    """Unit of the threshold, which must be the metric's registered unit; absent: that unit."""
    slices: Annotated[tuple[Name, ...], Field(min_length=1, max_length=MAX_NAMED_SLICES + 1)] | None = None
    """Slices that the clause binds; absent: every slice."""
    budget: Ratio
    """Tolerated share of observations over the threshold (rho), 0..1; 0 makes the clause hard."""
    null_rate: Ratio | None = None
    """For a hard clause on single observations: certified upper limit of the share over the threshold, 0..1.
    At 0 the first such observation raises an alarm."""
    level: LevelName
    """Consequence of a breach. L1: report, L2: guard, L3: fall back."""
    clip: Positive | None = None
    """Upper bound to which observations are clipped before a mean is taken, in the metric's unit; absent: no
    clipping."""
    weight: Positive = 1.0
    """Weight of the clause in the health sum H (omega), without a unit."""
    remediation: Text
    """What the person on call should do about a breach, as text for people."""
    reason: Text
    """Why the clause exists, as text for people."""


class Refinement(Strict):
    """Action for one family at one level, in place of the plain guard or fallback."""

    family: Family
    """Family of the clauses to which this action applies."""
    level: LevelName
    """Level of the breaches to which this action applies."""
    action: Action
    """Action taken in place of guard or fallback."""
    reason: Text
    """Why this action is chosen, as text for people."""


class Escalation(Strict):
    """Thresholds of health H, and the actions taken above them (Pi)."""

    guard_threshold: Positive
    """Health H from which a kernel is guarded, without a unit."""
    fallback_threshold: Positive
    """Health H from which a kernel's traffic falls back, without a unit; above guard_threshold."""
    when_uncertified: Literal["shed", "serve_known_good"]
    """What happens when no kernel keeps the contract. shed: reject the slice's requests; serve_known_good:
    serve them from the known-good kernel."""
    refinements: Annotated[tuple[Refinement, ...], Field(max_length=12)] = ()
    """Other actions for single families and levels; absent: guard and fallback only."""


class Detection(Strict):
    """How much evidence an alarm needs, and how many false alarms are allowed."""

    window_s: Positive = 60.0
    """Length of the window of newest observations on which clauses are judged, s."""
    min_samples: PositiveCount = 30
    """Fewest observations in the window with which a clause is judged, a count."""
    alarm_confidence: Annotated[float, Field(gt=0.5, lt=1.0)] = 0.999
    """Confidence that an alarm needs, a probability between 0.5 and 1."""
    false_switch_budget_per_slice_month: Positive = 1.0
    """Allowed false switches, as a mean count per slice in 30 days."""
    stale_after_s: Positive = 30.0
    """Time without telemetry after which the last routing table is held, s."""
    ejection_cap_ratio: Ratio = 0.5
    """Largest share of a kernel's replicas that may be in quarantine at once, 0..1."""


class RlAssumptions(Strict):
    """Assumptions of the gradient-bias and reward-drift bounds."""

    temperature: Positive = 1.0
    """Sampling temperature in training; must equal the contract's temperature."""
    advantage_max: Positive
    """Largest absolute advantage (assumption A2)."""
    score_norm_max: Positive
    """Largest norm of the score, the gradient of the log-probability (assumption A3)."""
    reward_min: float
    """Smallest possible reward, in the reward's own unit."""
    reward_max: float
    """Largest possible reward, in the reward's own unit."""


class ContractSpec(Strict):
    """The contract: slices, clauses of the families N, S, R and O, and the escalation Pi."""

    description: Text
    """What the contract promises, as text for people."""
    temperature: Positive = 1.0
    """Sampling temperature at which token distributions are compared."""
    slices: Annotated[tuple[Slice, ...], Field(min_length=1, max_length=MAX_NAMED_SLICES + 1)]
    """Slices of the traffic; exactly one has default: true."""
    clauses: Annotated[tuple[Clause, ...], Field(min_length=1, max_length=256)]
    """Limits on metrics that kernels must keep on these slices."""
    escalation: Escalation
    detection: Detection = Detection()
    on_controller_loss: Literal["hold", "fail_open", "fail_closed"] = "hold"
    """What gateways should do without a controller; recorded, but not enforced yet."""
    assumptions: RlAssumptions | None = None
    """Assumptions of the gradient-bias and reward-drift bounds; absent: none are declared."""


class KernelContract(Document):
    """What a kernel promises, slice by slice."""

    kind: Literal["KernelContract"] = "KernelContract"
    spec: ContractSpec
