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
from contracts.documents.workload import Workload
from contracts.plugins import Registry

#: Kinds of fault by name, filled by ``faults.catalogue`` and by plug-ins.
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
    """Makes the schema list the accepted kinds: the built-in ones, then those of plug-ins."""

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


class Gateway(Strict):
    """The gateway in front of the replicas."""

    timeout_s: Positive = 60.0
    """Time after which an unanswered request fails, s."""
    max_attempts: PositiveCount = 2
    """Most replicas that one request is sent to, a count."""
    queue_limit: PositiveCount = 256
    """Requests that may wait at one replica before further ones get a 503."""
    sticky: bool = False
    """True: requests of a session go to the replica that holds its prefix."""


class TelemetrySettings(Strict):
    """How much the controller can see. ``repeat_noise`` is relative; 0 as measured on one host."""

    scrape_interval_s: Positive = 1.0
    """Time between two scrapes of a replica, s."""
    scrape_delay_s: NonNegative = 0.5
    """Time from a scrape until the controller reads it, s."""
    scrape_loss_ratio: Ratio = 0.0
    """Share of scrapes that are lost, 0..1."""
    probes_per_s: NonNegative = 1.0
    """Probes per replica and second, round robin over slices; the same for every policy."""
    repeat_noise: NonNegative = 0.0
    """Relative standard deviation of a repeated probe (of the logarithm); 0: bit for bit the same."""


class FaultTarget(Strict):
    """Replicas that a fault strikes; without any field the whole fleet (or the workload)."""

    kernel: Name | None = None
    """Kernel whose replicas the fault strikes; absent: every kernel."""
    kernels: Annotated[tuple[Name, ...], Field(min_length=1, max_length=64)] | None = None
    """Kernels whose replicas a correlated fault strikes together; absent: the one in kernel."""
    replica: Count | None = None
    """Index of a single replica among those of ``kernel``, from 0; absent: all of them."""
    zone: Name | None = None
    """Zone whose replicas the fault strikes; absent: every zone."""
    replica_ratio: Annotated[float, Field(gt=0.0, le=1.0)] | None = None
    """Share of the otherwise selected replicas to strike, at least one, spread evenly; absent: all."""


class RampShape(Strict):
    """Dose grows linearly over ``rise_s``."""

    rise_s: Positive
    """Time from no dose to the full dose, s."""


class IntermittentShape(Strict):
    """The fault acts for ``duty_ratio`` of every ``period_s``."""

    period_s: Positive
    """Time from one onset to the next, s."""
    duty_ratio: Annotated[float, Field(gt=0.0, lt=1.0)]
    """Share of each period in which the fault acts, between 0 and 1."""


class SlowOnsetShape(Strict):
    """Dose grows quadratically over ``rise_s``, slowly at first."""

    rise_s: Positive
    """Time from no dose to the full dose, s."""


class ScheduledFault(Strict):
    """One fault of a schedule. The block of a shape other than step must be present."""

    name: Name
    """Name of the fault, unique in its schedule."""
    kind: FaultKind
    """Kind of the fault, an entry of the fault catalogue."""
    target: FaultTarget = FaultTarget()
    """Replicas that the fault strikes."""
    condition: Name | None = None
    """Condition of the kernel's profile whose measured values the target shows; absent: none."""
    dose: NonNegative | None = None
    """Size of the fault, as the fault catalogue defines it for each kind; absent: the kind's default, if
    any."""
    onset_s: NonNegative
    """Time from the start to the fault's onset, s."""
    duration_s: Positive | None = None
    """Time for which the fault acts, s; absent: to a scenario's horizon or a drill's time to live."""
    shape: FaultShape = "step"
    """Course of the dose over time; every shape but step has a block of the same name."""
    ramp: RampShape | None = None
    """Settings of the shape ramp; absent for others."""
    intermittent: IntermittentShape | None = None
    """Settings of the shape intermittent; absent for others."""
    slow_onset: SlowOnsetShape | None = None
    """Settings of the shape slow_onset; absent for others."""
    trigger: Trigger | None = None
    """Conditions under which the fault acts; absent: always."""
    live: LiveInjection | None = None
    """Settings of an injection into a live server; absent: the injector's defaults."""


class Change(Strict):
    """An ordinary event, not a fault."""

    name: Name | None = None
    """Name of the change; absent: its kind."""
    kind: ChangeKind
    """Kind of the change."""
    at_s: NonNegative
    """Time from the start to the change, s."""
    kernel: Name | None = None
    """Kernel that changes; absent: every kernel."""
    zone: Name | None = None
    """Zone that changes; absent: every zone."""
    replicas: PositiveCount | None = None
    """Number of replicas added or removed, a count; absent: one."""
    step_s: Positive | None = None
    """Time between two replicas of a rolling restart, s; absent: twice the cold start."""
    cold_start_s: NonNegative | None = None
    """Time until a new or restarted replica answers, s; absent: 20 s."""
    duration_s: Positive | None = None
    """Time that the change lasts, s; absent: to the horizon."""
    factor: Positive | None = None
    """Factor by which a surge multiplies the load."""
    ratio: Ratio | None = None
    """Share of scrapes that is lost, 0..1; absent: all."""


class ScenarioSpec(Strict):
    """One episode family. Exactly one of ``pool`` and ``pool_uri``."""

    description: Text
    """What happens, for readers."""
    pool: PoolSpec | None = None
    """Kernels of the fleet; absent: see pool_uri."""
    pool_uri: Uri | None = None
    """Place of a KernelPool; absent: see pool."""
    contract: Uri
    """Place of the kernel contract."""
    horizon_s: Positive
    """Length of an episode, s."""
    tick_s: Positive = 1.0
    """Time between two decisions of the controller, s."""
    workload: Workload
    """Requests that arrive."""
    gateway: Gateway = Gateway()
    """Settings of the gateway."""
    telemetry: TelemetrySettings = TelemetrySettings()
    """How much the controller can see."""
    faults: Annotated[tuple[ScheduledFault, ...], Field(max_length=64)] = ()
    """Faults of an episode; empty: none."""
    changes: Annotated[tuple[Change, ...], Field(max_length=64)] = ()
    """Ordinary changes of an episode; empty: none."""


class Scenario(Document):
    """A scenario."""

    kind: Literal["Scenario"] = "Scenario"
    spec: ScenarioSpec
