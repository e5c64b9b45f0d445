"""Every kind of fault, as data: its dose, what it does, how it is injected, proved and undone.

A new fault is one entry here, its effect on a channel in ``faults.effects``, a row of the live
injector and a test row. The live and Kubernetes forms are names and texts that injectors look up;
nothing here runs anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Dose:
    """How strong a fault is: its quantity, the value that changes nothing, its range and default."""

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
    live_injection: method of the worker extension (``selvage_...``), or name of a middleware or process
    action.
    kubernetes_form: what a drill does to a pod. verification: the proof that the injection
    happened. undo: what restores the replica, including what must be reset before re-admission.
    """

    name: str
    channel: Channel
    dose: Dose
    silent: bool
    measured: bool
    live_injection: str
    kubernetes_form: str
    verification: str
    undo: str


_SWITCH = Dose(quantity="on", neutral=0.0, lowest=0.0, highest=1.0, default=1.0)
_MEASURED = Dose(quantity="measured condition", neutral=0.0, lowest=0.0, highest=1.0, default=1.0)
_RATIO = Dose(quantity="ratio", neutral=0.0, lowest=0.0, highest=1.0, default=0.5)
_FACTOR = Dose(quantity="factor", neutral=1.0, lowest=1.0, highest=1000.0, default=3.0)
_LATENCY = Dose(quantity="ms", neutral=0.0, lowest=0.0, highest=600_000.0, default=500.0)

_CANARY = "functional canary: fixed input through every linear layer, bytes differ from the clean run"
_RESTORE = "put the saved handler back, reset the prefix cache, canary equals the clean run bit for bit"


def _numeric(name: str, injection: str) -> FaultKind:
    return FaultKind(
        name=name, channel=Channel.NUMERIC, dose=_MEASURED, silent=True, measured=True,
        live_injection=injection,
        kubernetes_form="worker-extension rpc through an exec probe container of the pod",
        verification=_CANARY, undo=_RESTORE,
    )  # fmt: skip


def _plain(
    name: str, channel: Channel, dose: Dose, silent: bool, injection: str, pod: str, proof: str, undo: str
) -> FaultKind:
    return FaultKind(
        name=name, channel=channel, dose=dose, silent=silent, measured=False,
        live_injection=injection, kubernetes_form=pod, verification=proof, undo=undo,
    )  # fmt: skip


_KINDS: tuple[FaultKind, ...] = (
    _numeric("requantise", "selvage_requantise"),
    _numeric("noise", "selvage_add_noise"),
    _numeric("bit_flips", "selvage_flip_bits"),
    FaultKind(
        name="kernel_regression", channel=Channel.NUMERIC, dose=_MEASURED, silent=True, measured=True,
        live_injection="restart_with_environment",
        kubernetes_form="set image or environment of the Deployment (for example the ISA ceiling)",
        verification="probe drift of the restarted replica leaves its certified value",
        undo="restart with the certified image and environment, then re-certify",
    ),
    _plain(
        "slow", Channel.STEP_TIME, _FACTOR, False, "selvage_slow", "CPU limit or clock cap of the pod",
        "step time of a fixed batch grows by the stated factor", "remove the delay",
    ),
    _plain(
        "hang", Channel.HANG, _SWITCH, False, "selvage_hang", "SIGSTOP of the engine process",
        "a request stalls while the health check still answers 200", "SIGCONT, then one warm-up request",
    ),
    _plain(
        "crash", Channel.CRASH, _SWITCH, False, "selvage_crash", "delete the pod with grace period 0",
        "the process is gone and its port refuses", "the supervisor restarts the replica",
    ),
    _plain(
        "kv_pressure", Channel.KV, _RATIO, False, "hold_kv_blocks", "worker-extension rpc",
        "free KV blocks fall by the stated ratio", "free the held blocks",
    ),
    _plain(
        "http_errors", Channel.HTTP_ERROR, _RATIO, False, "http_errors", "fault filter in the sidecar",
        "share of HTTP 503 among test requests", "delete the rule",
    ),
    _plain(
        "latency", Channel.HTTP_LATENCY, _LATENCY, False, "http_latency", "delay filter in the sidecar",
        "time to first byte grows by the stated delay", "delete the rule",
    ),
    _plain(
        "telemetry_loss", Channel.TELEMETRY, _SWITCH, True, "drop_scrapes", "NetworkPolicy against scraper",
        "the scrape target turns stale while requests succeed", "delete the rule",
    ),
    _plain(
        "trace_fields_missing", Channel.TRACE_FIELDS, _RATIO, True, "drop_trace_fields",
        "response filter in the sidecar", "share of answers without the field", "delete the rule",
    ),
    _plain(
        "wrong_fingerprint", Channel.FINGERPRINT, _SWITCH, True, "override_fingerprint",
        "set the fingerprint value of the container", "reported fingerprint differs from the pool's",
        "restore the value and restart",
    ),
    FaultKind(
        name="correlated", channel=Channel.NUMERIC, dose=_MEASURED, silent=True, measured=True,
        live_injection="selvage_requantise",
        kubernetes_form="the same injection on pods of several Deployments, chosen by label",
        verification=_CANARY, undo=_RESTORE,
    ),
    _plain(
        "load_surge", Channel.ARRIVALS, _FACTOR, False, "load_factor", "scale the load generator",
        "offered rate at the gateway grows by the stated factor", "scale the load generator back",
    ),
)  # fmt: skip

#: Kind name -> entry.
CATALOGUE: dict[str, FaultKind] = {kind.name: kind for kind in _KINDS}


def is_neutral(kind: str, dose: float) -> bool:
    """True when ``dose`` of ``kind`` changes nothing."""
    return dose == CATALOGUE[kind].dose.neutral
