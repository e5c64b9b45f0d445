"""Small fleets, arrivals and action scripts that drive the engine and its oracle alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.engine.api import FleetEngine
from simulator.engine.requests import RequestArrivals
from simulator.engine.spec import EngineEffect, EngineSpec
from tests.reference.engine_oracle import Oracle

#: Step models in s like a 7B model's: base, per prefill token, per decode, per context token.
STEP_MODEL = np.array(
    [(8e-3, 9.3e-5, 3e-5, 3.3e-7), (7e-3, 8.5e-5, 2.8e-5, 3.0e-7), (9.5e-3, 10.5e-5, 3.2e-5, 3.6e-7)]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One call at one time: a method of both engines, and its arguments after the fleet."""

    at_s: float
    call: str
    args: tuple[object, ...] = ()


def make_spec(*, replicas: int = 6, kernels: int = 3, slices: int = 2, **changes: Any) -> EngineSpec:
    """A fleet of a few replicas per kernel; any field of ``EngineSpec`` may be overridden."""
    spec = EngineSpec(
        replica_kernel=np.arange(replicas) % kernels,
        step_model=STEP_MODEL[np.arange(kernels) % 3],
        kv_blocks=np.full(kernels, 2000),
        timeout_s=np.full(slices, 60.0),
        slo_ms=np.full((slices, 3), 1500.0),
        quality=np.random.default_rng(7).random((kernels, 4, 50)),
        hard_slices=np.arange(slices) % 2 == 0,
        session_slots=64,
    )
    return replace(spec, **changes)


def make_arrivals(
    spec: EngineSpec, n: int, rate_rps: float, seed: int = 0, *, sessions: int = 0, start_s: float = 0.0
) -> RequestArrivals:
    """``n`` Poisson arrivals with log-normal lengths (512 and 128 tokens on average)."""
    rng = np.random.default_rng(seed)
    sigma = 0.8
    prompt = rng.lognormal(np.log(512) - sigma**2 / 2, sigma, n).clip(8, 4096).astype(np.int64)
    output = rng.lognormal(np.log(128) - sigma**2 / 2, sigma, n).clip(1, 1024).astype(np.int64)
    session = rng.integers(-1, sessions, n) if sessions else np.full(n, -1)
    return RequestArrivals(
        arrived_at_s=start_s + np.cumsum(rng.exponential(1.0 / rate_rps, n)),
        slice=rng.integers(0, spec.slices, n),
        prompt_tokens=prompt,
        output_tokens=output,
        session=session,
        prompt=rng.integers(0, spec.quality.shape[2], n),
        uniforms=rng.random((n, 4)),
    )


def even_table(spec: EngineSpec) -> NDArray[np.float64]:
    """Every kernel the same weight, nothing shed; [S, K + 1]."""
    table = np.full((spec.slices, spec.kernels + 1), 1.0 / spec.kernels)
    table[:, -1] = 0.0
    return table


def run_engine(
    spec: EngineSpec,
    arrivals: RequestArrivals,
    acts: Sequence[Act],
    until_at_s: float,
    *,
    cuts: Sequence[float] = (),
    batch: int = 1,
    fleet: int = 0,
    engine: FleetEngine | None = None,
) -> FleetEngine:
    """The engine after ``until_at_s``; ``cuts`` are extra instants at which it is advanced."""
    engine = engine or FleetEngine(spec, batch, keep_requests=True)
    engine.set_table(np.repeat(even_table(spec)[None], batch, axis=0))
    engine.feed(fleet, arrivals)
    for act in sorted([*acts, *(Act(at_s=c, call="") for c in cuts)], key=lambda act: act.at_s):
        engine.advance_one(fleet, act.at_s)
        if act.call:
            apply_act(engine, act, batch, fleet)
    engine.advance_one(fleet, until_at_s)
    return engine


def apply_act(engine: FleetEngine, act: Act, batch: int, fleet: int) -> None:
    """Array arguments get the batch axis, others the fleet in front."""
    if act.call in {"set_table", "set_rotation", "set_violating"}:
        getattr(engine, act.call)(np.repeat(np.asarray(act.args[0])[None], batch, axis=0))
    else:
        getattr(engine, act.call)(fleet, *act.args)


def run_oracle(spec: EngineSpec, arrivals: RequestArrivals, acts: Sequence[Act], until_at_s: float) -> Oracle:
    """The oracle after ``until_at_s``."""
    oracle = Oracle(spec)
    oracle.set_table(even_table(spec))
    oracle.feed(arrivals)
    for act in sorted(acts, key=lambda act: act.at_s):
        oracle.advance(act.at_s)
        getattr(oracle, act.call)(*act.args)
    oracle.advance(until_at_s)
    return oracle


def slow(factor: float, condition: int = 0, **changes: Any) -> EngineEffect:
    """A replica with steps that last ``factor`` times as long."""
    return EngineEffect(step_time_factor=factor, condition=condition, **changes)


def random_act(rng: np.random.Generator, spec: EngineSpec, at_s: float) -> Act:
    """One random call."""
    replica = int(rng.integers(spec.replicas))
    kind = int(rng.integers(6))
    if kind <= 1:
        return Act(at_s=at_s, call="set_effect", args=(replica, random_effect(rng)))
    if kind == 2:
        return Act(at_s=at_s, call="crash", args=(replica,))
    if kind == 3:
        return Act(at_s=at_s, call="start", args=(replica, float(rng.uniform(0.0, 2.0))))
    if kind == 4:
        return Act(at_s=at_s, call="set_rotation", args=(rng.random(spec.replicas) < 0.8,))
    table = rng.dirichlet(np.ones(spec.kernels + 1), spec.slices)
    return Act(at_s=at_s, call="set_table", args=(table,))


def random_effect(rng: np.random.Generator) -> EngineEffect:
    """Each field changed now and then."""
    on = rng.random(7) < 0.35
    effect = EngineEffect(
        condition=int(rng.integers(4)) if on[0] else 0,
        step_time_factor=float(rng.uniform(0.5, 6.0)) if on[1] else 1.0,
        step_extra_s=float(rng.uniform(0.0, 0.05)) if on[2] else 0.0,
        hang=bool(on[3] and rng.random() < 0.5),
        kv_held_ratio=float(rng.random()) if on[4] else 0.0,
        http_error_ratio=float(rng.random()) if on[5] else 0.0,
        http_latency_s=float(rng.uniform(0.0, 1.0)) if on[6] else 0.0,
    )
    if effect.condition == 0 or rng.random() < 0.5:
        return effect
    trigger = rng.random(3) < 0.5
    return replace(
        effect,
        only_slice=int(rng.integers(2)) if trigger[0] else -1,
        after_tokens=int(rng.integers(1, 80)) if trigger[1] else 0,
        min_batch=int(rng.integers(1, 12)) if trigger[2] else 0,
    )
