"""Documents become arrays: a ``KernelContract`` with its ``FleetLayout``, and the step times of a profile.

What a clause measures and how it is judged comes from the metric registry; where its observations come from,
from the layout. A clause whose metric no telemetry shows is kept with ``Source.OFFLINE``.

Step times are those that requests feel through a server: the engine's own, and what serving adds. Time
between two tokens of a stream in steady state is the period of the engine's loop: a constant delay of every
token on its way out does not change it. So what makes tokens come further apart than the engine's steps holds
the loop (waits between steps, cores that API process and engine share), and is added to the step:

    step(n) = (c0 + step overhead) + c1 * prefilled tokens + (c2 + token overhead) * n + c3 * contexts

What a request takes beside that (parsing, tokenising, its way in and out) happens while the engine serves
others: it delays the first token and the whole answer, and carries no capacity away but by the objectives
that it eats into. An API process that is itself the slowest part shows in the time between tokens.
"""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.contract import CompiledContract, FleetLayout
from contracts.documents.contract import Clause, ContractSpec, KernelContract, Slice
from contracts.documents.serving_path import ServingPath
from contracts.documents.step_time import StepTime
from contracts.errors import DocumentError, Problem
from contracts.loading.loader import document_sha256
from contracts.metrics import JudgedBy, MetricSpec, Sense, metric
from contracts.telemetry import HISTOGRAM_EDGES_MS, LATENCY_FAMILIES, Source
from contracts.units import s_from_ms

#: Where the contract sets no objective, no request misses it.
NO_OBJECTIVE_MS = float("inf")

_LEVELS = {"L1": 1, "L2": 2, "L3": 3}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """One clause with its registry entry and its place in the telemetry."""

    clause: Clause
    spec: MetricSpec
    column: int
    edge: int

    @property
    def hard(self) -> bool:
        return self.clause.budget == 0.0

    @property
    def is_rate(self) -> bool:
        return self.spec.judgement is not JudgedBy.MEAN

    @property
    def rate_limit(self) -> float:
        """Tolerated share of observations beyond the threshold; 1 (no limit) for a mean."""
        if not self.is_rate:
            return 1.0
        if self.spec.rate_limit is not None:
            return round(self.spec.rate_limit, 12)  # 1 - 99/100 is not 0.01 in binary
        return self.clause.null_rate or 0.0 if self.hard else self.clause.budget

    @property
    def clip(self) -> float:
        return float("inf") if self.clause.clip is None else self.clause.clip

    @property
    def sense(self) -> float:
        return 1.0 if self.spec.sense is Sense.AT_MOST else -1.0


def compile_contract(contract: KernelContract, layout: FleetLayout) -> CompiledContract:
    """Arrays of ``contract`` on the axes of ``layout``.

    Slices of the layout that the contract does not name belong to its default slice. The default slice
    also keeps the strictest hard clauses of every other slice. Raises ``DocumentError`` naming the
    clauses whose metric the layout's probes do not carry.
    """
    spec = contract.spec
    rows = _rows(contract, layout)
    homes = [_slice_of(name, spec) for name in layout.slices]
    return CompiledContract(
        name=contract.metadata.name,
        sha256=document_sha256(contract),
        slices=layout.slices,
        clause_ids=tuple(row.clause.id for row in rows),
        family=tuple(row.clause.family for row in rows),
        source=_integers([int(row.spec.source) for row in rows]),
        column=_integers([row.column for row in rows]),
        edge=_integers([row.edge for row in rows]),
        threshold=_floats([row.clause.threshold for row in rows]),
        sense=_floats([row.sense for row in rows]),
        is_rate=np.array([row.is_rate for row in rows], dtype=np.bool_),
        rate_limit=_floats([row.rate_limit for row in rows]),
        clip=_floats([row.clip for row in rows]),
        budget=_floats([row.clause.budget for row in rows]),
        hard=np.array([row.hard for row in rows], dtype=np.bool_),
        level=_integers([_LEVELS[row.clause.level] for row in rows]),
        weight=_floats([row.clause.weight for row in rows]),
        applies=_applies(rows, homes),
        guard_threshold=spec.escalation.guard_threshold,
        fallback_threshold=spec.escalation.fallback_threshold,
        window_s=spec.detection.window_s,
        min_samples=spec.detection.min_samples,
        alarm_confidence=spec.detection.alarm_confidence,
        shed_when_uncertified=spec.escalation.when_uncertified == "shed",
        ejection_cap_ratio=spec.detection.ejection_cap_ratio,
        stale_after_s=spec.detection.stale_after_s,
        slo_ms=_objectives(homes),
        priority=_integers([home.priority for home in homes]),
        false_switch_budget_per_slice_month=spec.detection.false_switch_budget_per_slice_month,
    )


def edges_for(contract: KernelContract) -> tuple[float, ...]:
    """``HISTOGRAM_EDGES_MS`` with each latency threshold of ``contract`` in the place of the nearest edge, by
    ratio, so that each is judged where it lies; [E], rising. The last edge stays. Of more thresholds than
    there are edges those of later clauses take none, and are judged at the next edge above.
    """
    asked = [row.threshold for row in contract.spec.clauses if metric(row.metric).source == Source.LATENCY]
    thresholds = [each for each in dict.fromkeys(asked) if 0.0 < each < HISTOGRAM_EDGES_MS[-1]]
    edges = list(HISTOGRAM_EDGES_MS)
    for threshold in thresholds:
        free = [edge for edge in edges[:-1] if edge not in thresholds]
        if threshold not in edges and free:
            edges.remove(min(free, key=lambda edge: abs(math.log(edge / threshold))))
            bisect.insort(edges, threshold)
    return tuple(edges)


def histogram_edge(threshold_ms: float, edges_ms: tuple[float, ...] = HISTOGRAM_EDGES_MS) -> int:
    """Index of the smallest of ``edges_ms`` at or above ``threshold_ms``; -1 where there is none."""
    index = bisect.bisect_left(edges_ms, threshold_ms)
    return index if index < len(edges_ms) else -1


def _rows(contract: KernelContract, layout: FleetLayout) -> list[_Row]:
    rows: list[_Row] = []
    problems: list[Problem] = []
    for index, clause in enumerate(contract.spec.clauses):
        spec = metric(clause.metric)
        name = spec.column(clause.estimator)
        if spec.source is Source.PROBE and name not in layout.probe_metrics:
            problems.append(_missing_column(contract, index, name, layout))
            continue
        rows.append(_row(clause, spec, name, layout))
    if problems:
        raise DocumentError(problems)
    return rows


def _row(clause: Clause, spec: MetricSpec, name: str, layout: FleetLayout) -> _Row:
    column, edge = -1, -1
    if spec.source is Source.PROBE:
        column = layout.probe_metrics.index(name)
    elif spec.source is Source.LATENCY:
        column, edge = LATENCY_FAMILIES.index(name), histogram_edge(clause.threshold, layout.edges_ms)
    return _Row(clause=clause, spec=spec, column=column, edge=edge)


def _missing_column(contract: KernelContract, index: int, name: str, layout: FleetLayout) -> Problem:
    clause = contract.spec.clauses[index]
    return Problem(
        file=f"{contract.kind} {contract.metadata.name}",
        line=0,
        path=f"spec.clauses[{index}] ({clause.id})",
        expected=f"probes that carry {name}",
        actual=", ".join(layout.probe_metrics) or "no probe metrics",
        next_step="profile the kernels with this estimator, or drop the clause",
    )


def _slice_of(name: str, spec: ContractSpec) -> Slice:
    """The contract's slice ``name``, else its default slice."""
    for slice_ in spec.slices:
        if slice_.name == name:
            return slice_
    return next(slice_ for slice_ in spec.slices if slice_.default)


def _applies(rows: list[_Row], homes: list[Slice]) -> NDArray[np.bool_]:
    """bool [C, S]: named slices, and on default slices the hard clauses that nothing stricter covers."""
    applies = np.zeros((len(rows), len(homes)), dtype=np.bool_)
    inherited = [row.hard and not any(_covers(other, row, rows) for other in rows) for row in rows]
    for place, home in enumerate(homes):
        for index, row in enumerate(rows):
            named = row.clause.slices is None or home.name in row.clause.slices
            applies[index, place] = named or (home.default and inherited[index])
    return applies


def _covers(strict: _Row, loose: _Row, rows: list[_Row]) -> bool:
    """True if keeping ``strict`` means keeping ``loose``, so that only ``strict`` need be inherited."""
    same = (strict.clause.metric, strict.clause.estimator) == (loose.clause.metric, loose.clause.estimator)
    if strict is loose or not same or not strict.hard:
        return False
    tighter = strict.clause.threshold * strict.sense <= loose.clause.threshold * loose.sense
    no_weaker = (
        strict.rate_limit <= loose.rate_limit
        and strict.clip >= loose.clip
        and _LEVELS[strict.clause.level] >= _LEVELS[loose.clause.level]
    )
    if not (tighter and no_weaker):
        return False
    equal = _strength(strict) == _strength(loose)
    return not equal or rows.index(strict) < rows.index(loose)  # of two equal clauses, the first


def _strength(row: _Row) -> tuple[float, float, float, str]:
    return row.clause.threshold, row.rate_limit, row.clip, row.clause.level


def _objectives(homes: list[Slice]) -> NDArray[np.float64]:
    """float64 [S, F], ms, in the order of ``LATENCY_FAMILIES``."""
    given = [[getattr(home.slo, family) for family in LATENCY_FAMILIES] for home in homes]
    return np.array(
        [[NO_OBJECTIVE_MS if value is None else value for value in row] for row in given], dtype=np.float64
    ).reshape(len(homes), len(LATENCY_FAMILIES))


def _integers(values: list[int]) -> NDArray[np.int64]:
    return np.array(values, dtype=np.int64)


def _floats(values: list[float]) -> NDArray[np.float64]:
    return np.array(values, dtype=np.float64)


NOTHING_ADDED = ServingPath()


def served_step_s(step: StepTime, serving: ServingPath | None = None) -> NDArray[np.float64]:
    """Coefficients of one engine step as its requests feel them, seconds, float64 [4]."""
    added = serving or NOTHING_ADDED
    parts = (
        step.base_ms + added.step_overhead_ms,
        step.per_prefill_token_ms,
        step.per_decode_sequence_ms + added.token_overhead_ms,
        step.per_context_token_ms,
    )
    return np.array([s_from_ms(part) for part in parts])


def request_delay_s(serving: ServingPath | None) -> float:
    """Seconds by which every request's first and last token come later."""
    return s_from_ms((serving or NOTHING_ADDED).request_overhead_ms)
