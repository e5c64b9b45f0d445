"""From a contract's budget to thresholds: settings of the sequential detector, and their justification.

Alarms of replicas use one half of their share of the budget slice by slice, and the other half pooled over
slices: a quarantined replica leaves every slice, so evidence of all slices may be added up.

Axes: R replicas, K kernels, S slices, C clauses, N thresholds for 1 to N peers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.contract import CompiledContract, FleetLayout
from contracts.telemetry import Source
from controller.detect.bounds import BoundsPlan, bounds_plan
from controller.detect.budget import Budget, BudgetSplit, split_budget
from controller.detect.certified_drift import FLAG_SHARE, DriftPlan, drift_plan
from controller.detect.clauses import ClausePlan, Kind, from_traffic, moves_traffic, plan_clauses
from controller.detect.detector import CertifiedFleet
from controller.detect.sequential.evidence import EvidencePlan, clean_gain, evidence_plan
from controller.detect.sequential.spread import normalisers, stretches
from controller.detect.streams.protocol import Floats, guaranteed_threshold, guaranteed_thresholds
from controller.detect.traffic import TrafficCalibration

#: ARL0 of a replica not in alarm, as evidence against its kernel together with a replica in alarm.
AGAINST_ARL0 = 100.0
#: ARL0 of a kernel in alarm on another slice, as a share of its own ARL0, if that is less than the setting.
LOWERED_SHARE = 0.05
#: Windows without an observation after which an alarm on traffic ends.
EXPIRY_WINDOWS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SequentialSettings:
    """Settings of a sequential detector; the defaults are shipped."""

    #: Confidence of recovery, 0 to 1.
    confidence: float = 0.95
    #: Factor on the ARL0 of clauses on traffic and gauges, because their observations are not independent.
    traffic_factor: float = 14.0
    #: Calibrated thresholds that replace this factor, for the clauses in the table (None: for none).
    traffic: TrafficCalibration | None = None
    #: ARL0 of a kernel in alarm on another slice, in observations (at most ``LOWERED_SHARE`` of its own); and
    #: the reciprocal of the false-alarm probability of one e-process of a drifted subject.
    lowered_arl0: float = 1000.0
    #: False switches per slice-month (None: that of the contract).
    budget_per_slice_month: float | None = None
    #: Bet on the spread of certified values as well.
    spread: bool = True
    #: Compare probes with certified values, where kernels have them, or with bounds learned in health.
    drift: bool = False
    #: Run e-processes from the moment of a drift on.
    prior: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """Log-evidence of an alarm (inf: never, or at once by ``ClausePlan.kind``)."""

    #: float64 [N, R, S, C], of a replica with 1 to N serving peers; on traffic only on the booked slice.
    replica: Floats
    #: float64 [N, R, C], of a replica, pooled over slices; inf on traffic, which is pooled already.
    over_slices: Floats
    #: float64 [K, S, C], of a kernel.
    kernel: Floats
    #: float64 [S, C], of a kernel in alarm on another slice.
    lowered: Floats
    #: Of a replica as evidence against its kernel, together with one in alarm.
    against: float

    def beside_all(self, owner: NDArray[np.int64]) -> tuple[Floats, Floats]:
        """``replica`` [R, S, C] and ``over_slices`` [R, C] while all peers serve; owner: int64 [R]."""
        each, others = np.arange(owner.size), np.bincount(owner)[owner] - 1
        place = np.clip(others, 1, len(self.replica)) - 1
        return self.replica[place, each], self.over_slices[place, each]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SequentialPlan:
    """Setup of a ``SequentialDetector`` for one contract and fleet."""

    contract: CompiledContract
    clauses: ClausePlan
    thresholds: Thresholds
    #: The budget, for reports.
    split: BudgetSplit
    #: Input of the compiled passes for kernels.
    evidence_plan: EvidencePlan
    #: Input of the compiled passes for replicas.
    replica_evidence_plan: EvidencePlan
    #: Confidence of recovery.
    confidence: float
    #: Comparison with certified values, and whether drift starts e-processes (None: no comparison).
    drift: DriftPlan | None
    #: Comparison with bounds learned in health, where certified values do not serve (None: no comparison).
    bounds: BoundsPlan | None
    #: int64 [R], kernel of each replica; replicas of one kernel are peers.
    owner: NDArray[np.int64]
    #: Time constant of the sums by which peers are compared.
    memory_s: float
    #: Time without observations after which an alarm on traffic ends.
    expiry_s: float


def sequential_plan(fleet: CertifiedFleet, settings: SequentialSettings | None = None) -> SequentialPlan:
    """Plan whose false switches per slice-month stay within the budget of the settings or the contract."""
    chosen, contract, layout = settings or SequentialSettings(), fleet.contract, fleet.layout
    allowed = chosen.budget_per_slice_month or contract.false_switch_budget_per_slice_month
    compared = None
    if chosen.drift:
        compared = drift_plan(
            fleet, budget_per_slice_month=allowed, confidence=chosen.confidence, prior=chosen.prior
        )
    kept = allowed
    if compared is not None and compared.prior:
        kept = allowed * (1.0 - FLAG_SHARE)  # the rest is for false flags
    split = split_budget(contract, layout, fleet.rates, Budget(per_slice_month=kept))
    clauses, gain = plan_clauses(contract), clean_gain(chosen.confidence, contract.min_samples)
    psi = _spread(fleet, clauses) if chosen.spread else None
    own = None if psi is None else psi[layout.replica_kernel]
    return SequentialPlan(
        contract=contract,
        clauses=clauses,
        thresholds=_thresholds(contract, layout, clauses, split, chosen),
        split=split,
        evidence_plan=evidence_plan(contract, clauses, gain, psi),
        replica_evidence_plan=evidence_plan(contract, clauses, gain, own),
        confidence=chosen.confidence,
        drift=compared,
        bounds=bounds_plan(fleet, confidence=chosen.confidence) if _needs_bounds(chosen, compared) else None,
        owner=layout.replica_kernel,
        memory_s=contract.window_s,
        expiry_s=EXPIRY_WINDOWS * contract.window_s,
    )


def _needs_bounds(settings: SequentialSettings, compared: DriftPlan | None) -> bool:
    """Whether certified values cannot re-certify any subject."""
    return settings.drift and (compared is None or compared.runs is None)


def _spread(fleet: CertifiedFleet, clauses: ClausePlan) -> Floats | None:
    if fleet.certified_observations is None:
        return None
    stretch = stretches(fleet.layout.probe_metrics)
    return normalisers(fleet.contract, clauses, fleet.certified_observations, stretch)


def _thresholds(
    contract: CompiledContract,
    layout: FleetLayout,
    clauses: ClausePlan,
    split: BudgetSplit,
    settings: SequentialSettings,
) -> Thresholds:
    members, traffic = _members(layout), settings.traffic

    def levels(arl0: Floats, subject: str, replicas: int) -> Floats:
        by_factor = guaranteed_thresholds(np.where(clauses.guaranteed, 1.0, settings.traffic_factor) * arl0)
        if traffic is None:
            return by_factor
        calibrated = traffic.levels(arl0, contract, subject, replicas)
        return np.where(clauses.guaranteed | np.isnan(calibrated), by_factor, calibrated)

    # Half of the share is for ``over_slices``; but a replica's traffic is pooled over slices already.
    pooled_already = from_traffic(contract)
    replica = np.where(pooled_already, 1.0, 2.0) * split.replica_arl0
    finite = np.where(np.isfinite(replica) & ~pooled_already, replica, 0.0).max(axis=1)
    whole = np.where(finite > 0.0, finite, np.inf)
    counts = range(2, max(*members, 2) + 1)
    pooled = zip(split.kernel_arl0, members, strict=True)
    return Thresholds(
        replica=np.stack([levels(replica, "replica", count) for count in counts]),
        over_slices=np.stack([levels(whole, "replica", count) for count in counts]),
        kernel=np.stack([levels(arl0, "kernel", count) for arl0, count in pooled]),
        lowered=_lowered(contract, clauses, split.kernel_arl0, settings.lowered_arl0),
        against=guaranteed_threshold(AGAINST_ARL0),
    )


def _members(layout: FleetLayout) -> list[int]:
    """Number of replicas of each kernel."""
    return [int(count) for count in np.bincount(layout.replica_kernel, minlength=len(layout.kernels))]


def _lowered(contract: CompiledContract, clauses: ClausePlan, kernel_arl0: Floats, stated: float) -> Floats:
    """Thresholds [S, C] of a kernel in alarm on another slice.

    They are those of the ``stated`` ARL0, or of a share of the largest ARL0 of any kernel if that is less.
    """
    own = np.where(np.isfinite(kernel_arl0), kernel_arl0, 0.0).max(axis=0)
    arl0 = np.where(own > 0.0, np.minimum(np.maximum(LOWERED_SHARE * own, 2.0), stated), stated)
    probed = (contract.source == Source.PROBE) & (clauses.kind == Kind.BETTING)
    likely = probed & moves_traffic(contract) & contract.applies.T
    return np.where(likely, guaranteed_thresholds(arl0), np.inf)
