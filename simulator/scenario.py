"""Documents to a compiled scenario: pool, measured profiles, contract, faults and changes.

Rules across documents are checked on the way, each refusal naming file, path, expectation and next step.
Step times are used as measured; nothing is rescaled to another machine.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from contracts.compile import compile_contract
from contracts.compiled import CompiledContract
from contracts.documents.pool import EngineLimits
from contracts.documents.scenario import Scenario, ScenarioSpec
from contracts.layout import FleetLayout
from contracts.loader import document_sha256, load_as
from faults.schedule import expand
from simulator.capacity import Demand, batch_limit, capacity_rps
from simulator.disturbances import compile_changes, compile_faults, compile_surges, extra_replicas
from simulator.engine_records import EngineSpec
from simulator.engine_validate import check_spec
from simulator.pool import MeasuredPool, layout_of, load_pool, refuse
from simulator.probes import probe_share
from simulator.tables import KernelTable, build_table, plan_prompts
from simulator.traffic import compile_workload
from simulator.world import CompiledScenario


def load_scenario(path: Path | str) -> CompiledScenario:
    """Compile the scenario at ``path`` with everything it refers to; DocumentError for bad input."""
    return compile_scenario(load_as(Scenario, path), str(path))


def compile_scenario(scenario: Scenario, file: str) -> CompiledScenario:
    """Compile ``scenario``, whose URIs are relative to ``file``."""
    spec = scenario.spec
    pool = load_pool(spec, file)
    layout = layout_of(pool, extra_replicas(spec))
    _check_workload(spec, layout, file)
    contract = compile_contract(pool.contract, layout)
    prompts = plan_prompts(pool.kernels[0].samples, layout.slices, pool.prompt_tokens)
    tables = tuple(
        build_table(kernel.samples, prompts, layout.probe_metrics, contract) for kernel in pool.kernels
    )
    coefficients = np.stack([kernel.step_model for kernel in pool.kernels])
    share = probe_share(coefficients, spec.telemetry.probes_per_s, prompts.mean_probe_tokens)
    _check_share(share, layout, file)
    # Probes run on the replicas: what they take is missing to traffic, as a uniformly longer step.
    loaded = coefficients / (1.0 - share)[:, None]
    demand = Demand(
        prompt_tokens=spec.workload.prompt_tokens.mean, output_tokens=spec.workload.output_tokens.mean
    )
    home = np.array([pool.home_of(name) for name in layout.slices], dtype=np.int64)
    absent = _absent(layout, pool)
    plans = compile_faults(spec, layout, pool, tables, file)
    surges = compile_surges(spec)
    engine = _engine(spec, pool, contract, layout, loaded, tables)
    return CompiledScenario(
        name=scenario.metadata.name,
        sha256=document_sha256(scenario),
        layout=layout,
        contract=contract,
        horizon_s=spec.horizon_s,
        tick_s=spec.tick_s,
        workload=compile_workload(spec, layout, prompts, surges, _kv_tokens(engine), file),
        telemetry=spec.telemetry,
        engine=engine,
        coefficients=coefficients,
        prompts=prompts,
        tables=tables,
        violating=_padded([table.violating for table in tables]),
        capacity_rps=_capacities(pool, contract, loaded, demand),
        home=home,
        demand=demand,
        fair_rps=_fair_share(spec, layout, home, absent),
        absent=absent,
        probe_share=share,
        profile_sha256=tuple(document_sha256(kernel.profile) for kernel in pool.kernels),
        plans=plans,
        fault_changes=expand(plans, spec.horizon_s),
        changes=compile_changes(spec, layout, pool, file),
        surges=surges,
    )


def _check_workload(spec: ScenarioSpec, layout: FleetLayout, file: str) -> None:
    for entry in spec.workload.slice_mix:
        if entry.slice not in layout.slices:
            raise refuse(
                file, "spec.workload.slice_mix", " or ".join(layout.slices), repr(entry.slice),
                "name a slice of the contract",
            )  # fmt: skip
    if not sum(entry.share for entry in spec.workload.slice_mix) > 0.0:
        raise refuse(file, "spec.workload.slice_mix", "some share above 0", "all 0", "give a share")
    ticks = spec.horizon_s / spec.tick_s
    if abs(ticks - round(ticks)) > 1e-9 or round(ticks) < 1:
        raise refuse(
            file,
            "spec.horizon_s",
            "a whole number of ticks",
            f"{ticks:g} ticks",
            "align horizon_s and tick_s",
        )


def _check_share(share: NDArray[np.float64], layout: FleetLayout, file: str) -> None:
    worst = int(np.argmax(share))
    if share[worst] >= 0.5:
        raise refuse(
            file, "spec.telemetry.probes_per_s", "probes below half of a replica's time",
            f"{100 * share[worst]:.0f} % of {layout.kernels[worst]}", "probe less often",
        )  # fmt: skip


def _absent(layout: FleetLayout, pool: MeasuredPool) -> NDArray[np.bool_]:
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
                raise refuse(
                    pool.file, f"spec.kernels[{kernel.entry.name}].limits.{name}",
                    f"{getattr(first, name)} as in the first kernel", str(getattr(mine, name)),
                    "only kv_blocks may differ between the kernels of a simulated pool",
                )  # fmt: skip
    return first


def _engine(
    spec: ScenarioSpec,
    pool: MeasuredPool,
    contract: CompiledContract,
    layout: FleetLayout,
    step_model: NDArray[np.float64],
    tables: tuple[KernelTable, ...],
) -> EngineSpec:
    limits = _limits(pool)
    slices = len(layout.slices)
    hard = np.asarray((contract.applies & contract.hard[:, None]).any(axis=0))
    engine = EngineSpec(
        replica_kernel=layout.replica_kernel,
        step_model=step_model,
        kv_blocks=np.array([kernel.entry.limits.kv_blocks for kernel in pool.kernels], dtype=np.int64),
        timeout_s=np.full(slices, spec.gateway.timeout_s),
        slo_ms=contract.slo_ms,
        quality=_padded([table.quality for table in tables]),
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
        raise refuse(
            pool.file, "spec.kernels", "limits and step times an engine can run with", str(error),
            "correct the limits of the pool or measure the profile again",
        ) from None  # fmt: skip
    return engine


def _kv_tokens(engine: EngineSpec) -> int:
    """Tokens that the smallest replica's KV cache holds."""
    return int(engine.kv_blocks.min()) * engine.block_tokens


def _capacities(
    pool: MeasuredPool, contract: CompiledContract, step_model: NDArray[np.float64], demand: Demand
) -> NDArray[np.float64]:
    """Requests per second of one replica of each kernel, or what the pool states."""
    finite = contract.slo_ms[:, 2][np.isfinite(contract.slo_ms[:, 2])]
    inter_token_s = float(finite.min()) / 1000.0 if finite.size else float("inf")
    capacities = []
    for kernel, coefficients in zip(pool.kernels, step_model, strict=True):
        limits = kernel.entry.limits
        limit = batch_limit(demand, limits.max_sequences, float(limits.kv_blocks * limits.block_tokens))
        derived = capacity_rps(coefficients, demand, limit, inter_token_s)
        capacities.append(kernel.entry.capacity_rps or derived)
    return np.array(capacities)


def _fair_share(
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


def _padded(blocks: list[NDArray[np.generic]]) -> NDArray:  # type: ignore[type-arg]
    """Stack per-kernel tables of different condition counts; missing rungs repeat the last measured one."""
    deepest = max(block.shape[0] for block in blocks)
    return np.stack([np.concatenate([b, np.repeat(b[-1:], deepest - b.shape[0], axis=0)]) for b in blocks])
