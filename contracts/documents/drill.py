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
from contracts.documents.scenario import ScheduledFault, SliceShare

#: What a guard may watch: shares, all of them.
GUARD_METRICS = ("failure_rate", "late_ratio", "exposed_ratio", "rotation_ratio")
DrillPhase = Literal["before", "during", "after"]


class Guard(Strict):
    """A metric that must stay within its limit."""

    name: Name
    """Its own among the guards of this drill."""
    metric: MetricName
    """What is watched: failure_rate, late_ratio, exposed_ratio or rotation_ratio."""
    estimator: Estimator = "none"
    """How the metric is estimated; none of these four has one."""
    slice: Name | None = None
    """The slice that it watches; absent: all requests."""
    sense: Literal["at_most", "at_least"] = "at_most"
    """Whether the metric must stay at or below the threshold, or at or above it."""
    threshold: NonNegative
    """In the metric's unit; of these four a share in 0..1."""
    window_s: Positive = 30.0
    """Newest seconds that the metric is taken over."""
    phases: Annotated[tuple[DrillPhase, ...], Field(min_length=1, max_length=3)] = (
        "before",
        "during",
        "after",
    )
    """When a steady-state guard must hold; what ends a drill is watched throughout."""


class DrillLoad(Strict):
    """Open-loop load of a drill: requests come when they are due, answered or not."""

    rate_rps: Positive
    """Mean requests per second over all slices."""
    arrivals: Literal["poisson", "trace"] = "poisson"
    """poisson: exponential gaps; trace: the gaps of ``trace_uri``."""
    trace_uri: Uri | None = None
    """Azure LLM trace format; its rate is scaled to ``rate_rps``, its token counts are not used."""
    slice_mix: Annotated[tuple[SliceShare, ...], Field(min_length=1, max_length=16)] | None = None
    """Absent: the pool's slices alike."""
    streamed_ratio: Ratio = 0.3
    """Share of the requests, 0..1, whose answer is streamed."""
    prompt_tokens: PositiveCount = 32
    """Length of every prompt, tokens."""
    answer_tokens: PositiveCount = 16
    """Most tokens of an answer."""
    timeout_s: Positive = 30.0
    """Seconds after which a request without its whole answer has failed."""


class BlastRadius(Strict):
    """How much the faults may strike at once; a drill that would strike more is refused."""

    replicas_at_most: PositiveCount | None = None
    """Replicas struck at once; absent: the ratio alone bounds them."""
    replica_ratio_at_most: Ratio = 0.5
    """Share of the pool's replicas struck at once, 0..1."""


class Expectations(Strict):
    """What must come of it; what is not given is told and not judged. Times count from the first onset."""

    moved_within_s: Positive | None = None
    """Until traffic is first taken from what is broken."""
    recovered_within_s: Positive | None = None
    """Until every slice is inside the contract and its objectives."""
    failed_ratio_at_most: Ratio | None = None
    """Failed and shed requests, of those offered from the onset on."""
    quality_at_least: Ratio | None = None
    """Quality preserved from the onset on."""
    false_switches_at_most: Count | None = None
    """Moves away from kernels that nothing had struck, a count."""


class Undo(Strict):
    """How the drill is taken back. Healed means verified: reset, probe, re-admit slowly."""

    reset_caches: bool = True
    """Flush the prefix cache of every replica that was struck."""
    verify_probes: PositiveCount = 32
    """Pairs of generation probes that must agree before a replica gets all its traffic (a count)."""
    readmit_over_s: NonNegative = 60.0
    """Seconds over which a verified replica gets its traffic back by steps; 0: at once."""


class DrillSpec(Strict):
    """One drill."""

    description: Text
    """What is shown by it, for people."""
    pool: Name
    """Name of the ``KernelPool`` it runs against."""
    pool_uri: Uri | None = None
    """Its file, where no cluster knows it; absent: the shipped document of that name."""
    contract: Uri | None = None
    """What it is judged by; absent: the shipped ``serving-pool``."""
    load: DrillLoad | None = None
    """Absent: the traffic that is there; worlds without any send four requests a second."""
    faults: Annotated[tuple[ScheduledFault, ...], Field(min_length=1, max_length=16)]
    """What strikes; onsets count from the start of the drill."""
    steady_state: Annotated[tuple[Guard, ...], Field(min_length=1, max_length=32)]
    """What holds while all is well: the drill is judged by it in the phases that each guard names."""
    abort_when: Annotated[tuple[Guard, ...], Field(max_length=32)] = ()
    """What ends the drill at once when it does not hold."""
    undo: Undo = Undo()
    expect: Expectations = Expectations()
    blast_radius: BlastRadius = BlastRadius()
    time_to_live_s: Positive
    """The injectors undo themselves after this even without a call."""
    after_s: NonNegative = 30.0
    """For how long the fleet is watched after the undo."""
    seed: Count = 0
    """Of every random draw: the same seed gives the same arrivals and noise."""


class FaultDrill(Document):
    """A drill."""

    kind: Literal["FaultDrill"] = "FaultDrill"
    spec: DrillSpec
