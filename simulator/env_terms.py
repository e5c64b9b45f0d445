"""Reward and costs of one control tick, recomputable from the definitions here.

Both are computed from what was *true* in the tick: they are the training signal and the score. No
observation and no decision ever sees them.

Over the requests of all slices that ended in the tick: n = answered + failed + shed, of which
``good = answered - slo_missed`` kept every objective of their slice; A output tokens answered, E their
excess total variation to the reference, summed.

    goodput  = good / max(1, n)                                        in [0, 1]
    quality  = max(0, 1 - w_quality * E / max(1, A))                   in [0, 1]
    moved    = mean over slices of 1/2 sum_k |W_t[s,k] - W_(t-1)[s,k]|  in [0, 1]
    capacity = sum_k answers_k / cap_k * min(cap) / max(1, answered)   in [0, 1]
    reward   = goodput * quality - w_move * moved - w_capacity * capacity

in [-w_move - w_capacity, 1], dimensionless. W_t is the table in force during the tick, after shield and
supervisor; cap_k is the rate one replica of kernel k carries, so ``capacity`` is the accelerator time of
an answer relative to the dearest kernel's. A shed or failed request is not good, and answers nothing.

Clause c turns into an additive cost with limit 0, in observation units (answered requests on the slices
that the clause names; for failure clauses answered and failed ones):

    cost_c = exceed_c - rho_c * n_c            in [-rho_c * n_c, n_c]

A percentile or per-unit clause counts the units beyond its threshold (those of a traffic prompt as
measured under the replica's condition, in expectation over the slice's prompts) against its rate limit.
A mean clause counts the units served while the replica's measured mean broke the threshold, against its
budget. Hard clauses have a cost too, but they are the shield's: ``cost`` is the largest over the *soft*
clauses. Since the sum of maxima is at least every single sum, an episode whose ``cost`` sums to at most 0
keeps every soft clause.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from contracts.compiled import CompiledContract, Source
from contracts.layout import HISTOGRAM_EDGES_MS
from simulator.board import ReplicaBoard
from simulator.engine_columns import ANSWERED, EXPOSED, FIRST_REASON, OFFERED, SHED_COUNT, SLO_MISSED, TOKENS
from simulator.engine_records import Counters, Gauges
from simulator.pool import MeasuredPool
from simulator.tables import clause_broken
from simulator.world import CompiledScenario

_PROBE, _LATENCY, _FAILED = int(Source.PROBE), int(Source.LATENCY), int(Source.FAILED)
_FINGERPRINT, _TRACE_FIELDS = int(Source.FINGERPRINT), int(Source.TRACE_FIELDS)
_KV_USED = int(Source.KV_USED)

#: Columns of ``_add_up``: counts over all slices of one tick.
_N_OFFERED, _N_ANSWERED, _N_FAILED, _N_SHED, _N_MISSED, _N_EXPOSED, _N_TOKENS, _N_WORK = range(8)
_COLUMNS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardWeights:
    """Weights of the reward, dimensionless.

    quality: 1 is E5's own loss (mean TV of an answered token); more makes drift count for more.
    move: moving everything costs as much as losing 2 % of a tick's requests.
    capacity: serving all from the dearest kernel costs 2 %, so that it is a refuge and no home.
    """

    quality: float = 1.0
    move: float = 0.02
    capacity: float = 0.02

    def __post_init__(self) -> None:
        for name in ("quality", "move", "capacity"):
            if not 0.0 <= getattr(self, name) < np.inf:
                raise ValueError(f"reward weight {name}: expected a number >= 0, got {getattr(self, name)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What one tick was worth. Everything float64 [B] unless stated.

    reward and its terms goodput, quality, moved, capacity (see the module). costs: float64 [B, C].
    cost: the largest soft one. offered, answered, failed, shed, slo_missed, exposed: requests; ``exposed``
    are answers on hard slices by a replica that violated when they were routed.
    """

    reward: NDArray[np.float64]
    goodput: NDArray[np.float64]
    quality: NDArray[np.float64]
    moved: NDArray[np.float64]
    capacity: NDArray[np.float64]
    cost: NDArray[np.float64]
    costs: NDArray[np.float64]
    offered: NDArray[np.float64]
    answered: NDArray[np.float64]
    failed: NDArray[np.float64]
    shed: NDArray[np.float64]
    slo_missed: NDArray[np.float64]
    exposed: NDArray[np.float64]


def exceedance(scenario: CompiledScenario, pool: MeasuredPool) -> NDArray[np.float64]:
    """Share of a slice's traffic prompts beyond the clause, float64 [K, Q, S, C], as measured.

    For a mean clause 1 where the mean over the prompts breaks it, else 0; 0 for clauses that probes do not
    judge. Conditions in the order of the kernel tables, missing rungs repeating the last.
    """
    contract, layout = scenario.contract, scenario.layout
    deepest = max(len(table.conditions) for table in scenario.tables)
    shares = np.zeros((len(layout.kernels), deepest, len(layout.slices), len(contract.clause_ids)))
    for kernel, table in enumerate(scenario.tables):
        samples, rows = pool.kernels[kernel].samples, scenario.prompts.traffic
        units = np.stack(
            [[samples.unit_values(m, q, rows) for m in layout.probe_metrics] for q in table.conditions]
        )
        for clause in np.flatnonzero(contract.source == _PROBE):
            for part in np.flatnonzero(contract.applies[clause]):
                mine = units[:, contract.column[clause], scenario.prompts.traffic_slice == part]
                shares[kernel, : len(units), part, clause] = _share(mine, contract, int(clause))
        shares[kernel, len(units) :] = shares[kernel, len(units) - 1]
    return shares


def _share(values: NDArray[np.float64], contract: CompiledContract, clause: int) -> NDArray[np.float64]:
    if not contract.is_rate[clause]:
        return clause_broken(values, contract, clause).astype(np.float64)
    sense, known = contract.sense[clause], np.isfinite(values)
    beyond = known & (sense * values > sense * contract.threshold[clause])
    return np.asarray(beyond.sum(axis=1) / np.maximum(known.sum(axis=1), 1))


class TermsOfTicks:
    """Terms of B fleets, tick by tick; remembers the last table and the latency counts so far."""

    def __init__(
        self, scenario: CompiledScenario, shares: NDArray[np.float64], table: NDArray[np.float64],
        weights: RewardWeights,
    ) -> None:  # fmt: skip
        self._scenario, self._shares = scenario, shares
        self._weights = np.array([weights.quality, weights.move, weights.capacity])
        contract = scenario.contract
        self._limit = np.where(contract.is_rate, contract.rate_limit, contract.budget)
        self._soft = ~contract.hard & (contract.source != int(Source.OFFLINE))
        self._applies = np.ascontiguousarray(contract.applies)
        self._judged = _judged(contract)
        self._told = _told_by_objectives(contract, self._judged)
        self._work = scenario.capacity_rps.min() / scenario.capacity_rps
        self._table = table.copy()
        _, slices, replicas = scenario.layout.shape
        self._over = np.zeros((table.shape[0], replicas, slices, self._judged.shape[1]), dtype=np.int32)

    def of(
        self, table: NDArray[np.float64], counters: Counters, gauges: Gauges, board: ReplicaBoard,
        latency_counts: NDArray[np.int32],
    ) -> Terms:  # fmt: skip
        """Terms of the tick during which ``table`` float64 [B, S, K + 1] was in force."""
        contract, owner = self._scenario.contract, self._scenario.layout.replica_kernel
        counts = np.zeros((len(table), _COLUMNS))
        _add_up(counts, counters.cells, counters.per_slice, owner, self._work)
        costs = np.zeros((len(table), len(contract.clause_ids)))
        _clause_costs(
            costs, self._over, self._judged, self._told, counters.cells, counters.per_slice, latency_counts,
            self._shares, owner, board.condition, board.wrong_fingerprint, board.trace_missing,
            gauges.kv_used_ratio,
            contract.source, contract.column, contract.edge, contract.threshold, contract.sense, self._limit,
            self._applies,
        )  # fmt: skip
        worth = np.empty((6, len(table)))
        _weigh(worth, counts, counters.excess_tv_tokens, table, self._table, costs, self._soft, self._weights)
        np.copyto(self._table, table)
        return Terms(
            reward=worth[0],
            goodput=worth[1],
            quality=worth[2],
            moved=worth[3],
            capacity=worth[4],
            cost=worth[5],
            costs=costs,
            offered=counts[:, _N_OFFERED],
            answered=counts[:, _N_ANSWERED],
            failed=counts[:, _N_FAILED],
            shed=counts[:, _N_SHED],
            slo_missed=counts[:, _N_MISSED],
            exposed=counts[:, _N_EXPOSED],
        )


def _judged(contract: CompiledContract) -> NDArray[np.int64]:
    """Clauses that answers of each slice are judged by, [S, most of them], -1 where there are fewer."""
    by_answer = contract.applies & (contract.source <= _KV_USED)[:, None]
    judged = np.full((len(contract.slices), int(by_answer.sum(axis=0).max())), -1, dtype=np.int64)
    for part in range(len(contract.slices)):
        mine = np.flatnonzero(by_answer[:, part])
        judged[part, : mine.size] = mine
    return judged


def _told_by_objectives(contract: CompiledContract, judged: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Bool [S, J]: an answer beyond the latency clause ``judged`` misses an objective of its slice, too."""
    told, edges = np.zeros(judged.shape, dtype=np.bool_), np.array([*HISTOGRAM_EDGES_MS, np.inf])
    for part, place in np.argwhere(judged >= 0):
        clause = judged[part, place]
        if contract.source[clause] == _LATENCY:
            objective = contract.slo_ms[part, contract.column[clause]]
            told[part, place] = edges[contract.edge[clause]] >= objective
    return told


@njit(cache=True, error_model="numpy")
def _add_up(counts, cells, per_slice, owner, work):  # type: ignore[no-untyped-def]  # pragma: no cover
    for b in range(cells.shape[0]):
        for s in range(cells.shape[2]):
            counts[b, _N_OFFERED] += per_slice[b, s, OFFERED]
            counts[b, _N_SHED] += per_slice[b, s, SHED_COUNT]
            for reason in range(FIRST_REASON, per_slice.shape[2]):
                counts[b, _N_FAILED] += per_slice[b, s, reason]
        for r in range(cells.shape[1]):
            answered = 0
            for s in range(cells.shape[2]):
                answered += cells[b, r, s, ANSWERED]
                counts[b, _N_MISSED] += cells[b, r, s, SLO_MISSED]
                counts[b, _N_EXPOSED] += cells[b, r, s, EXPOSED]
                counts[b, _N_TOKENS] += cells[b, r, s, TOKENS]
            counts[b, _N_ANSWERED] += answered
            counts[b, _N_WORK] += answered * work[owner[r]]


@njit(cache=True, error_model="numpy")
def _weigh(  # type: ignore[no-untyped-def]  # pragma: no cover
    worth, counts, excess_tv, table, last, costs, soft, weights
):  # fmt: skip
    """Reward, goodput, quality, moved, capacity and cost of each fleet, [6, B], as the module says."""
    for b in range(table.shape[0]):
        ended = counts[b, _N_ANSWERED] + counts[b, _N_FAILED] + counts[b, _N_SHED]
        goodput = (counts[b, _N_ANSWERED] - counts[b, _N_MISSED]) / max(ended, 1.0)
        drift = 0.0
        for s in range(excess_tv.shape[1]):
            drift += excess_tv[b, s]
        quality = max(0.0, 1.0 - weights[0] * (drift / max(counts[b, _N_TOKENS], 1.0)))
        capacity = counts[b, _N_WORK] / max(counts[b, _N_ANSWERED], 1.0)
        total = 0.0
        for s in range(table.shape[1]):
            for k in range(table.shape[2]):
                total += abs(table[b, s, k] - last[b, s, k])
        moved = 0.5 * total / table.shape[1]
        worth[0, b] = goodput * quality - weights[1] * moved - weights[2] * capacity
        worth[1, b], worth[2, b], worth[3, b], worth[4, b] = goodput, quality, moved, capacity
        worth[5, b] = 0.0
        first = True
        for c in range(costs.shape[1]):
            if soft[c] and (first or costs[b, c] > worth[5, b]):
                worth[5, b], first = costs[b, c], False


@njit(cache=True, error_model="numpy")
def _clause_costs(  # type: ignore[no-untyped-def]  # pragma: no cover
    costs, over, judged, told, cells, per_slice, latency_counts, shares, owner, condition, wrong_fingerprint,
    trace_missing, kv_used, source, column, edge, threshold, sense, limit, applies,
):  # fmt: skip
    """``over`` [B, R, S, J] keeps what each replica answered beyond clause ``judged[s, j]`` since the start.

    Only cells that answered are looked at, and latencies where they can have changed: see ``told``.
    """
    batch, replicas, slices, _ = cells.shape
    for b in range(batch):
        for r in range(replicas):
            for s in range(slices):
                n = cells[b, r, s, ANSWERED]
                if n == 0:
                    continue
                for j in range(judged.shape[1]):
                    c = judged[s, j]
                    if c < 0:
                        break
                    if source[c] == _LATENCY:
                        known = told[s, j] and cells[b, r, s, SLO_MISSED] == 0
                        late = 0 if known else _late(over, latency_counts, b, r, s, j, column[c], edge[c])
                        exceed = float(late)
                    else:
                        held = sense[c] * (kv_used[b, r] - threshold[c]) > 0.0
                        exceed = n * _bad_share(
                            source[c], shares[owner[r], condition[b, r], s, c], wrong_fingerprint[b, r],
                            trace_missing[b, r], held,
                        )  # fmt: skip
                    costs[b, c] += exceed - limit[c] * n
        for c in range(len(source)):
            if source[c] == _FAILED:
                costs[b, c] += (1.0 - limit[c]) * _failed(per_slice[b], applies[c])


@njit(cache=True, error_model="numpy")
def _failed(per_slice, applies):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Requests of the clause's slices that failed."""
    total = 0.0
    for s in range(len(applies)):
        if applies[s]:
            for reason in range(FIRST_REASON, per_slice.shape[1]):
                total += per_slice[s, reason]
    return total


@njit(cache=True, error_model="numpy")
def _late(over, buckets, b, r, s, j, f, edge):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Answers above bucket ``edge`` that ``over`` has not counted yet; it has then."""
    beyond = _beyond(buckets, b, r, s, f, edge)
    late = beyond - over[b, r, s, j]
    over[b, r, s, j] = beyond
    return late


@njit(cache=True, error_model="numpy")
def _beyond(buckets, b, r, s, f, edge):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Units of family f above bucket ``edge``; none is known to lie above a threshold beyond every edge (-1).

    Indexed in place: a view of the row would cost two atomic reference counts.
    """
    total = 0
    if edge >= 0:
        for e in range(edge + 1, buckets.shape[4]):
            total += buckets[b, r, s, f, e]
    return total


@njit(cache=True, error_model="numpy")
def _bad_share(source, share, wrong_fingerprint, trace_missing, held):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Share of a replica's answers that are bad units of a clause over ``source``."""
    if source == _PROBE:
        return share
    if source == _FINGERPRINT:
        return 1.0 if wrong_fingerprint else 0.0
    if source == _KV_USED:
        return 1.0 if held else 0.0
    return trace_missing if source == _TRACE_FIELDS else 0.0
