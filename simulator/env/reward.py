"""Reward and costs of one control tick of the environment, as defined in ``contracts.scoring.reward``.

Both are computed from the *ground truth* of the tick: they are the training signal and the score. No
observation and no decision uses them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.jit import compiled
from contracts.scoring.reward import (
    RewardWeights,
    capacity_of,
    goodput_of,
    quality_of,
    reward_of,
    soft_clauses,
)
from simulator.engine import counters as column
from simulator.engine.counters import Counters
from simulator.engine.gauges import Gauges
from simulator.env.costs import Truth, add_costs, cost_clauses
from simulator.world.board import ReplicaBoard
from simulator.world.compiled_scenario import CompiledScenario

_goodput_of, _quality_of = compiled(goodput_of), compiled(quality_of)
_capacity_of, _reward_of = compiled(capacity_of), compiled(reward_of)

#: Columns of the counts over all slices of one tick.
_OFFERED, _ANSWERED, _FAILED, _SHED, _MISSED, _EXPOSED, _TOKENS, _WORK = range(8)
_COLUMNS = 8
#: Rows of a tick's reward terms.
_REWARD, _GOODPUT, _QUALITY, _MOVED, _CAPACITY, _COST = range(6)
_ROWS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardTerms:
    """Reward terms of one tick, of B fleets. Unitless unless stated otherwise."""

    reward: NDArray[np.float64]  # [B]
    goodput: NDArray[np.float64]  # [B]
    quality: NDArray[np.float64]  # [B]
    moved: NDArray[np.float64]  # [B]
    capacity: NDArray[np.float64]  # [B]
    cost: NDArray[np.float64]
    """[B], the largest of the soft clauses."""
    costs: NDArray[np.float64]
    """[B, C]"""
    offered: NDArray[np.float64]
    """[B], requests."""
    answered: NDArray[np.float64]  # [B], requests
    failed: NDArray[np.float64]  # [B], requests
    shed: NDArray[np.float64]  # [B], requests
    slo_missed: NDArray[np.float64]  # [B], requests
    exposed: NDArray[np.float64]
    """[B], answers on hard slices from a replica that was violating when they were routed."""


class _Weights(NamedTuple):
    """Weights that turn counts into a reward."""

    quality: float
    move: float
    capacity: float
    soft: NDArray[np.bool_]  # [C] clauses with costs that count


class TermsOfTicks:
    """Reward terms of B fleets, tick by tick; keeps the last table and the latency counts so far."""

    def __init__(
        self,
        scenario: CompiledScenario,
        shares: NDArray[np.float64],
        table: NDArray[np.float64],
        weights: RewardWeights,
    ) -> None:
        self._clauses = cost_clauses(scenario, shares)
        self._packed_clauses = tuple(self._clauses)
        soft = soft_clauses(scenario.contract)
        self._packed_weights = tuple(_Weights(weights.quality, weights.move, weights.capacity, soft))
        self._work = scenario.capacity_rps.min() / scenario.capacity_rps
        self._table = table.copy()
        _, slices, replicas = scenario.layout.shape
        judged = self._clauses.judged.shape[1]
        self._over = np.zeros((table.shape[0], replicas, slices, judged), dtype=np.int32)

    def of(
        self,
        table: NDArray[np.float64],
        counters: Counters,
        gauges: Gauges,
        board: ReplicaBoard,
        latency_counts: NDArray[np.int32],
    ) -> RewardTerms:
        """Reward terms of the tick during which ``table`` float64 [B, S, K + 1] was in force."""
        truth = Truth(
            cells=counters.cells,
            per_slice=counters.per_slice,
            latency_counts=latency_counts,
            condition=board.condition,
            wrong_fingerprint=board.wrong_fingerprint,
            trace_missing=board.trace_missing,
            kv_used=gauges.kv_used_ratio,
        )
        counts = np.zeros((len(table), _COLUMNS))
        _add_up(counts, counters.cells, counters.per_slice, self._clauses.owner, self._work)
        costs = np.zeros((len(table), len(self._clauses.source)))
        add_costs(costs, self._over, self._packed_clauses, tuple(truth))
        worth = np.empty((_ROWS, len(table)))
        _weigh(worth, counts, counters.excess_tv_tokens, table, self._table, costs, self._packed_weights)
        np.copyto(self._table, table)
        return RewardTerms(
            reward=worth[_REWARD],
            goodput=worth[_GOODPUT],
            quality=worth[_QUALITY],
            moved=worth[_MOVED],
            capacity=worth[_CAPACITY],
            cost=worth[_COST],
            costs=costs,
            offered=counts[:, _OFFERED],
            answered=counts[:, _ANSWERED],
            failed=counts[:, _FAILED],
            shed=counts[:, _SHED],
            slo_missed=counts[:, _MISSED],
            exposed=counts[:, _EXPOSED],
        )


@compiled
def _add_up(counts, cells, per_slice, owner, work):
    """Sum the counts of each fleet over slices and replicas; ``work`` [K]: accelerator time of an answer."""
    for b in range(cells.shape[0]):
        for s in range(cells.shape[2]):
            counts[b, _OFFERED] += per_slice[b, s, column.OFFERED]
            counts[b, _SHED] += per_slice[b, s, column.SHED_COUNT]
            for reason in range(column.FIRST_REASON, per_slice.shape[2]):
                counts[b, _FAILED] += per_slice[b, s, reason]
        for r in range(cells.shape[1]):
            answered = 0
            for s in range(cells.shape[2]):
                answered += cells[b, r, s, column.ANSWERED]
                counts[b, _MISSED] += cells[b, r, s, column.SLO_MISSED]
                counts[b, _EXPOSED] += cells[b, r, s, column.EXPOSED]
                counts[b, _TOKENS] += cells[b, r, s, column.TOKENS]
            counts[b, _ANSWERED] += answered
            counts[b, _WORK] += answered * work[owner[r]]


@compiled
def _weigh(worth, counts, excess_tv, table, last, costs, packed_weights):
    """Compute the reward terms of each fleet's tick, ``worth`` [_ROWS, B]."""
    weights = _Weights(*packed_weights)
    for b in range(table.shape[0]):
        ended = counts[b, _ANSWERED] + counts[b, _FAILED] + counts[b, _SHED]
        drift = 0.0
        for s in range(excess_tv.shape[1]):
            drift += excess_tv[b, s]
        goodput = _goodput_of(counts[b, _ANSWERED] - counts[b, _MISSED], ended)
        quality = _quality_of(drift, counts[b, _TOKENS], weights.quality)
        capacity = _capacity_of(counts[b, _WORK], counts[b, _ANSWERED])
        moved = _moved(b, table, last)
        worth[_REWARD, b] = _reward_of(goodput, quality, moved, capacity, weights.move, weights.capacity)
        worth[_GOODPUT, b], worth[_QUALITY, b] = goodput, quality
        worth[_MOVED, b], worth[_CAPACITY, b] = moved, capacity
        worth[_COST, b] = _largest(b, costs, weights.soft)


@compiled
def _moved(b, table, last):
    """Mean over slices of half the distance between two tables [B, S, K + 1] of fleet ``b``.

    Indexed in place: a view of the fleet would cost two atomic reference counts.
    """
    total = 0.0
    for s in range(table.shape[1]):
        for k in range(table.shape[2]):
            total += abs(table[b, s, k] - last[b, s, k])
    return 0.5 * total / table.shape[1]


@compiled
def _largest(b, costs, soft):
    """The largest cost of the soft clauses of fleet ``b``; 0 if it has none."""
    largest, first = 0.0, True
    for c in range(costs.shape[1]):
        if soft[c] and (first or costs[b, c] > largest):
            largest, first = costs[b, c], False
    return largest
