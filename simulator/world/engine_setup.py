"""Set-up of a scenario's request engine: limits, step times, capacities, shares of load."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.contract import CompiledContract, FleetLayout
from contracts.compiled.steady_state import Demand, EngineModel, capacities_rps, probe_share
from contracts.documents.pool import EngineLimits
from contracts.documents.scenario import ScenarioSpec
from contracts.units import MS_PER_S
from simulator.engine.spec import EngineSpec
from simulator.engine.validate import check_spec
from simulator.world.kernel_measurements import profile_refusal
from simulator.world.pool import MeasuredPool
from simulator.world.tables import KernelTable, PromptRoles


def step_models(
    spec: ScenarioSpec, pool: MeasuredPool, prompts: PromptRoles, file: str
) -> NDArray[np.float64]:
    """Step-time coefficients for traffic in the presence of probes, float64 [K, 4] seconds.

    Probes run on the replicas; the time they take is modelled as a uniformly longer step for traffic. A probe
    rate that takes half of a replica or more is refused.
    """
    measured = np.stack([kernel.step_model for kernel in pool.kernels])
    share = probe_share(measured, spec.telemetry.probes_per_s, prompts.mean_probe_tokens)
    worst = int(np.argmax(share))
    if share[worst] >= 0.5:
        raise profile_refusal(
            file,
            "spec.telemetry.probes_per_s",
            "probes below half of a replica's time",
            f"{100 * share[worst]:.0f} % of {pool.kernels[worst].entry.name}",
            "probe less often",
        )
    return np.asarray(measured / (1.0 - share)[:, None])


def demand_of(spec: ScenarioSpec) -> Demand:
    """The mean request of the workload; if it drifts, over the whole episode."""
    work, drift = spec.workload, spec.workload.drift
    prompt, output = (1.0, 1.0) if drift is None else (drift.prompt_factor, drift.output_factor)
    return Demand(
        prompt_tokens=work.prompt_tokens.mean * (1.0 + prompt) / 2.0,
        output_tokens=work.output_tokens.mean * (1.0 + output) / 2.0,
    )


def declared_demand(spec: ScenarioSpec) -> Demand:
    """The mean request that the controller is told: as declared, or else the distributions' means."""
    work = spec.workload
    told = work.declared
    if told is not None:
        return Demand(prompt_tokens=told.prompt_tokens, output_tokens=told.output_tokens)
    return Demand(prompt_tokens=work.prompt_tokens.mean, output_tokens=work.output_tokens.mean)


def absent_replicas(layout: FleetLayout, pool: MeasuredPool) -> NDArray[np.bool_]:
    """Bool [R]: replicas that only a scale-up adds."""
    absent = np.zeros(len(layout.replicas), dtype=np.bool_)
    for index, kernel in enumerate(pool.kernels):
        own = np.flatnonzero(layout.replica_kernel == index)
        absent[own[kernel.entry.replicas :]] = True
    return absent


def _limits(pool: MeasuredPool) -> EngineLimits:
    first = pool.kernels[0].entry.limits
    for kernel in pool.kernels:
        mine = kernel.entry.limits
        for name in ("max_sequences", "max_batch_tokens", "block_tokens"):
            if getattr(mine, name) != getattr(first, name):
                raise profile_refusal(
                    pool.file,
                    f"spec.kernels[{kernel.entry.name}].limits.{name}",
                    f"{getattr(first, name)} as in the first kernel",
                    str(getattr(mine, name)),
                    "only kv_blocks may differ between the kernels of a simulated pool",
                )
    return first


def engine_spec(
    spec: ScenarioSpec,
    pool: MeasuredPool,
    contract: CompiledContract,
    layout: FleetLayout,
    step_model: NDArray[np.float64],
    tables: tuple[KernelTable, ...],
) -> EngineSpec:
    """The request engine's spec; refuses limits that differ between kernels or cannot be used."""
    limits = _limits(pool)
    slices = len(layout.slices)
    hard = np.asarray((contract.applies & contract.hard[:, None]).any(axis=0))
    engine = EngineSpec(
        replica_kernel=layout.replica_kernel,
        step_model=step_model,
        request_delay_s=_delays_s(pool),
        kv_blocks=np.array([kernel.entry.limits.kv_blocks for kernel in pool.kernels], dtype=np.int64),
        timeout_s=np.full(slices, spec.gateway.timeout_s),
        slo_ms=contract.slo_ms,
        histogram_edges_ms=layout.edges_ms,
        quality=padded([table.quality for table in tables]),
        hard_slices=hard,
        max_batch=limits.max_sequences,
        token_budget=limits.max_batch_tokens,
        block_tokens=limits.block_tokens,
        queue_limit=spec.gateway.queue_limit,
        max_attempts=spec.gateway.max_attempts,
        sticky=spec.gateway.sticky,
    )
    try:
        check_spec(engine)
    except ValueError as error:
        raise profile_refusal(
            pool.file,
            "spec.kernels",
            "limits and step times an engine can run with",
            str(error),
            "correct the limits of the pool or measure the profile again",
        ) from None
    return engine


def _delays_s(pool: MeasuredPool) -> tuple[float, ...]:
    """Delay that serving adds to the requests of each kernel, [K]; empty if it was measured for none."""
    delays_s = tuple(kernel.request_delay_s for kernel in pool.kernels)
    return delays_s if any(delays_s) else ()


def kv_tokens(engine: EngineSpec) -> int:
    """Tokens that the smallest replica's KV cache holds."""
    return int(engine.kv_blocks.min()) * engine.block_tokens


def engine_model(
    spec: ScenarioSpec, pool: MeasuredPool, contract: CompiledContract, step_model: NDArray[np.float64]
) -> EngineModel:
    """The certified engine model of the pool, for the request that the workload declares."""
    whole_s, first_s, gap_s = (float(each) / MS_PER_S for each in contract.slo_ms.min(axis=0))
    limits = [kernel.entry.limits for kernel in pool.kernels]
    work = spec.workload
    longest = float(work.prompt_tokens.max_tokens), float(work.output_tokens.max_tokens)
    return EngineModel(
        step_s=step_model,
        sequences=np.array([float(each.max_sequences) for each in limits]),
        kv_tokens=np.array([float(each.kv_blocks * each.block_tokens) for each in limits]),
        inter_token_s=gap_s,
        first_token_s=first_s,
        whole_s=whole_s,
        step_tokens=float(max(each.max_batch_tokens for each in limits)),
        longest=Demand(prompt_tokens=longest[0], output_tokens=longest[1]),
        demand=declared_demand(spec),
        request_s=_delays_s(pool),
    )


def capacities(pool: MeasuredPool, model: EngineModel) -> NDArray[np.float64]:
    """Requests per second of one replica of each kernel: what the pool states, or else derived."""
    derived = capacities_rps(model.step_s, model, model.demand)
    stated = [kernel.entry.capacity_rps for kernel in pool.kernels]
    return np.array([own or model_rps for own, model_rps in zip(stated, derived, strict=True)])


def fair_share(
    spec: ScenarioSpec, layout: FleetLayout, home: NDArray[np.int64], absent: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Requests per second per replica of each kernel while every slice is at home, float64 [K]."""
    kernels = len(layout.kernels)
    shares = {entry.slice: entry.share for entry in spec.workload.slice_mix}
    total = sum(shares.values())
    rates = np.zeros(kernels)
    for index, name in enumerate(layout.slices):
        rates[home[index]] += spec.workload.rate_rps * shares.get(name, 0.0) / total
    counts = np.bincount(layout.replica_kernel[~absent], minlength=kernels)
    return np.asarray(rates / np.maximum(counts, 1))


def padded(blocks: list[NDArray[Any]]) -> NDArray[Any]:
    """Stack per-kernel tables of different condition counts; missing doses repeat the last measured one."""
    deepest = max(block.shape[0] for block in blocks)
    return np.stack([np.concatenate([b, np.repeat(b[-1:], deepest - b.shape[0], axis=0)]) for b in blocks])
