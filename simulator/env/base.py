"""The base scenario that random episodes vary, loaded once, and the rate at which traffic breaks
each clause.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.contract import CompiledContract
from contracts.documents.scenario import Scenario, ScenarioSpec
from contracts.loading.loader import load_as
from contracts.telemetry import Source
from simulator.world.compiled_scenario import CompiledScenario
from simulator.world.pool import MeasuredPool, load_pool
from simulator.world.scenario import compile_scenario
from simulator.world.tables import clause_broken, is_measured, share_beyond


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """A base scenario with the measurements of its pool."""

    spec: ScenarioSpec
    file: str
    pool: MeasuredPool
    compiled: CompiledScenario
    shares: NDArray[np.float64]
    """[K, Q, S, C], ``exceedance`` of its kernels."""
    menu: tuple[tuple[str, str, str], ...]
    """Kind, kernel and condition of every measured fault."""


def load_base(path: Path | str, horizon_s: float | None = None) -> Base:
    """The base scenario at ``path``, without its own faults and changes."""
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
        and is_measured(kernel.samples, condition.name, pool.by)
    )
    shares = exceedance(compiled, pool)
    return Base(spec=spec, file=file, pool=pool, compiled=compiled, shares=shares, menu=menu)


def exceedance(scenario: CompiledScenario, pool: MeasuredPool) -> NDArray[np.float64]:
    """Share of a slice's traffic prompts beyond the clause, float64 [K, Q, S, C], as measured.

    For a mean clause it is 1 if the mean over the prompts breaks it, else 0; for clauses that probes do not
    judge it is 0. Conditions are in the order of the kernel tables; missing doses repeat the last.
    """
    contract, layout = scenario.contract, scenario.layout
    deepest = max(len(table.conditions) for table in scenario.tables)
    shares = np.zeros((len(layout.kernels), deepest, len(layout.slices), len(contract.clause_ids)))
    for kernel, table in enumerate(scenario.tables):
        samples, rows = pool.kernels[kernel].samples, scenario.prompts.traffic
        values = np.stack(
            [[samples.prompt_values(m, q, rows) for m in layout.probe_metrics] for q in table.conditions]
        )
        for clause in np.flatnonzero(contract.source == int(Source.PROBE)):
            for part in np.flatnonzero(contract.applies[clause]):
                mine = values[:, contract.column[clause], scenario.prompts.traffic_slice == part]
                shares[kernel, : len(values), part, clause] = _share(mine, contract, int(clause))
        shares[kernel, len(values) :] = shares[kernel, len(values) - 1]
    return shares


def _share(values: NDArray[np.float64], contract: CompiledContract, clause: int) -> NDArray[np.float64]:
    if contract.is_rate[clause]:
        return share_beyond(values, contract, clause)
    return clause_broken(values, contract, clause).astype(np.float64)
