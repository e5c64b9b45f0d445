"""Fleets with home kernels exactly at their certified limit: the hardest null for a detector."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.contract import CompiledContract
from contracts.telemetry import Source
from controller.detect.clauses import ClausePlan, plan_clauses
from simulator.world.compiled_scenario import CompiledScenario
from simulator.world.tables import KernelTable

Floats = NDArray[np.float64]


def at_limit(scenario: CompiledScenario) -> CompiledScenario:
    """``scenario`` with home kernels exactly at their limit while healthy: the null without slack.

    For each home kernel, the values on each slice are scaled by one factor until the worst of their probe
    clauses is at its limit. Other kernels stay as measured, so that failover targets exist.
    """
    homes = set(scenario.home.tolist())
    plan = plan_clauses(scenario.contract)
    tables = tuple(
        _at_limit(table, scenario, plan) if kernel in homes else table
        for kernel, table in enumerate(scenario.tables)
    )
    return replace(scenario, tables=tables)


def _at_limit(table: KernelTable, scenario: CompiledScenario, plan: ClausePlan) -> KernelTable:
    probe = table.probe.copy()
    for place in range(len(scenario.layout.slices)):
        mine = scenario.prompts.probe_of(place)
        factor = limit_factor(table.probe[0, mine, 0], place, scenario.contract, plan)
        probe[:, mine] *= factor
    return replace(table, probe=probe)


def limit_factor(values: Floats, place: int, contract: CompiledContract, plan: ClausePlan) -> float:
    """Largest factor at which ``values`` [n, M] of a slice's prompts still keep every clause."""
    watched = (contract.source == Source.PROBE) & contract.applies[:, place] & ~plan.mirrored
    clauses = np.flatnonzero(watched).tolist()
    low, high = 0.0, 1e6
    for _ in range(60):
        middle = float(np.sqrt(max(low, 1e-6) * high))
        worst = max(_over_limit(values[:, contract.column[c]] * middle, c, contract, plan) for c in clauses)
        low, high = (middle, high) if worst <= 1.0 else (low, middle)
    return low


def _over_limit(values: Floats, clause: int, contract: CompiledContract, plan: ClausePlan) -> float:
    """Mean of the clause's observations divided by its limit."""
    if plan.is_rate[clause]:
        over = contract.sense[clause] * (values - contract.threshold[clause]) > 0.0
        return float(over.mean() / max(plan.null_mean[clause], 1e-12))
    return float(np.minimum(values, plan.clip[clause]).mean() / plan.null_mean[clause])
