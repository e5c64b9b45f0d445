"""From a contract's budget to thresholds: what the sequential detector is set up with, and why it may be.

Alarms of replicas take one half of their share of the budget slice by slice, the other half pooled over
slices: a replica leaves every slice when it is quarantined, so evidence from all of them may be added up.

Axes: R replicas, K kernels, S slices, C clauses, N thresholds beside 1 to N peers.
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

#: Of a replica that is not in alarm but speaks against its kernel, together with one that is.
AGAINST_ARL0 = 100.0
#: Of a kernel that is in alarm on another slice, as a share of its own, where that is less than stated.
LOWERED_SHARE = 0.05
#: Windows without an observation after which an alarm on traffic is let go.
EXPIRY_WINDOWS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SequentialSettings:
    """What may be chosen of a sequential detector; the defaults ship."""

    #: Of recovery, 0 to 1.
    confidence: float = 0.95
    #: By how much the ARL0 of clauses on traffic and gauges is raised: observations are not independent.
    traffic_factor: float = 14.0
    #: Calibrated thresholds instead, for the clauses that it knows (None: for none).
    traffic: TrafficCalibration | None = None
    #: In observations, of a kernel that is in alarm elsewhere (at most ``LOWERED_SHARE`` of its own); and the
    #: reciprocal of the chance of a false alarm of one e-process of a subject that has drifted.
    lowered_arl0: float = 1000.0
    #: False switches per slice-month (None: as the contract says).
    budget_per_slice_month: float | None = None
    #: Bet on the spread of certified values as well.
    spread: bool = True
    #: Compare probes with certified values, where kernels have them, or with what was seen in health.
    drift: bool = False
    #: Take a drift as the moment from which on e-processes are run.
    prior: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """Log-evidence of an alarm (inf: never, or at once as ``ClausePlan.kind`` says)."""

    #: float64 [N, R, S, C], of a replica beside 1 to N peers that serve; on traffic where it is booked alone.
    replica: Floats
    #: float64 [N, R, C], of a replica, pooled over slices; inf on traffic, which is so as it is.
    over_slices: Floats
    #: float64 [K, S, C].
    kernel: Floats
    #: float64 [S, C], of a kernel that is in alarm on another slice.
    lowered: Floats
    #: Where a replica speaks against its kernel together with one that is in alarm.
    against: float

    def beside_all(self, owner: NDArray[np.int64]) -> tuple[Floats, Floats]:
        """``replica`` [R, S, C] and ``over_slices`` [R, C] while all peers serve; owner: int64 [R]."""
        each, others = np.arange(owner.size), np.bincount(owner)[owner] - 1
        received = np.clip(others, 1, len(self.replica)) - 1
        return self.replica[received, each], self.over_slices[received, each]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SequentialPlan:
    """All that a ``SequentialDetector`` of one contract and fleet is set up with."""

    contract: CompiledContract
    clauses: ClausePlan
    thresholds: Thresholds
    #: The budget, for reports.
    split: BudgetSplit
    #: What compiled passes read, of kernels.
    evidence_plan: EvidencePlan
    #: The same, of replicas.
    replica_evidence_plan: EvidencePlan
    #: Of recovery.
    confidence: float
    #: Tells whether a replica has drifted, and whether e-processes are run from then on (None: nobody does).
    drift: DriftPlan | None
    #: Compares probes with what was seen in health, where certified values do not serve (None: nobody does).
    bounds: BoundsPlan | None
    #: int64 [R], whose replicas are peers.
    owner: NDArray[np.int64]
    #: Time constant of the sums by which peers are compared.
    memory_s: float
    #: Silence after which an alarm on traffic is let go.
    expiry_s: float


def sequential_plan(fleet: CertifiedFleet, settings: SequentialSettings | None = None) -> SequentialPlan:
    """Plan whose false switches per slice-month stay within the contract's budget, or the stated one."""
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
    """Whether nobody is let in again by certified values."""
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
        stated = guaranteed_thresholds(np.where(clauses.guaranteed, 1.0, settings.traffic_factor) * arl0)
        if traffic is None:
            return stated
        known = traffic.levels(arl0, contract, subject, replicas)
        return np.where(clauses.guaranteed | np.isnan(known), stated, known)

    # Half of the share is for ``over_slices``; but a replica's traffic is pooled over slices as it is.
    pooled_already = from_traffic(contract)
    replica = np.where(pooled_already, 1.0, 2.0) * split.replica_arl0
    finite = np.where(np.isfinite(replica) & ~pooled_already, replica, 0.0).max(axis=1)
    whole = np.where(finite > 0.0, finite, np.inf)
    received = range(2, max(*members, 2) + 1)
    pooled = zip(split.kernel_arl0, members, strict=True)
    return Thresholds(
        replica=np.stack([levels(replica, "replica", count) for count in received]),
        over_slices=np.stack([levels(whole, "replica", count) for count in received]),
        kernel=np.stack([levels(arl0, "kernel", count) for arl0, count in pooled]),
        lowered=_lowered(contract, clauses, split.kernel_arl0, settings.lowered_arl0),
        against=guaranteed_threshold(AGAINST_ARL0),
    )


def _members(layout: FleetLayout) -> list[int]:
    """Replicas of each kernel."""
    return [int(count) for count in np.bincount(layout.replica_kernel, minlength=len(layout.kernels))]


def _lowered(contract: CompiledContract, clauses: ClausePlan, kernel_arl0: Floats, stated: float) -> Floats:
    """Thresholds [S, C] elsewhere: of the ``stated`` ARL0, or a share of the largest that a kernel has
    itself.
    """
    own = np.where(np.isfinite(kernel_arl0), kernel_arl0, 0.0).max(axis=0)
    arl0 = np.where(own > 0.0, np.minimum(np.maximum(LOWERED_SHARE * own, 2.0), stated), stated)
    probed = (contract.source == Source.PROBE) & (clauses.kind == Kind.BETTING)
    likely = probed & moves_traffic(contract) & contract.applies.T
    return np.where(likely, guaranteed_thresholds(arl0), np.inf)
