"""``Scenario``: workload, pool, contract, faults and ordinary changes of one simulated episode family."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import (
    Field,
    GetJsonSchemaHandler,
    PlainSerializer,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)
from pydantic_core import CoreSchema

from contracts.documents.envelope import (
    Count,
    Document,
    Name,
    NonNegative,
    Positive,
    PositiveCount,
    Ratio,
    Strict,
    Text,
    Uri,
)
from contracts.documents.pool import PoolSpec
from contracts.documents.trigger import LiveInjection, Trigger
from contracts.plugins import Registry

#: Every kind of fault by name; ``faults.catalogue`` fills it, others add to it.
FAULT_KINDS: Registry[Any] = Registry("selvage_fleet.faults")

OwnFaultKind = Literal[
    "requantise",
    "noise",
    "bit_flips",
    "kernel_regression",
    "slow",
    "hang",
    "crash",
    "kv_pressure",
    "http_errors",
    "latency",
    "telemetry_loss",
    "trace_fields_missing",
    "wrong_fingerprint",
    "correlated",
    "load_surge",
    "scale",
    "raise",
    "kv_noise",
    "logit_noise",
    "sampling_skew",
    "nan_sanitised",
    "repeat_token",
    "cut_json",
    "cut_stream",
    "crossed_answers",
]


def _own_or_registered(kind: object, own: ValidatorFunctionWrapHandler) -> object:
    """``kind`` unchanged if a plug-in registered it, else validated as a built-in kind."""
    other = isinstance(kind, str) and kind not in get_args(OwnFaultKind) and kind in FAULT_KINDS
    return kind if other else own(kind)


class _EveryKind:
    """Lets a schema list what validation accepts: the built-in kinds, then those of plug-ins."""

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        own = get_args(OwnFaultKind)
        others = [name for name in FAULT_KINDS.known() if name not in own]
        return {**handler(schema), "enum": [*own, *others]}


#: A built-in kind, or one that a plug-in registered.
FaultKind = Annotated[
    OwnFaultKind,
    WrapValidator(_own_or_registered),
    PlainSerializer(str, return_type=str),
    _EveryKind(),
]
FaultShape = Literal["step", "ramp", "intermittent", "slow_onset"]
ChangeKind = Literal["rolling_restart", "scale_up", "scale_down", "cache_flush", "surge", "lost_scrapes"]


class SliceShare(Strict):
    """Share of the offered requests that belongs to a slice."""

    slice: Name
    """Name of a slice."""
    share: Ratio
    """Of all offered requests, 0..1; the shares add up to 1."""


class TokenLengths(Strict):
    """Distribution of a token count; ``sigma`` is the log-normal's shape (of the logarithm)."""

    distribution: Literal["lognormal", "fixed"] = "lognormal"
    mean: Positive
    sigma: NonNegative = 0.0
    max_tokens: PositiveCount = 32768


class GammaArrivals(Strict):
    """Gamma-distributed gaps; coefficient of variation 1 is Poisson, more is burstier."""

    gap_cv: Positive


class DiurnalArrivals(Strict):
    """Sinusoidal rate: rate_rps * (1 + amplitude_ratio * sin(2 pi (t - phase_s) / period_s))."""

    period_s: Positive
    amplitude_ratio: Ratio
    phase_s: NonNegative = 0.0


class SurgeArrivals(Strict):
    """Rate multiplied by ``factor`` from ``at_s`` for ``duration_s``."""

    at_s: NonNegative
    duration_s: Positive
    factor: Positive


class DeclaredTokens(Strict):
    """Mean token counts that the controller's derived capacities assume."""

    prompt_tokens: Positive
    output_tokens: Positive


class TokenDrift(Strict):
    """Token counts change linearly from those of the laws at 0 s to these multiples at the horizon."""

    prompt_factor: Positive = 1.0
    output_factor: Positive = 1.0


class Workload(Strict):
    """What arrives. The block named by ``arrivals`` must be present (none for poisson)."""

    rate_rps: Positive
    arrivals: Literal["poisson", "gamma", "diurnal", "surge", "trace"] = "poisson"
    gamma: GammaArrivals | None = None
    diurnal: DiurnalArrivals | None = None
    surge: SurgeArrivals | None = None
    trace_uri: Uri | None = None
    """Azure LLM trace format; its rate is scaled to ``rate_rps``."""
    slice_mix: Annotated[tuple[SliceShare, ...], Field(min_length=1, max_length=16)]
    prompt_tokens: TokenLengths
    output_tokens: TokenLengths
    declared: DeclaredTokens | None = None
    """What the controller is told; absent: the means above. The truth never reads it."""
    drift: TokenDrift | None = None
    """Absent: the same lengths throughout."""
    session_share: Ratio = 0.0


class Gateway(Strict):
    """What stands before the replicas."""

    timeout_s: Positive = 60.0
    max_attempts: PositiveCount = 2
    queue_limit: PositiveCount = 256
    """Requests waiting at one replica before it answers 503."""
    sticky: bool = False


class TelemetrySettings(Strict):
    """How much the controller can see. ``repeat_noise`` is relative; 0 as measured on one host."""

    scrape_interval_s: Positive = 1.0
    scrape_delay_s: NonNegative = 0.5
    scrape_loss_ratio: Ratio = 0.0
    probes_per_s: NonNegative = 1.0
    """Per replica, round robin over slices; the same for every policy."""
    repeat_noise: NonNegative = 0.0


class FaultTarget(Strict):
    """Where a fault strikes; nothing set means the whole fleet (or the workload)."""

    kernel: Name | None = None
    """Replicas of this kernel; absent: of every kernel."""
    kernels: Annotated[tuple[Name, ...], Field(min_length=1, max_length=64)] | None = None
    """Several kernels at once, for correlated faults."""
    replica: Count | None = None
    """Index among the replicas of ``kernel``."""
    zone: Name | None = None
    """Replicas of this zone; absent: of every zone."""
    replica_ratio: Annotated[float, Field(gt=0.0, le=1.0)] | None = None
    """Share of the replicas that the rest selects, rounded down, one at least, spread evenly over them."""


class RampShape(Strict):
    """Dose grows linearly over ``rise_s``."""

    rise_s: Positive
    """Seconds from nothing to the whole dose."""


class IntermittentShape(Strict):
    """On for ``duty_ratio`` of every ``period_s``."""

    period_s: Positive
    """Seconds from one onset to the next."""
    duty_ratio: Annotated[float, Field(gt=0.0, lt=1.0)]
    """Share of a period in which the fault acts, between 0 and 1."""


class SlowOnsetShape(Strict):
    """Dose grows quadratically over ``rise_s``: hardly there at first."""

    rise_s: Positive
    """Seconds from nothing to the whole dose."""


class ScheduledFault(Strict):
    """One fault of the schedule. The block of a shape other than step must be present."""

    name: Name
    """Its own among the faults of this schedule."""
    kind: FaultKind
    """What happens, an entry of the fault catalogue."""
    target: FaultTarget = FaultTarget()
    condition: Name | None = None
    """Profile condition whose measured values the target then shows."""
    dose: NonNegative | None = None
    """Meaning by kind, see the fault catalogue."""
    onset_s: NonNegative
    """Seconds from the start to its onset."""
    duration_s: Positive | None = None
    """Absent: to the horizon."""
    shape: FaultShape = "step"
    """How the dose goes over time; all but step have a block of that name."""
    ramp: RampShape | None = None
    intermittent: IntermittentShape | None = None
    slow_onset: SlowOnsetShape | None = None
    trigger: Trigger | None = None
    """Absent: it acts on everything."""
    live: LiveInjection | None = None
    """Absent: the injector's defaults."""


class Change(Strict):
    """An ordinary event that is no fault."""

    name: Name | None = None
    kind: ChangeKind
    at_s: NonNegative
    kernel: Name | None = None
    zone: Name | None = None
    replicas: PositiveCount | None = None
    """How many come or go; absent: one."""
    step_s: Positive | None = None
    """Between replicas of a rolling restart."""
    cold_start_s: NonNegative | None = None
    duration_s: Positive | None = None
    factor: Positive | None = None
    """Load factor of a surge."""
    ratio: Ratio | None = None
    """Share of scrapes lost."""


class ScenarioSpec(Strict):
    """One episode family. Exactly one of ``pool`` and ``pool_uri``."""

    description: Text
    pool: PoolSpec | None = None
    pool_uri: Uri | None = None
    contract: Uri
    horizon_s: Positive
    tick_s: Positive = 1.0
    workload: Workload
    gateway: Gateway = Gateway()
    telemetry: TelemetrySettings = TelemetrySettings()
    faults: Annotated[tuple[ScheduledFault, ...], Field(max_length=64)] = ()
    changes: Annotated[tuple[Change, ...], Field(max_length=64)] = ()


class Scenario(Document):
    """A scenario."""

    kind: Literal["Scenario"] = "Scenario"
    spec: ScenarioSpec
