"""``FaultDrill``: faults against a live fleet with a steady-state hypothesis, guards and an undo."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from contracts.documents.contract import Estimator
from contracts.documents.envelope import (
    Count,
    Document,
    MetricName,
    Name,
    NonNegative,
    Positive,
    PositiveCount,
    Ratio,
    Strict,
    Text,
    Uri,
)
from contracts.documents.scenario import ScheduledFault
from contracts.documents.workload import SliceShare

#: Metrics that a guard may watch; all are shares.
GUARD_METRICS = ("failure_rate", "late_ratio", "exposed_ratio", "rotation_ratio")
DrillPhase = Literal["before", "during", "after"]


class Guard(Strict):
    """A metric that must stay within its limit."""

    name: Name
    """Name of the guard, unique in its list."""
    metric: MetricName
    """Metric that the guard watches: failure_rate, late_ratio, exposed_ratio or rotation_ratio."""
    estimator: Estimator = "none"
    """Estimator of the metric; none for all four metrics."""
    slice: Name | None = None
    """Slice whose requests the guard watches; absent: all requests."""
    sense: Literal["at_most", "at_least"] = "at_most"
    """Good side of the threshold, which itself counts as good."""
    threshold: NonNegative
    """Limit on the metric, a share 0..1."""
    window_s: Positive = 30.0
    """Length of the window of newest data over which the metric is computed, s."""
    phases: Annotated[tuple[DrillPhase, ...], Field(min_length=1, max_length=3)] = (
        "before",
        "during",
        "after",
    )
    """Phases of the drill in which a steady_state guard must hold; abort_when guards are watched in all."""


class DrillLoad(Strict):
    """Open-loop load of a drill: requests are sent when due, whether or not earlier ones were answered."""

    rate_rps: Positive
    """Mean requests per second over all slices."""
    arrivals: Literal["poisson", "trace"] = "poisson"
    """Arrival process. poisson: exponential gaps; trace: the gaps recorded in ``trace_uri``."""
    trace_uri: Uri | None = None
    """Trace in the Azure LLM format, scaled to ``rate_rps``; its token counts are not used. Absent unless
    arrivals is trace."""
    slice_mix: Annotated[tuple[SliceShare, ...], Field(min_length=1, max_length=16)] | None = None
    """Shares of the slices in the load; absent: equal shares of all slices of the pool."""
    streamed_ratio: Ratio = 0.3
    """Share of the requests whose answer is streamed, 0..1."""
    prompt_tokens: PositiveCount = 32
    """Length of every prompt, tokens."""
    answer_tokens: PositiveCount = 16
    """Largest length of an answer, tokens."""
    timeout_s: Positive = 30.0
    """Time after which a request without a complete answer counts as failed, s."""


class BlastRadius(Strict):
    """How much the faults may strike at once; a drill that would strike more is refused."""

    replicas_at_most: PositiveCount | None = None
    """Most replicas that may be struck at once, a count; absent: only replica_ratio_at_most limits them."""
    replica_ratio_at_most: Ratio = 0.5
    """Largest share of the pool's replicas that may be struck at once, 0..1."""


class Expectations(Strict):
    """Required results; absent ones are reported, not judged. Times count from the first onset."""

    moved_within_s: Positive | None = None
    """Longest time from the first onset until traffic first leaves what is broken, s; absent: not judged."""
    recovered_within_s: Positive | None = None
    """Longest time from the first onset until every slice keeps contract and objectives, s; absent: not
    judged."""
    failed_ratio_at_most: Ratio | None = None
    """Largest share of requests failed or shed from the first onset on, 0..1; absent: not judged."""
    quality_at_least: Ratio | None = None
    """Smallest share of quality preserved from the first onset on, 0..1; absent: not judged."""
    false_switches_at_most: Count | None = None
    """Most moves away from kernels that no fault struck, a count; absent: not judged."""


class Undo(Strict):
    """How faults are undone: reset replicas, verify them with probes, return traffic by steps."""

    reset_caches: bool = True
    """True: the prefix cache of every struck replica is flushed."""
    verify_probes: PositiveCount = 32
    """Pairs of generation probes that must agree before a replica gets all its traffic back, a count."""
    readmit_over_s: NonNegative = 60.0
    """Time over which a verified replica gets its traffic back by steps, s; 0: at once."""


class DrillSpec(Strict):
    """One drill."""

    description: Text
    """What the drill shows, as text for people."""
    pool: Name
    """Name of the ``KernelPool`` that the drill runs against."""
    pool_uri: Uri | None = None
    """File of the ``KernelPool`` for runs outside a cluster; absent: the shipped document named in pool."""
    contract: Uri | None = None
    """``KernelContract`` that judges the drill; absent: the shipped ``serving-pool``."""
    load: DrillLoad | None = None
    """Load that the drill sends; absent: existing traffic, else four requests per second."""
    faults: Annotated[tuple[ScheduledFault, ...], Field(min_length=1, max_length=16)]
    """Faults that the drill injects; onsets count from the start of the drill."""
    steady_state: Annotated[tuple[Guard, ...], Field(min_length=1, max_length=32)]
    """Steady-state hypothesis: guards that must hold, each in the phases that it names."""
    abort_when: Annotated[tuple[Guard, ...], Field(max_length=32)] = ()
    """Guards that end the drill at once when one does not hold."""
    undo: Undo = Undo()
    expect: Expectations = Expectations()
    blast_radius: BlastRadius = BlastRadius()
    time_to_live_s: Positive
    """Time after which injectors undo their faults without being told to, s."""
    after_s: NonNegative = 30.0
    """Time for which the fleet is watched after the undo, s."""
    seed: Count = 0
    """Seed of all random draws; equal seeds give equal arrivals and noise."""


class FaultDrill(Document):
    """A drill."""

    kind: Literal["FaultDrill"] = "FaultDrill"
    spec: DrillSpec
