"""The faults of a random episode: kind, target, shape and dose, drawn in a fixed order."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np

from contracts.documents.scenario import ScheduledFault
from simulator.env.base import Base
from simulator.env.space import EpisodeSpace, Range, family_of

Rng = np.random.Generator

_FREE = (
    "slow",
    "hang",
    "crash",
    "kv_pressure",
    "http_errors",
    "latency",
    "telemetry_loss",
    "trace_fields_missing",
    "wrong_fingerprint",
    "load_surge",
)
_SUDDEN = ("hang", "crash", "telemetry_loss", "wrong_fingerprint")


def draw_faults(
    base: Base, space: EpisodeSpace, rng: Rng
) -> tuple[tuple[ScheduledFault, ...], tuple[str, ...]]:
    """The faults of an episode and the names of their families."""
    if rng.random() < space.calm_share:
        return (), ()
    count = 2 if rng.random() < space.second_share else 1
    drawn = [_fault(base, space, rng, f"fault-{number}") for number in range(count)]
    return tuple(fault for fault, _ in drawn), tuple(sorted({name for _, name in drawn}))


def _fault(base: Base, space: EpisodeSpace, rng: Rng, name: str) -> tuple[ScheduledFault, str]:
    numeric = bool(base.menu) and rng.random() < 0.5
    kind, kernel, condition = _what(base, rng, numeric=numeric)
    kernels = _together(base, kernel, condition, rng) if numeric else ()
    kind = "correlated" if kernels else kind
    target = {"kernels": kernels} if kernels else _target(base, kernel, rng)
    if kind == "load_surge":
        target = {}
    shape, block = _shape(space, rng, sudden=kind in _SUDDEN)
    fault = ScheduledFault.model_validate(
        {
            "name": name,
            "kind": kind,
            "target": target,
            "condition": condition,
            "dose": _dose(kind, space, rng),
            "shape": shape,
            **block,
            "onset_s": base.spec.horizon_s * between(rng, space.onset_ratio),
        }
    )
    if kind == "crash" and rng.random() < 0.5:
        fault = fault.model_copy(update={"duration_s": 10.0 + 60.0 * float(rng.random())})
    return fault, family_of(fault)


def _what(base: Base, rng: Rng, *, numeric: bool) -> tuple[str, str, str | None]:
    """Kind, kernel and condition; kernels that are the home of a slice are struck more often."""
    names = [kernel.entry.name for kernel in base.pool.kernels]
    homes = {home.kernel for home in base.pool.spec.home}
    weight = np.array([2.0 if name in homes else 1.0 for name in names])
    kernel = names[int(rng.choice(len(names), p=weight / weight.sum()))]
    if not numeric:
        return _FREE[int(rng.integers(len(_FREE)))], kernel, None
    mine = [row for row in base.menu if row[1] == kernel] or list(base.menu)
    kind, kernel, condition = mine[int(rng.integers(len(mine)))]
    return kind, kernel, condition


def _together(base: Base, kernel: str, condition: str | None, rng: Rng) -> tuple[str, ...]:
    """Two kernels that share a measured condition, with probability 0.1 if there are such pairs;
    else none.
    """
    others = sorted({name for _, name, other in base.menu if other == condition} | {kernel})
    pairs = [pair for pair in combinations(others, 2) if kernel in pair]
    lucky, place = rng.random() < 0.1, rng.random()
    return pairs[int(place * len(pairs))] if pairs and lucky else ()


def _target(base: Base, kernel: str, rng: Rng) -> dict[str, Any]:
    """The whole kernel, one of its replicas, or its replicas in one zone."""
    entry = next(item.entry for item in base.pool.kernels if item.entry.name == kernel)
    draw, place = rng.random(), rng.random()
    zones = sorted(set(entry.zones or ()))
    if draw < 0.3 and entry.replicas > 1:
        return {"kernel": kernel, "replica": int(place * entry.replicas)}
    if draw < 0.45 and len(zones) > 1:
        return {"kernel": kernel, "zone": zones[int(place * len(zones))]}
    return {"kernel": kernel}


def _shape(space: EpisodeSpace, rng: Rng, *, sudden: bool) -> tuple[str, dict[str, Any]]:
    draw, rise_s, period_s = rng.random(), between(rng, space.rise_s), between(rng, space.period_s)
    duty_ratio = 0.3 + 0.4 * float(rng.random())
    if sudden or draw < 0.5:
        return "step", {}
    if draw < 0.7:
        return "ramp", {"ramp": {"rise_s": rise_s}}
    if draw < 0.85:
        return "slow_onset", {"slow_onset": {"rise_s": rise_s}}
    return "intermittent", {"intermittent": {"period_s": period_s, "duty_ratio": duty_ratio}}


def _dose(kind: str, space: EpisodeSpace, rng: Rng) -> float | None:
    """A free dose; None if the condition is the dose, or the kind has none."""
    u = float(rng.random())
    even = {
        "http_errors": space.http_error_ratio,
        "kv_pressure": space.kv_held_ratio,
        "trace_fields_missing": space.trace_missing_ratio,
    }
    logarithmic = {"slow": space.slow_factor, "latency": space.latency_ms, "load_surge": space.surge_factor}
    if kind in even:
        low, high = even[kind]
        return low + (high - low) * u
    if kind in logarithmic:
        return _logarithmic(logarithmic[kind], u)
    return None


def log_between(rng: Rng, bounds: Range) -> float:
    """A number drawn log-uniformly from ``bounds``."""
    return _logarithmic(bounds, float(rng.random()))


def _logarithmic(bounds: Range, u: float) -> float:
    low, high = bounds
    return float(low * (high / low) ** u)


def between(rng: Rng, bounds: Range) -> float:
    """A number drawn uniformly from ``bounds``."""
    return bounds[0] + (bounds[1] - bounds[0]) * float(rng.random())
