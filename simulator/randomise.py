"""Random scenarios for training: workload, pool size, faults, doses, shapes and telemetry, by named streams.

An episode is drawn from (seed, fleet, episode) alone. Everything that is measured stays as measured: a
numeric fault is a condition of the kernel's profile, and only free doses are drawn from a range. A
*family* is what an episode is about without its numbers (kind, kernel, condition, shape and target of
each fault); a hash of its name decides whether the family is held out, so that a policy is never trained
on any episode of a held-out family, whatever the seed. Families of reserved conditions are held out as well:
the held-out suite is made of them. (A ramp up to a dose passes the smaller measured doses of its kind on the
way, reserved or not.)
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from contracts.documents.scenario import (
    Change,
    DiurnalArrivals,
    GammaArrivals,
    Scenario,
    ScenarioSpec,
    ScheduledFault,
)
from contracts.loader import load_as
from contracts.streams import stream
from faults.schedule import expand
from simulator.disturbances import compile_changes, compile_faults, compile_surges
from simulator.engine_setup import kv_tokens
from simulator.env_terms import exceedance
from simulator.pool import MeasuredPool, load_pool
from simulator.scenario import compile_scenario
from simulator.tables import is_measured
from simulator.traffic import compile_workload
from simulator.world import CompiledScenario

Split = Literal["train", "held_out", "all"]
Range = tuple[float, float]
Rng = np.random.Generator

#: Measured conditions that no training episode is about; ``e5-heldout.yaml`` is made of them.
RESERVED = (
    "requantise-w5", "requantise-w4-head", "noise-0.05-all-layers", "noise-0.1-one-layer",
    "noise-0.3-one-layer", "regression-kv-e4m3", "bit-flips-1-exponent-seed2",
)  # fmt: skip
#: Attempts to find an episode of the wanted split.
_MOST_DRAWS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeSpace:
    """What episodes are drawn from. Ranges are (low, high), drawn evenly unless stated.

    rate_ratio: offered rate over the base scenario's. calm_share: episodes without a fault.
    second_share: episodes with a second fault. change_share: episodes with an ordinary change.
    away_share: chance of each replica that is not its kernel's first to be missing.
    onset_ratio: onset of the first fault over the horizon. rise_s, period_s: of shapes.
    slow_factor, latency_ms, surge_factor: doses, drawn evenly in the logarithm. http_error_ratio,
    kv_held_ratio, trace_missing_ratio: doses. scrape_interval_s, scrape_loss_ratio: telemetry quality.
    held_out_ratio: share of families that are held out; reserved: conditions whose families all are.
    """

    rate_ratio: Range = (0.6, 1.2)
    calm_share: float = 0.15
    second_share: float = 0.1
    change_share: float = 0.25
    away_share: float = 0.1
    onset_ratio: Range = (0.1, 0.5)
    rise_s: Range = (30.0, 150.0)
    period_s: Range = (30.0, 120.0)
    slow_factor: Range = (1.5, 8.0)
    latency_ms: Range = (200.0, 20000.0)
    surge_factor: Range = (1.3, 2.5)
    http_error_ratio: Range = (0.02, 0.8)
    kv_held_ratio: Range = (0.5, 0.995)
    trace_missing_ratio: Range = (0.05, 1.0)
    scrape_interval_s: Range = (1.0, 10.0)
    scrape_loss_ratio: Range = (0.0, 0.2)
    held_out_ratio: float = 0.2
    reserved: tuple[str, ...] = RESERVED

    def __post_init__(self) -> None:
        for name in ("calm_share", "second_share", "change_share", "away_share", "held_out_ratio"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"{name}: expected a ratio in 0..1, got {getattr(self, name)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """The scenario that episodes vary, loaded once.

    shares: ``simulator.env_terms.exceedance``. menu: (kind, kernel, condition) of every measured fault.
    """

    spec: ScenarioSpec
    file: str
    pool: MeasuredPool
    compiled: CompiledScenario
    shares: NDArray[np.float64]
    menu: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """One drawn episode. family: names of its faults without numbers, sorted; empty for a calm one."""

    scenario: CompiledScenario
    family: tuple[str, ...] = field(default=())
    held_out: bool = False


def load_base(path: Path | str, horizon_s: float | None = None) -> Base:
    """The base scenario at ``path``; its own faults and changes are left out."""
    document = load_as(Scenario, path)
    horizon_s = document.spec.horizon_s if horizon_s is None else horizon_s
    quiet = {"faults": (), "changes": (), "horizon_s": horizon_s}
    document = document.model_copy(update={"spec": document.spec.model_copy(update=quiet)})
    spec, file = document.spec, str(path)
    pool, compiled = load_pool(spec, file), compile_scenario(document, file)
    menu = tuple(
        (condition.fault, kernel.entry.name, condition.name)
        for kernel in pool.kernels
        for condition in kernel.profile.spec.conditions
        if condition.fault in ("requantise", "noise", "bit_flips", "kernel_regression")
        and is_measured(kernel.samples, condition.name)
    )
    shares = exceedance(compiled, pool)
    return Base(spec=spec, file=file, pool=pool, compiled=compiled, shares=shares, menu=menu)


def draw_episode(
    base: Base, space: EpisodeSpace, seed: int, fleet: int, episode: int, split: Split = "all"
) -> Episode:
    """The episode number ``episode`` of ``fleet``; equal arguments give equal episodes.

    Raises ValueError where no family of the wanted split can be drawn.
    """
    for attempt in range(_MOST_DRAWS):
        rng = stream(seed, "randomise-faults", fleet, episode, attempt)
        faults, family = _faults(base, space, rng)
        held_out = any(is_held_out(name, space.held_out_ratio, space.reserved) for name in family)
        if split == "all" or held_out == (split == "held_out"):
            scenario = _compiled(base, space, faults, seed, fleet, episode)
            return Episode(scenario=scenario, family=family, held_out=held_out)
    raise ValueError(f"split: expected one that some family belongs to, got {split!r} with {space}")


def family_of(fault: ScheduledFault) -> str:
    """Family of a scheduled fault: kind, kernel, condition, shape and target, without numbers."""
    target = fault.target
    kernel = target.kernel or (target.kernels or ("",))[0]
    where = "replica" if target.replica is not None else "zone" if target.zone else "kernel"
    where = "several" if target.kernels else where
    if fault.kind == "load_surge":
        kernel, where = "", "arrivals"
    return "|".join((fault.kind, kernel, fault.condition or "", fault.shape, where))


def is_held_out(name: str, ratio: float, reserved: tuple[str, ...] = ()) -> bool:
    """Whether the fault family ``name`` is held out: of a reserved condition, or by the hash of its name."""
    if name.split("|")[2] in reserved:
        return True
    digest = hashlib.sha256(name.encode()).digest()
    return int.from_bytes(digest[:8], "big") < ratio * 2.0**64


def _compiled(
    base: Base, space: EpisodeSpace, faults: tuple[ScheduledFault, ...], seed: int, fleet: int, episode: int
) -> CompiledScenario:
    work_rng, pool_rng, seen_rng, change_rng = (
        stream(seed, f"randomise-{name}", fleet, episode)
        for name in ("workload", "pool", "telemetry", "changes")
    )
    spec = base.spec.model_copy(
        update={
            "faults": faults,
            "changes": _changes(base, space, change_rng),
            "workload": base.spec.workload.model_copy(update=_workload(base, space, work_rng)),
        }
    )
    seen = base.spec.telemetry.model_copy(
        update={
            "scrape_interval_s": _between(seen_rng, space.scrape_interval_s),
            "scrape_loss_ratio": _between(seen_rng, space.scrape_loss_ratio),
        }
    )
    whole = base.compiled
    plans = compile_faults(spec, whole.layout, base.pool, whole.tables, base.file)
    surges = compile_surges(spec)
    return replace(
        whole,
        workload=compile_workload(
            spec, whole.layout, whole.prompts, surges, kv_tokens(whole.engine), base.file
        ),
        telemetry=seen,
        absent=_absent(whole, space, pool_rng),
        plans=plans,
        fault_changes=expand(plans, spec.horizon_s),
        changes=compile_changes(spec, whole.layout, base.pool, base.file),
        surges=surges,
    )


# ---------------------------------------------------------------- workload, pool, changes


def _workload(base: Base, space: EpisodeSpace, rng: Rng) -> dict[str, Any]:
    """Rate, arrival process, slice mix and sessions; token lengths stay, capacities stand on them."""
    work = base.spec.workload
    shares = rng.dirichlet([20.0 * entry.share + 1e-3 for entry in work.slice_mix])
    mix = tuple(
        entry.model_copy(update={"share": float(share)})
        for entry, share in zip(work.slice_mix, shares, strict=True)
    )
    drawn: dict[str, Any] = {
        "rate_rps": work.rate_rps * _between(rng, space.rate_ratio),
        "slice_mix": mix,
        "session_share": float(rng.random()) * 0.6,
    }
    if work.trace_uri is not None:
        return drawn
    kind = ("poisson", "gamma", "diurnal")[int(rng.integers(3))]
    gap_cv, wave, phase = 1.0 + rng.random(), 0.3 * rng.random(), rng.random()
    period_s = base.spec.horizon_s
    return drawn | {
        "arrivals": kind,
        "gamma": GammaArrivals(gap_cv=gap_cv),
        "diurnal": DiurnalArrivals(amplitude_ratio=wave, period_s=period_s, phase_s=phase * period_s),
        "surge": None,
    }


def _absent(whole: CompiledScenario, space: EpisodeSpace, rng: Rng) -> NDArray[np.bool_]:
    """Bool [R]: replicas that this fleet does not have; the first of every kernel stays."""
    owner = whole.layout.replica_kernel
    first = np.concatenate([[True], owner[1:] != owner[:-1]])
    return np.asarray(whole.absent | ((rng.random(owner.size) < space.away_share) & ~first))


def _changes(base: Base, space: EpisodeSpace, rng: Rng) -> tuple[Change, ...]:
    horizon_s, happens = base.spec.horizon_s, rng.random() < space.change_share
    at_s, place = float(rng.random()) * 0.6 * horizon_s, int(rng.integers(len(base.pool.kernels)))
    which, size = int(rng.integers(4)), float(rng.random())
    kernel = base.pool.kernels[place].entry.name
    changes = (
        Change(kind="rolling_restart", at_s=at_s, kernel=kernel, cold_start_s=5.0 + 20.0 * size),
        Change(kind="cache_flush", at_s=at_s, kernel=kernel),
        Change(kind="surge", at_s=at_s, duration_s=30.0 + 60.0 * size, factor=1.2 + 0.6 * size),
        Change(kind="lost_scrapes", at_s=at_s, kernel=kernel, duration_s=20.0 + 60.0 * size, ratio=1.0),
    )
    return (changes[which],) if happens else ()


# ---------------------------------------------------------------- faults

_FREE = (
    "slow", "hang", "crash", "kv_pressure", "http_errors", "latency", "telemetry_loss",
    "trace_fields_missing", "wrong_fingerprint", "load_surge",
)  # fmt: skip
_SUDDEN = ("hang", "crash", "telemetry_loss", "wrong_fingerprint")


def _faults(base: Base, space: EpisodeSpace, rng: Rng) -> tuple[tuple[ScheduledFault, ...], tuple[str, ...]]:
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
            "name": name, "kind": kind, "target": target, "condition": condition,
            "dose": _dose(kind, space, rng), "shape": shape, **block,
            "onset_s": base.spec.horizon_s * _between(rng, space.onset_ratio),
        }
    )  # fmt: skip
    if kind == "crash" and rng.random() < 0.5:
        fault = fault.model_copy(update={"duration_s": 10.0 + 60.0 * float(rng.random())})
    return fault, family_of(fault)


def _what(base: Base, rng: Rng, *, numeric: bool) -> tuple[str, str, str | None]:
    """Kind, kernel and condition; kernels that are some slice's home are struck more often."""
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
    """Two kernels that share a measured condition, in one of ten cases where there are such; else none."""
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
    draw, rise_s, period_s = rng.random(), _between(rng, space.rise_s), _between(rng, space.period_s)
    duty_ratio = 0.3 + 0.4 * float(rng.random())
    if sudden or draw < 0.5:
        return "step", {}
    if draw < 0.7:
        return "ramp", {"ramp": {"rise_s": rise_s}}
    if draw < 0.85:
        return "slow_onset", {"slow_onset": {"rise_s": rise_s}}
    return "intermittent", {"intermittent": {"period_s": period_s, "duty_ratio": duty_ratio}}


def _dose(kind: str, space: EpisodeSpace, rng: Rng) -> float | None:
    """A free dose, None where the condition is the dose or the kind has none."""
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
        low, high = logarithmic[kind]
        return float(low * (high / low) ** u)
    return None


def _between(rng: Rng, bounds: Range) -> float:
    return bounds[0] + (bounds[1] - bounds[0]) * float(rng.random())
