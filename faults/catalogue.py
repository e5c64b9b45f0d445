"""Every kind of fault, as data: its dose and effect, and how it is injected, proved and undone.

A new fault of this project is one entry here, its effect on a channel in ``faults.effects``, a row of the
live injector and a test row. Plug-ins register theirs on an existing channel. The live and Kubernetes forms
are names and texts that injectors look up; nothing here runs anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from contracts.documents.scenario import FAULT_KINDS
from contracts.plugins import Registry


class Channel(Enum):
    """Which field of a ``ReplicaEffect`` a fault acts on."""

    NUMERIC = "numeric"
    STEP_TIME = "step_time"
    HANG = "hang"
    CRASH = "crash"
    KV = "kv"
    HTTP_ERROR = "http_error"
    HTTP_LATENCY = "http_latency"
    TELEMETRY = "telemetry"
    TRACE_FIELDS = "trace_fields"
    FINGERPRINT = "fingerprint"
    ARRIVALS = "arrivals"
    LIVE_ONLY = "live_only"
    """No effect on a simulated replica; only live servers show it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dose:
    """The strength of a fault: its quantity, its neutral value, its range and default."""

    quantity: str
    neutral: float
    lowest: float
    highest: float
    default: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultKind:
    """One kind of fault in every world.

    silent: answers stay HTTP 200 and in time; only numbers or observability change.
    measured: the dose is a measured condition of the kernel's profile, not a free number.
    live_injection: where it is plugged into a live server (``worker_extension``, ``middleware``,
    ``logits_processor``: ``faults.inside``), or what is done to the process or the load instead.
    kubernetes_form: the action of a drill on a pod. verification: the proof of the injection. undo: how
    the replica is restored, including everything to reset before re-admission.
    """

    name: str
    channel: Channel
    dose: Dose
    live_injection: str
    kubernetes_form: str
    verification: str
    undo: str
    silent: bool = False
    measured: bool = False


_SWITCH = Dose(quantity="on", neutral=0.0, lowest=0.0, highest=1.0, default=1.0)
_MEASURED = Dose(quantity="measured condition", neutral=0.0, lowest=0.0, highest=1.0, default=1.0)
_RATIO = Dose(quantity="ratio", neutral=0.0, lowest=0.0, highest=1.0, default=0.5)
_FACTOR = Dose(quantity="factor", neutral=1.0, lowest=1.0, highest=1000.0, default=3.0)
_LATENCY = Dose(quantity="ms", neutral=0.0, lowest=0.0, highest=600_000.0, default=500.0)

_NATS = Dose(quantity="nats", neutral=0.0, lowest=0.0, highest=1000.0, default=1.0)

_IN_POD = "the same injection in a pod whose server was started for drills"
_ROWS = "rows of logits that were changed; greedy answers differ"
_FORGET = "stop changing logits, reset the prefix cache"
_CANARY = "functional canary: fixed input through every linear layer, bytes differ from the clean run"
_RESTORE = "put the saved handler back, reset the prefix cache, canary equals the clean run bit for bit"


def _numeric(name: str) -> FaultKind:
    return FaultKind(
        name=name,
        channel=Channel.NUMERIC,
        dose=_MEASURED,
        silent=True,
        measured=True,
        live_injection="worker_extension",
        kubernetes_form=_IN_POD,
        verification=_CANARY,
        undo=_RESTORE,
    )


def _live_only(name: str, dose: Dose, injection: str, verification: str, undo: str) -> FaultKind:
    return FaultKind(
        name=name,
        channel=Channel.LIVE_ONLY,
        dose=dose,
        silent=name not in ("cut_json", "cut_stream"),
        live_injection=injection,
        kubernetes_form=_IN_POD,
        verification=verification,
        undo=undo,
    )


_KINDS: tuple[FaultKind, ...] = (
    _numeric("requantise"),
    _numeric("noise"),
    _numeric("bit_flips"),
    FaultKind(
        name="kernel_regression", channel=Channel.NUMERIC, dose=_MEASURED, silent=True, measured=True,
        live_injection="restart_with_environment",
        kubernetes_form="set image or environment of the Deployment (for example the ISA ceiling)",
        verification="probe drift of the restarted replica leaves its certified value",
        undo="restart with the certified image and environment, then re-certify",
    ),
    FaultKind(
        name="slow", channel=Channel.STEP_TIME, dose=_FACTOR,
        live_injection="worker_extension",
        kubernetes_form=_IN_POD,
        verification="step time of a fixed batch grows by the stated factor",
        undo="remove the delay",
    ),
    FaultKind(
        name="hang", channel=Channel.HANG, dose=_SWITCH,
        live_injection="worker_extension",
        kubernetes_form=_IN_POD,
        verification="a request stalls while the health check still answers 200",
        undo="the step under way goes on (a stopped process: SIGCONT), then one warm-up request",
    ),
    FaultKind(
        name="crash", channel=Channel.CRASH, dose=_SWITCH,
        live_injection="worker_extension",
        kubernetes_form="the pod is deleted with grace period 0",
        verification="the process is gone and its port refuses",
        undo="the supervisor restarts the replica",
    ),
    FaultKind(
        name="kv_pressure", channel=Channel.KV, dose=_RATIO,
        live_injection="worker_extension",
        kubernetes_form=_IN_POD,
        verification="free KV blocks fall by the stated ratio",
        undo="free the held blocks",
    ),
    FaultKind(
        name="http_errors", channel=Channel.HTTP_ERROR, dose=_RATIO,
        live_injection="middleware",
        kubernetes_form=_IN_POD,
        verification="share of HTTP 503 among test requests",
        undo="delete the rule",
    ),
    FaultKind(
        name="latency", channel=Channel.HTTP_LATENCY, dose=_LATENCY,
        live_injection="middleware",
        kubernetes_form=f"{_IN_POD}, or a NetworkChaos of Chaos Mesh if the drill hands it over",
        verification="time to first byte grows by the stated delay",
        undo="delete the rule",
    ),
    FaultKind(
        name="telemetry_loss", channel=Channel.TELEMETRY, dose=_SWITCH, silent=True,
        live_injection="middleware",
        kubernetes_form=_IN_POD,
        verification="the scrape target turns stale while requests succeed",
        undo="delete the rule",
    ),
    FaultKind(
        name="trace_fields_missing", channel=Channel.TRACE_FIELDS, dose=_RATIO, silent=True,
        live_injection="middleware",
        kubernetes_form=_IN_POD,
        verification="share of answers without the field",
        undo="delete the rule",
    ),
    FaultKind(
        name="wrong_fingerprint", channel=Channel.FINGERPRINT, dose=_SWITCH, silent=True,
        live_injection="middleware",
        kubernetes_form=_IN_POD,
        verification="reported fingerprint differs from the pool's",
        undo="restore the value and restart",
    ),
    FaultKind(
        name="correlated", channel=Channel.NUMERIC, dose=_MEASURED, silent=True, measured=True,
        live_injection="worker_extension",
        kubernetes_form="the same injection in several pods whose servers were started for drills",
        verification=_CANARY, undo=_RESTORE,
    ),
    FaultKind(
        name="load_surge", channel=Channel.ARRIVALS, dose=_FACTOR,
        live_injection="load_factor",
        kubernetes_form="scale the load generator",
        verification="offered rate at the gateway grows by the stated factor",
        undo="scale the load generator back",
    ),
    _numeric("scale"),
    FaultKind(
        name="raise", channel=Channel.CRASH, dose=_SWITCH,
        live_injection="worker_extension",
        kubernetes_form=_IN_POD,
        verification="the engine is dead: requests fail, then the port refuses",
        undo="the supervisor restarts the replica",
    ),
    _live_only("kv_noise", _SWITCH, "worker_extension", "entries of the KV cache that were changed",
               "flush the prefix cache; requests under way are preempted and computed anew"),
    _live_only("logit_noise", _NATS, "logits_processor", _ROWS, _FORGET),
    _live_only("sampling_skew", _FACTOR, "logits_processor", _ROWS, _FORGET),
    _live_only("nan_sanitised", _SWITCH, "logits_processor", _ROWS, _FORGET),
    _live_only("repeat_token", _SWITCH, "logits_processor", _ROWS, _FORGET),
    _live_only("cut_json", _RATIO, "middleware", "share of answers that are no JSON", "delete the rule"),
    _live_only("cut_stream", _RATIO, "middleware", "streams without a stop reason", "delete the rule"),
    _live_only("crossed_answers", _SWITCH, "middleware", "a nonce in the answer to another request",
               "delete the rule"),
)  # fmt: skip

#: Kind name -> entry; a plug-in's entry is added on request.
CATALOGUE: Registry[FaultKind] = FAULT_KINDS


def register_fault(kind: FaultKind) -> None:
    """Register ``kind``, so that documents can schedule it by name; ValueError if the name is taken."""
    CATALOGUE.register(kind.name, kind)


for _kind in _KINDS:
    register_fault(_kind)


def is_neutral(kind: str, dose: float) -> bool:
    """True when ``dose`` of ``kind`` changes nothing."""
    return dose == CATALOGUE[kind].dose.neutral
