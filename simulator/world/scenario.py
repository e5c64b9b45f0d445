"""Compiles documents to a scenario: pool, measured profiles, contract, faults and changes.

Rules across documents are checked on the way; each refusal names file, path, expectation and next step.
Step times are used as measured; nothing is rescaled to another machine.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.build import compile_contract
from contracts.compiled.contract import CompiledContract, FleetLayout
from contracts.documents.scenario import Scenario, ScenarioSpec
from contracts.loading.files import canonical_sha256, sha256_of
from contracts.loading.loader import document_sha256, load_as
from contracts.loading.uris import resolve_uri
from controller.fleet import stages_of
from faults.schedule import expand
from simulator.world.at_rest import broken_in_pool
from simulator.world.compiled_scenario import CompiledScenario
from simulator.world.disturbances import compile_changes, compile_faults, compile_surges, extra_replicas
from simulator.world.engine_setup import (
    absent_replicas,
    capacities,
    demand_of,
    engine_model,
    engine_spec,
    fair_share,
    kv_tokens,
    padded,
    step_models,
)
from simulator.world.kernel_measurements import profile_refusal
from simulator.world.pool import MeasuredPool, layout_of, load_pool
from simulator.world.tables import KernelTable, PromptRoles, build_table, certified_loss, plan_prompts
from simulator.world.traffic import compile_workload


def load_scenario(path: Path | str) -> CompiledScenario:
    """Compile the scenario at ``path`` with everything it refers to; DocumentError for bad input."""
    return compile_scenario(load_as(Scenario, path), str(path))


def with_trace(scenario: Scenario, trace: Path) -> Scenario:
    """``scenario`` with the requests of ``trace`` as its arrivals, at the scenario's mean rate."""
    replay = {"arrivals": "trace", "trace_uri": str(trace.resolve())}
    others = {"gamma": None, "diurnal": None, "surge": None}
    workload = scenario.spec.workload.model_copy(update=replay | others)
    return scenario.model_copy(update={"spec": scenario.spec.model_copy(update={"workload": workload})})


def compile_scenario(scenario: Scenario, file: str) -> CompiledScenario:
    """Compile ``scenario``; its URIs are relative to ``file``."""
    spec = scenario.spec
    pool = load_pool(spec, file)
    layout = layout_of(pool, extra_replicas(spec))
    _check_workload(spec, layout, file)
    contract = compile_contract(pool.contract, layout)
    prompts = plan_prompts(pool.kernels[0].samples, layout.slices, pool.prompt_tokens)
    tables = _tables(pool, prompts, layout, contract)
    steps = step_models(spec, pool, prompts, file)
    absent, home = absent_replicas(layout, pool), _homes(pool, layout)
    plans, surges = compile_faults(spec, layout, pool, tables, file), compile_surges(spec)
    engine = engine_spec(spec, pool, contract, layout, steps, tables)
    model = engine_model(spec, pool, contract, steps)
    return CompiledScenario(
        name=scenario.metadata.name,
        sha256=document_sha256(scenario),
        layout=layout,
        contract=contract,
        horizon_s=spec.horizon_s,
        tick_s=spec.tick_s,
        workload=compile_workload(spec, layout, prompts, surges, kv_tokens(engine), file),
        telemetry=spec.telemetry,
        engine=engine,
        prompts=prompts,
        tables=tables,
        violating=padded([table.violating for table in tables]),
        capacity_rps=capacities(pool, model),
        engine_model=model,
        home=home,
        demand=demand_of(spec),
        fair_rps=fair_share(spec, layout, home, absent),
        absent=absent,
        **(_of_kernels(pool, layout) | _hashes(spec, pool, file)),
        plans=plans,
        fault_changes=expand(plans, spec.horizon_s),
        changes=compile_changes(spec, layout, pool, file),
        surges=surges,
    )


def _tables(
    pool: MeasuredPool, prompts: PromptRoles, layout: FleetLayout, contract: CompiledContract
) -> tuple[KernelTable, ...]:
    """The measurements of each kernel, [K]."""
    return tuple(
        build_table(kernel.samples, prompts, layout.probe_metrics, contract, pool.by)
        for kernel in pool.kernels
    )


def _of_kernels(pool: MeasuredPool, layout: FleetLayout) -> dict[str, Any]:
    """Facts about each kernel from its profile."""
    return {
        "profile_sha256": tuple(document_sha256(kernel.profile) for kernel in pool.kernels),
        "stage": stages_of(kernel.entry for kernel in pool.kernels),
        "at_rest": broken_in_pool(pool),
        "certified_loss": np.stack(
            [certified_loss(kernel.samples, layout.slices, pool.by) for kernel in pool.kernels]
        ),
        "measured_by": pool.by,
    }


def _hashes(spec: ScenarioSpec, pool: MeasuredPool, file: str) -> dict[str, Any]:
    """Hashes of inputs that the scenario's own hash and the profiles' hashes do not cover."""
    uri, plain = spec.workload.trace_uri, pool.spec.model_dump(mode="json", by_alias=True, exclude_none=True)
    trace = None if uri is None else sha256_of(resolve_uri(uri, file))
    return {"pool_sha256": canonical_sha256(plain), "trace_sha256": trace}


def _homes(pool: MeasuredPool, layout: FleetLayout) -> NDArray[np.int64]:
    """Kernel int64 [S] that serves each slice while everything is healthy."""
    return np.array([pool.home_of(name) for name in layout.slices], dtype=np.int64)


def _check_workload(spec: ScenarioSpec, layout: FleetLayout, file: str) -> None:
    for entry in spec.workload.slice_mix:
        if entry.slice not in layout.slices:
            raise profile_refusal(
                file,
                "spec.workload.slice_mix",
                " or ".join(layout.slices),
                repr(entry.slice),
                "name a slice of the contract",
            )
    if not sum(entry.share for entry in spec.workload.slice_mix) > 0.0:
        raise profile_refusal(file, "spec.workload.slice_mix", "some share above 0", "all 0", "give a share")
    ticks = spec.horizon_s / spec.tick_s
    if abs(ticks - round(ticks)) > 1e-9 or round(ticks) < 1:
        raise profile_refusal(
            file,
            "spec.horizon_s",
            "a whole number of ticks",
            f"{ticks:g} ticks",
            "align horizon_s and tick_s",
        )
