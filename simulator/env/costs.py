"""Costs of the clauses, computed from the ground truth of a tick (definition in
``contracts.scoring.reward``).

A probe-judged clause counts the measured share of the slice's traffic prompts that break it under the
replica's condition, so the cost is an expectation over the prompts.

Axes: B fleets, R replicas, S slices, C clauses, K kernels, Q conditions; J: most clauses of one slice.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.contract import CompiledContract
from contracts.jit import borrowed, compiled
from contracts.telemetry import Source
from simulator.engine.counters import ANSWERED, FIRST_REASON, SLO_MISSED
from simulator.world.compiled_scenario import CompiledScenario

_PROBE, _LATENCY, _FAILED = int(Source.PROBE), int(Source.LATENCY), int(Source.FAILED)
_FINGERPRINT, _TRACE_FIELDS = int(Source.FINGERPRINT), int(Source.TRACE_FIELDS)
_KV_USED = int(Source.KV_USED)


class CostClauses(NamedTuple):
    """The clauses by which answers are judged."""

    judged: NDArray[np.int64]  # [S, J] clauses that judge the slice's answers, filled up with -1
    told: NDArray[np.bool_]  # [S, J] an answer beyond this latency clause also misses an SLO
    source: NDArray[np.int64]  # [C]
    column: NDArray[np.int64]  # [C]
    edge: NDArray[np.int64]  # [C] bucket of the threshold of a latency clause
    threshold: NDArray[np.float64]  # [C]
    sense: NDArray[np.float64]  # [C] 1: at most, -1: at least
    limit: NDArray[np.float64]  # [C] rho: rate limit, or budget of a mean
    applies: NDArray[np.bool_]  # [C, S]
    shares: NDArray[np.float64]  # [K, Q, S, C] traffic prompts beyond the clause
    owner: NDArray[np.int64]  # [R] kernel of each replica


class Truth(NamedTuple):
    """Ground truth of a tick."""

    cells: NDArray[np.int64]  # [B, R, S, columns]
    per_slice: NDArray[np.int64]  # [B, S, columns]
    latency_counts: NDArray[np.int32]  # [B, R, S, F, E + 1] since the start
    condition: NDArray[np.int64]  # [B, R]
    wrong_fingerprint: NDArray[np.bool_]  # [B, R]
    trace_missing: NDArray[np.float64]  # [B, R]
    kv_used: NDArray[np.float64]  # [B, R]


def cost_clauses(scenario: CompiledScenario, shares: NDArray[np.float64]) -> CostClauses:
    """The clauses of ``scenario``; ``shares``: result of ``simulator.env.base.exceedance``."""
    contract = scenario.contract
    judged = _judged(contract)
    return CostClauses(
        judged=judged,
        told=_told_by_objectives(contract, judged, scenario.layout.edges_ms),
        source=contract.source,
        column=contract.column,
        edge=contract.edge,
        threshold=contract.threshold,
        sense=contract.sense,
        limit=np.where(contract.is_rate, contract.rate_limit, contract.budget),
        applies=np.ascontiguousarray(contract.applies),
        shares=shares,
        owner=scenario.layout.replica_kernel,
    )


def _judged(contract: CompiledContract) -> NDArray[np.int64]:
    """Clauses that judge the answers of each slice, [S, J], filled up with -1."""
    by_answer = contract.applies & (contract.source <= _KV_USED)[:, None]
    judged = np.full((len(contract.slices), int(by_answer.sum(axis=0).max())), -1, dtype=np.int64)
    for part in range(len(contract.slices)):
        mine = np.flatnonzero(by_answer[:, part])
        judged[part, : mine.size] = mine
    return judged


def _told_by_objectives(
    contract: CompiledContract, judged: NDArray[np.int64], edges_ms: tuple[float, ...]
) -> NDArray[np.bool_]:
    """Bool [S, J]: an answer beyond the latency clause ``judged`` also misses an SLO of its slice."""
    told, edges = np.zeros(judged.shape, dtype=np.bool_), np.array([*edges_ms, np.inf])
    for part, place in np.argwhere(judged >= 0):
        clause = judged[part, place]
        if contract.source[clause] == _LATENCY:
            objective = contract.slo_ms[part, contract.column[clause]]
            told[part, place] = edges[contract.edge[clause]] >= objective
    return told


@compiled
def add_costs(costs, over, packed_clauses, packed_truth):
    """Add the cost of a tick to ``costs`` [B, C].

    ``over`` [B, R, S, J] keeps the number of each replica's answers beyond clause ``judged[s, j]`` since the
    start. Only cells with answers are visited, and latencies only if they can have changed: see ``told``.
    Both records are packed as plain tuples (``simulator.engine.memory``).
    """
    clauses, truth = borrowed(CostClauses(*packed_clauses)), borrowed(Truth(*packed_truth))
    batch, replicas, slices, _ = truth.cells.shape
    for b in range(batch):
        for r in range(replicas):
            for s in range(slices):
                n = truth.cells[b, r, s, ANSWERED]
                if n == 0:
                    continue
                for j in range(clauses.judged.shape[1]):
                    c = clauses.judged[s, j]
                    if c < 0:
                        break
                    if clauses.source[c] == _LATENCY:
                        exceed = float(_late(over, clauses, truth, b, r, s, j))
                    else:
                        exceed = n * _bad_share(clauses, truth, b, r, s, c)
                    costs[b, c] += exceed - clauses.limit[c] * n
        for c in range(len(clauses.source)):
            if clauses.source[c] == _FAILED:
                failed = _failed(truth.per_slice[b], clauses.applies[c])
                costs[b, c] += (1.0 - clauses.limit[c]) * failed


@compiled
def _failed(per_slice, applies):
    """Failed requests of the clause's slices."""
    total = 0.0
    for s in range(len(applies)):
        if applies[s]:
            for reason in range(FIRST_REASON, per_slice.shape[1]):
                total += per_slice[s, reason]
    return total


@compiled(inline="always")
def _late(over, clauses, truth, b, r, s, j):
    """New answers beyond latency clause ``judged[s, j]``; adds them to ``over``.

    Inlined by force: passing two records of arrays costs more than the work.
    """
    if clauses.told[s, j] and truth.cells[b, r, s, SLO_MISSED] == 0:
        return 0
    c = clauses.judged[s, j]
    beyond = _beyond(truth.latency_counts, b, r, s, clauses.column[c], clauses.edge[c])
    late = beyond - over[b, r, s, j]
    over[b, r, s, j] = beyond
    return late


@compiled
def _beyond(buckets, b, r, s, f, edge):
    """Answers of family f above bucket ``edge``; 0 for a threshold beyond every edge (-1), which is unknown.

    Indexed in place: a view of the row would cost two atomic reference counts.
    """
    total = 0
    if edge >= 0:
        for e in range(edge + 1, buckets.shape[4]):
            total += buckets[b, r, s, f, e]
    return total


@compiled(inline="always")
def _bad_share(clauses, truth, b, r, s, c):
    """Share of a replica's answers that break clause ``c``; inlined by force like ``_late``."""
    source = clauses.source[c]
    if source == _PROBE:
        return clauses.shares[clauses.owner[r], truth.condition[b, r], s, c]
    if source == _FINGERPRINT:
        return 1.0 if truth.wrong_fingerprint[b, r] else 0.0
    if source == _KV_USED:
        return 1.0 if clauses.sense[c] * (truth.kv_used[b, r] - clauses.threshold[c]) > 0.0 else 0.0
    return truth.trace_missing[b, r] if source == _TRACE_FIELDS else 0.0
