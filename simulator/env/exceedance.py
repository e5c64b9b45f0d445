"""How often traffic breaks each clause, as measured of every kernel and condition."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.contract import CompiledContract
from contracts.telemetry import Source
from simulator.world.compiled_scenario import CompiledScenario
from simulator.world.pool import MeasuredPool
from simulator.world.tables import clause_broken, share_beyond


def exceedance(scenario: CompiledScenario, pool: MeasuredPool) -> NDArray[np.float64]:
    """Share of a slice's traffic prompts beyond the clause, float64 [K, Q, S, C], as measured.

    For a mean clause 1 where the mean over the prompts breaks it, else 0; 0 for clauses that probes do not
    judge. Conditions in the order of the kernel tables, missing doses repeating the last.
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
