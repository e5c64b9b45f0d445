"""The effect of active faults on one replica: a pure function from nominal to degraded.

``apply`` uses no clock and no randomness. If every fault is at intensity zero or at the neutral dose of its
kind, it returns the very object that was given.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from contracts.telemetry import Source
from faults.catalogue import CATALOGUE, Channel


@dataclass(frozen=True, slots=True, kw_only=True)
class Struck:
    """Which requests of a replica a measured condition affects; by default all of them, entirely."""

    slice: int = -1
    """Index of the only slice, -1 for all."""
    after_tokens: int = 0
    """Only the tokens of an answer after this many tokens."""
    min_batch: int = 0
    """Only requests that were admitted into a batch of at least this size, themselves included."""


ALL_REQUESTS = Struck()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaEffect:
    """State of one replica under faults; the defaults are a healthy replica."""

    condition: int = 0
    """Index of the measured profile condition in force (0: healthy)."""
    struck: Struck = ALL_REQUESTS
    """Which requests that condition affects."""
    step_time_factor: float = 1.0
    """Every engine step takes this many times longer."""
    hang: bool = False
    """No step completes, while discovery and health checks still report ready."""
    crashed: bool = False
    """The process is gone until it is restarted."""
    kv_held_ratio: float = 0.0
    """Share of the KV blocks that cannot be allocated."""
    http_error_ratio: float = 0.0
    """Share of the requests answered with HTTP 5xx."""
    http_latency_ms: float = 0.0
    """Added between gateway and engine."""
    telemetry_lost: bool = False
    """No scrape and no probe result arrives."""
    trace_fields_missing_ratio: float = 0.0
    """Share of the answers without a required trace field."""
    wrong_fingerprint: bool = False
    """The replica reports another build than that in the pool."""
    arrival_factor: float = 1.0
    """Offered load relative to the scenario's (read at fleet level)."""


HEALTHY = ReplicaEffect()


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveFault:
    """One fault as it acts on one replica now."""

    kind: str
    intensity: float
    """0 (absent) to 1 (the full dose)."""
    dose: float
    """Full dose in the unit of the kind's catalogue entry."""
    ladder: tuple[int, ...] = ()
    """Conditions of the replica's kernel in increasing measured drift, the last one being the full dose;
    empty for faults that change no numbers."""
    struck: Struck = ALL_REQUESTS
    """Which requests a measured condition affects."""


def apply(nominal: ReplicaEffect, active: Sequence[ActiveFault]) -> ReplicaEffect:
    """Effect of all ``active`` faults together on a replica that is otherwise ``nominal``.

    Measured conditions do not add: the one with the highest index in force stays (profiles are
    compiled in increasing drift). Step times multiply, latencies add, ratios combine as independent.
    """
    effect = nominal
    for fault in active:
        if fault.intensity > 0.0:
            effect = _EFFECTS[CATALOGUE[fault.kind].channel](effect, fault)
    return effect


def slowing(effect: ReplicaEffect) -> dict[Source, float]:
    """Source of clauses -> the quantity that they limit, for a replica that is slowed or short of KV blocks.

    The ground truth of every world compares the same clauses with the same part of the state.
    """
    return {Source.KV_USED: effect.kv_held_ratio, Source.STEP_TIME: effect.step_time_factor}


def scaled(neutral: float, dose: float, intensity: float) -> float:
    """The value at ``intensity`` of the way from the neutral dose to the full dose."""
    return neutral + (dose - neutral) * intensity


def ladder_step(ladder: Sequence[int], intensity: float) -> int:
    """Measured condition in force at ``intensity``: number ``ceil(intensity * len(ladder))`` of it."""
    if not ladder or intensity <= 0.0:
        return 0
    step = math.ceil(intensity * len(ladder) - 1e-9)
    return ladder[min(max(step, 1), len(ladder)) - 1]


def _either(first: float, second: float) -> float:
    return 1.0 - (1.0 - first) * (1.0 - second)


def _numeric(effect: ReplicaEffect, fault: ActiveFault) -> ReplicaEffect:
    condition = ladder_step(fault.ladder, fault.intensity)
    if condition <= effect.condition:
        return effect
    return replace(effect, condition=condition, struck=fault.struck)


def _slow(effect: ReplicaEffect, fault: ActiveFault) -> ReplicaEffect:
    factor = scaled(1.0, fault.dose, fault.intensity)
    return effect if factor == 1.0 else replace(effect, step_time_factor=effect.step_time_factor * factor)


def _hang(effect: ReplicaEffect, fault: ActiveFault) -> ReplicaEffect:
    return effect if fault.dose <= 0.0 else replace(effect, hang=True)


def _crash(effect: ReplicaEffect, fault: ActiveFault) -> ReplicaEffect:
    return effect if fault.dose <= 0.0 else replace(effect, crashed=True)


def _kv(effect: ReplicaEffect, fault: ActiveFault) -> ReplicaEffect:
    held = scaled(0.0, fault.dose, fault.intensity)
    return effect if held == 0.0 else replace(effect, kv_held_ratio=_either(effect.kv_held_ratio, held))


def _http_errors(effect: ReplicaEffect, fault: ActiveFault) -> ReplicaEffect:
    ratio = scaled(0.0, fault.dose, fault.intensity)
    return (
        effect if ratio == 0.0 else replace(effect, http_error_ratio=_either(effect.http_error_ratio, ratio))
    )


def _latency(effect: ReplicaEffect, fault: ActiveFault) -> ReplicaEffect:
    added = scaled(0.0, fault.dose, fault.intensity)
    return effect if added == 0.0 else replace(effect, http_latency_ms=effect.http_latency_ms + added)


def _telemetry(effect: ReplicaEffect, fault: ActiveFault) -> ReplicaEffect:
    return effect if fault.dose <= 0.0 else replace(effect, telemetry_lost=True)


def _trace_fields(effect: ReplicaEffect, fault: ActiveFault) -> ReplicaEffect:
    ratio = scaled(0.0, fault.dose, fault.intensity)
    both = _either(effect.trace_fields_missing_ratio, ratio)
    return effect if ratio == 0.0 else replace(effect, trace_fields_missing_ratio=both)


def _fingerprint(effect: ReplicaEffect, fault: ActiveFault) -> ReplicaEffect:
    return effect if fault.dose <= 0.0 else replace(effect, wrong_fingerprint=True)


def _surge(effect: ReplicaEffect, fault: ActiveFault) -> ReplicaEffect:
    factor = scaled(1.0, fault.dose, fault.intensity)
    return effect if factor == 1.0 else replace(effect, arrival_factor=effect.arrival_factor * factor)


def _unseen(effect: ReplicaEffect, fault: ActiveFault) -> ReplicaEffect:
    del fault  # no effect on a simulated replica; scenarios with this fault are refused
    return effect


_EFFECTS: dict[Channel, Callable[[ReplicaEffect, ActiveFault], ReplicaEffect]] = {
    Channel.NUMERIC: _numeric,
    Channel.STEP_TIME: _slow,
    Channel.HANG: _hang,
    Channel.CRASH: _crash,
    Channel.KV: _kv,
    Channel.HTTP_ERROR: _http_errors,
    Channel.HTTP_LATENCY: _latency,
    Channel.TELEMETRY: _telemetry,
    Channel.TRACE_FIELDS: _trace_fields,
    Channel.FINGERPRINT: _fingerprint,
    Channel.ARRIVALS: _surge,
    Channel.LIVE_ONLY: _unseen,
}
