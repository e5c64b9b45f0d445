"""Evidence of all streams of a fleet, for benchmarks and studies: the controller's fold without a controller.

A stream is one (fleet, unit, slice, clause); a unit is a replica, or a kernel that pools its replicas.
``fold_compiled`` does the work, here and in the controller's sequential detector.

Once per tick: ``fold_probes`` takes the probes in their order in the list; ``fold_units`` takes this tick's
sums (``COUNT, TOTAL, SQUARES, OVER``) of traffic and gauges: one unit per stream and scrape, the share over
the threshold, because requests between two scrapes are not independent. ``alarms`` says where the clause is
broken as far as the evidence goes, ``inside`` where evidence since a ``reset`` shows that it is kept.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from contracts.compiled import CompiledContract
from contracts.detect.budget import BudgetSplit
from contracts.detect.calibrate import guaranteed_threshold
from contracts.detect.clauses import ClausePlan, Kind, plan_clauses
from contracts.detect.fold_compiled import (
    CERTAIN,
    LEVEL,
    UNITS,
    FoldPlan,
    blank_cells,
    fairness,
    fold_one_each,
    fold_plan,
    fold_probe_list,
    statistic,
)
from contracts.detect.protocol import Flags, Floats
from contracts.detect.recovery import SHARES, clean_gain
from contracts.telemetry import ProbeSamples


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPlan:
    """What the fold needs of a contract. applies: bool [C, S], online clauses only.

    replica_threshold, kernel_threshold: float64 [R or K, S, C], log-evidence of an alarm: the guaranteed one
    of the stream's ARL0 (inf: no stream). confidence: of recovery.
    """

    contract: CompiledContract
    clauses: ClausePlan
    fold: FoldPlan
    replica_threshold: Floats
    kernel_threshold: Floats
    confidence: float

    @property
    def applies(self) -> Flags:
        """bool [C, S], online clauses only."""
        return self.fold.applies


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """State of all streams: ``cells`` float64 [B, U, S, C, G + 3] as ``fold_compiled`` has it.

    health: float64 [B, U, S, C, H], evidence since the last reset that the clause is kept.
    """

    cells: Floats
    health: Floats

    @property
    def evidence(self) -> Floats:
        """float64 [B, U, S, C, G], per bet."""
        return self.cells[..., :LEVEL]

    @property
    def statistic(self) -> Floats:
        """float64 [B, U, S, C], logarithm of the mixed evidence."""
        return statistic(self.cells)

    @property
    def since(self) -> Floats:
        """float64 [B, U, S, C, 2], units and their sum since the evidence last stood below 1."""
        return self.cells[..., UNITS:]


def stream_plan(contract: CompiledContract, split: BudgetSplit, confidence: float = 0.95) -> StreamPlan:
    """Detectors and thresholds of every stream; clauses that alarm at once stand at ``CERTAIN``."""
    clauses = plan_clauses(contract)
    fold = fold_plan(contract, clauses, clean_gain(confidence, contract.min_samples))
    return StreamPlan(
        contract=contract, clauses=clauses, fold=fold, confidence=confidence,
        replica_threshold=_thresholds(split.replica_arl0, clauses, fold.applies),
        kernel_threshold=_thresholds(split.kernel_arl0, clauses, fold.applies),
    )  # fmt: skip


def with_spread(plan: StreamPlan, psi: Floats) -> StreamPlan:
    """``plan`` for units that bet on their spread as well; psi: ``spread.normalisers`` [U, S, C, A]."""
    return replace(plan, fold=plan.fold._replace(fair=fairness(psi)))


def _thresholds(arl0: Floats, clauses: ClausePlan, applies: Flags) -> Floats:
    finite = np.isfinite(arl0)
    levels = np.full(arl0.shape, np.inf)
    levels[finite] = [guaranteed_threshold(float(value)) for value in arl0[finite]]
    at_once = (clauses.kind == Kind.AT_ONCE) & applies.T
    return np.where(at_once, CERTAIN, levels)


def initial_evidence(batch: int, units: int, plan: StreamPlan) -> Evidence:
    """No evidence anywhere."""
    shape = (batch, units, plan.applies.shape[1], len(plan.clauses.kind))
    return Evidence(cells=blank_cells(*shape), health=np.ones((*shape, len(SHARES))))


def fold_probes(
    state: Evidence, probes: ProbeSamples, heard: Flags, unit_of: NDArray[np.int64], plan: StreamPlan
) -> Evidence:
    """Evidence after the probes that are ``heard`` bool [B, P]; ``unit_of`` int64 [R]: replica to unit."""
    after = Evidence(cells=state.cells.copy(), health=state.health.copy())
    fold_probes_into(after, probes, heard, unit_of, plan)
    return after


def fold_probes_into(
    state: Evidence, probes: ProbeSamples, heard: Flags, unit_of: NDArray[np.int64], plan: StreamPlan
) -> None:
    """As ``fold_probes``, in place: for callers that own ``state``."""
    plain = np.ascontiguousarray
    fold_probe_list(
        state.cells, _nowhere(state), state.health, _everywhere(state), unit_of, heard & probes.valid,
        plain(probes.replica), plain(probes.slice), plain(probes.values), plan.fold,
    )  # fmt: skip


def fold_units(state: Evidence, increments: Floats, plan: StreamPlan) -> Evidence:
    """Evidence after the tick's sums [B, U, S, C, 4] of traffic and gauges: one unit per stream with any."""
    after = Evidence(cells=state.cells.copy(), health=state.health.copy())
    sums = np.ascontiguousarray(increments)
    news = np.ones(sums.shape[:3], dtype=np.bool_)
    fold_one_each(after.cells, _nowhere(after), after.health, _everywhere(after), sums, news, plan.fold)
    return after


def _everywhere(state: Evidence) -> Flags:
    return np.ones(state.cells.shape[:-1], dtype=np.bool_)


def _nowhere(state: Evidence) -> Floats:
    """No streams over all slices."""
    return np.empty((len(state.cells), 0, *state.cells.shape[3:]))


def alarms(state: Evidence, threshold: Floats) -> Flags:
    """bool [B, U, S, C]: the clause is broken, as far as the evidence goes; ``threshold`` [U, S, C]."""
    return np.asarray(state.statistic >= threshold)


def inside(state: Evidence, plan: StreamPlan) -> Flags:
    """bool [B, U, S, C]: evidence since the last reset shows, at the plan's confidence, the clause is kept.

    A stream whose clause is still broken is called inside, ever, with probability at most
    ``1 - confidence`` per attempt, and an attempt begins with a reset.
    """
    return np.asarray(state.health.mean(axis=-1) >= 1.0 / (1.0 - plan.confidence))


def relative_excess(state: Evidence, plan: StreamPlan) -> Floats:
    """float64 [B, U, S, C]: how far units since the likely change lie beyond the limit, as a share of it."""
    units = np.maximum(state.since[..., 0], 1.0)
    null = np.where(plan.clauses.kind == Kind.BETTING, plan.clauses.null_mean, 0.0)
    return np.asarray(np.maximum(state.since[..., 1] / units - null, 0.0) / plan.clauses.scale)


def reset(state: Evidence, mask: Flags) -> Evidence:
    """Evidence that starts anew where ``mask`` bool [B, U, S, C]."""
    blank = blank_cells(1)[0]
    return Evidence(
        cells=np.where(mask[..., None], blank, state.cells),
        health=np.where(mask[..., None], 1.0, state.health),
    )
