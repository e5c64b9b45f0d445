"""Evidence of all streams of a fleet, for benchmarks and studies: the controller's accumulation without the
controller.

A stream is one (fleet, subject, slice, clause); a subject is a replica, or a kernel that pools its replicas.
``controller.detect.sequential.accumulate`` does the work, here and in the controller's sequential detector.

Once per tick ``accumulate_probes`` takes the probes in order. ``alarms`` says where the clause is broken by
the evidence, ``inside`` where evidence since a ``reset`` shows that it is kept.
kept.

Axes: B fleets, U subjects, S slices, C clauses.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.contract import CompiledContract
from contracts.jit import borrowed, compiled
from contracts.telemetry import ProbeSamples
from controller.detect.budget import BudgetSplit
from controller.detect.clauses import ClausePlan, Kind, plan_clauses
from controller.detect.sequential.accumulate import Cells, ProbeBatch
from controller.detect.sequential.accumulate import accumulate_probes as accumulate_probes_of_fleet
from controller.detect.sequential.evidence import (
    HEALTHS,
    LEVEL,
    SINCE_COUNT,
    EvidencePlan,
    blank_cells,
    clean_gain,
    evidence_plan,
    fairness,
    statistic,
)
from controller.detect.streams.passes import CEILING
from controller.detect.streams.protocol import Flags, Floats, guaranteed_thresholds

#: Log-evidence of an alarm without an ARL0: above every threshold.
CERTAIN = math.log(CEILING)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPlan:
    """Detectors and thresholds for the streams of a contract."""

    contract: CompiledContract
    clauses: ClausePlan
    evidence_plan: EvidencePlan
    #: float64 [R, S, C], log-evidence of an alarm: the guaranteed one of the stream's ARL0 (inf: no stream).
    replica_threshold: Floats
    #: float64 [K, S, C], the same of kernels.
    kernel_threshold: Floats
    #: Thresholds of recovery.
    confidence: float

    @property
    def applies(self) -> Flags:
        """bool [C, S], online clauses only."""
        return self.evidence_plan.applies


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamEvidence:
    """State of all streams."""

    #: float64 [B, U, S, C, WIDTH], columns as ``controller.detect.sequential.evidence`` names them.
    cells: Floats
    #: float64 [B, U, S, C, HEALTHS], evidence since the last reset that the clause is kept.
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
        """float64 [B, U, S, C, 2], observations and their sum since the evidence last stood below 1."""
        return self.cells[..., SINCE_COUNT:]


def stream_plan(contract: CompiledContract, split: BudgetSplit, confidence: float = 0.95) -> StreamPlan:
    """Detectors and thresholds of every stream; clauses that alarm at once stand at ``CERTAIN``."""
    clauses = plan_clauses(contract)
    inputs = evidence_plan(contract, clauses, clean_gain(confidence, contract.min_samples))
    return StreamPlan(
        contract=contract,
        clauses=clauses,
        evidence_plan=inputs,
        confidence=confidence,
        replica_threshold=_thresholds(split.replica_arl0, clauses, inputs.applies),
        kernel_threshold=_thresholds(split.kernel_arl0, clauses, inputs.applies),
    )


def with_spread(plan: StreamPlan, psi: Floats) -> StreamPlan:
    """``plan`` for subjects that bet on spread as well; psi: ``spread.normalisers`` [U, S, C, SPREADS]."""
    return replace(plan, evidence_plan=plan.evidence_plan._replace(fair=fairness(psi)))


def _thresholds(arl0: Floats, clauses: ClausePlan, applies: Flags) -> Floats:
    at_once = (clauses.kind == Kind.AT_ONCE) & applies.T
    return np.where(at_once, CERTAIN, guaranteed_thresholds(arl0))


def initial_evidence(batch: int, subjects: int, plan: StreamPlan) -> StreamEvidence:
    """No evidence anywhere."""
    shape = (batch, subjects, plan.applies.shape[1], len(plan.clauses.kind))
    return StreamEvidence(cells=blank_cells(*shape), health=np.ones((*shape, HEALTHS)))


def accumulate_probes(
    state: StreamEvidence,
    probes: ProbeSamples,
    received: Flags,
    subject_of: NDArray[np.int64],
    plan: StreamPlan,
) -> StreamEvidence:
    """Evidence after the probes that are ``received`` bool [B, P]; subject_of: int64 [R], replica to
    subject.
    """
    after = StreamEvidence(cells=state.cells.copy(), health=state.health.copy())
    accumulate_probes_into(after, probes, received, subject_of, plan)
    return after


def accumulate_probes_into(
    state: StreamEvidence,
    probes: ProbeSamples,
    received: Flags,
    subject_of: NDArray[np.int64],
    plan: StreamPlan,
) -> None:
    """As ``accumulate_probes``, in place: for callers that own ``state``."""
    accumulate_into(state, probes, received, subject_of, plan.evidence_plan)


def accumulate_into(
    state: StreamEvidence,
    probes: ProbeSamples,
    received: Flags,
    subject_of: NDArray[np.int64],
    plan: EvidencePlan,
) -> None:
    """``accumulate_probes_into`` for the fields of a plan that compiled passes read."""
    plain = np.ascontiguousarray
    arrived = ProbeBatch(
        received=received & probes.valid,
        replica=plain(probes.replica),
        slice=plain(probes.slice),
        values=plain(probes.values),
        subject_of=subject_of,
    )
    _probes_of_fleets(_cells(state), arrived, plan)


def _cells(state: StreamEvidence) -> Cells:
    """Evidence of health everywhere, and no streams over all slices."""
    batch, subjects, _, *rest = state.cells.shape
    return Cells(
        by_slice=state.cells,
        over_slices=np.empty((batch, subjects, 0, *rest)),
        health=state.health,
        wanted=np.ones(state.cells.shape[:-1], dtype=np.bool_),
    )


@compiled
def _fleet(cells, b):
    """``Cells`` of fleet ``b``."""
    return Cells(cells.by_slice[b], cells.over_slices[b], cells.health[b], cells.wanted[b])


@compiled
def _probes_of_fleets(cells, probes, plan):
    """The probes of every fleet: a leading axis B on all of ``cells`` and ``probes`` but ``subject_of``."""
    cells, probes = borrowed(cells), borrowed(probes)
    for b in range(probes.received.shape[0]):
        mine = ProbeBatch(
            probes.received[b], probes.replica[b], probes.slice[b], probes.values[b], probes.subject_of
        )
        accumulate_probes_of_fleet(_fleet(cells, b), mine, plan)


def alarms(state: StreamEvidence, threshold: Floats) -> Flags:
    """bool [B, U, S, C]: the clause is broken by the evidence; ``threshold`` [U, S, C]."""
    return np.asarray(state.statistic >= threshold)


def reset(state: StreamEvidence, mask: Flags) -> StreamEvidence:
    """Evidence reset to zero where ``mask`` bool [B, U, S, C]."""
    blank = blank_cells(1)[0]
    return StreamEvidence(
        cells=np.where(mask[..., None], blank, state.cells),
        health=np.where(mask[..., None], 1.0, state.health),
    )
