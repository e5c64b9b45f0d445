"""From a contract's budget to thresholds: what the sequential detector is set up with, and why it may be.

Alarms of replicas take one half of their share of the budget slice by slice, the other half over all slices
at once: a replica leaves every slice when it is quarantined, so evidence from all of them may be added up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contracts.compiled import CompiledContract
from contracts.detect.budget import Budget, BudgetSplit, split_budget
from contracts.detect.calibrate import guaranteed_threshold
from contracts.detect.clauses import ClausePlan, Kind, plan_clauses
from contracts.detect.fold_compiled import FoldPlan, fold_plan
from contracts.detect.recovery import clean_gain
from contracts.detect.spread import normalisers, stretches
from contracts.detect.traffic import TrafficCalibration
from controller.detectors import moves_traffic
from controller.paired import FLAG_SHARE, PairedPlan, paired_plan
from controller.setup import FleetSetup

#: Of a replica that is not in alarm but speaks against its kernel, together with one that is.
AGAINST_ARL0 = 100.0
#: Of a kernel that is in alarm on another slice, as a share of its own, where that is less than stated.
SUSPECT_SHARE = 0.05

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """Log-evidence of an alarm (inf: never, or at once as ``ClausePlan.kind`` says).

    replica: float64 [H, R, S, C], beside 1 to H siblings that are heard; anywhere: float64 [H, R, C], of a
    replica over all slices; kernel: float64 [K, S, C]; suspect: float64 [S, C], of a kernel that is in alarm
    on another slice; against: where a replica speaks against its kernel together with one that is in alarm.
    """

    replica: Floats
    anywhere: Floats
    kernel: Floats
    suspect: Floats
    against: float

    def beside_all(self, owner: NDArray[np.int64]) -> tuple[Floats, Floats]:
        """``replica`` [R, S, C] and ``anywhere`` [R, C] while all siblings are heard; owner: int64 [R]."""
        each, others = np.arange(owner.size), np.bincount(owner)[owner] - 1
        heard = np.clip(others, 1, len(self.replica)) - 1
        return self.replica[heard, each], self.anywhere[heard, each]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SequentialPlan:
    """Settings of the sequential detector.

    fold, replica_fold: clause arrays that the compiled fold reads, of kernels and of replicas. confidence: of
    recovery. owner: int64 [R], whose replicas are siblings. memory_s: time constant of the sums by which they
    are compared. paired: tells whether a unit has changed (None: nobody does) and whether e-processes are run
    from then on. expiry_s: silence after which an alarm on traffic is let go. split: the budget, for reports.
    """

    contract: CompiledContract
    clauses: ClausePlan
    thresholds: Thresholds
    split: BudgetSplit
    fold: FoldPlan
    replica_fold: FoldPlan
    confidence: float
    paired: PairedPlan | None
    owner: NDArray[np.int64]
    memory_s: float
    expiry_s: float


def sequential_plan(
    fleet: FleetSetup, *, confidence: float = 0.95, traffic_factor: float = 14.0,
    suspect_arl0: float = 1000.0, budget_per_slice_month: float | None = None, expiry_windows: float = 5.0,
    spread: bool = True, paired: bool = False, prior: bool = False,
    traffic: TrafficCalibration | None = None,
) -> SequentialPlan:  # fmt: skip
    """Plan whose false switches per slice-month stay within the contract's budget, or the given one.

    confidence: of recovery. traffic_factor: by how much the ARL0 of clauses on traffic and gauges is raised,
    whose units are not independent; traffic: calibrated thresholds instead, for the clauses that it knows.
    suspect_arl0: in units, of a kernel that is in alarm elsewhere (at most ``SUSPECT_SHARE`` of its own); and
    the reciprocal of the chance of a false alarm of one e-process of a unit that has changed. paired: compare
    probes with certified values, where kernels have them; prior: and take a change as the moment from which
    on e-processes are run. spread: bet on the spread of certified units as well.
    """
    contract = fleet.contract
    allowed = budget_per_slice_month or contract.false_switch_budget_per_slice_month
    compared = None
    if paired:
        compared = paired_plan(fleet, budget_per_slice_month=allowed, confidence=confidence, prior=prior)
    kept = allowed
    if compared is not None and compared.prior:
        kept = allowed * (1.0 - FLAG_SHARE)  # the rest is for false flags
    split = split_budget(contract, fleet.layout, fleet.rates, Budget(per_slice_month=kept))
    clauses, gain = plan_clauses(contract), clean_gain(confidence, contract.min_samples)
    psi = _spread(fleet, clauses) if spread else None
    return SequentialPlan(
        contract=contract,
        clauses=clauses,
        thresholds=_thresholds(fleet, clauses, split, traffic_factor, suspect_arl0, traffic),
        split=split,
        fold=fold_plan(contract, clauses, gain, psi),
        replica_fold=fold_plan(
            contract, clauses, gain, None if psi is None else psi[fleet.layout.replica_kernel]
        ),
        confidence=confidence,
        paired=compared,
        owner=fleet.layout.replica_kernel,
        memory_s=contract.window_s,
        expiry_s=expiry_windows * contract.window_s,
    )


def _spread(fleet: FleetSetup, clauses: ClausePlan) -> Floats | None:
    if fleet.certified_units is None:
        return None
    stretch = stretches(fleet.layout.probe_metrics)
    return normalisers(fleet.contract, clauses, fleet.certified_units, stretch)


def _thresholds(
    fleet: FleetSetup, clauses: ClausePlan, split: BudgetSplit, traffic_factor: float,
    suspect_arl0: float, traffic: TrafficCalibration | None,
) -> Thresholds:  # fmt: skip
    contract, members = fleet.contract, _members(fleet)

    def levels(arl0: Floats, unit: str, replicas: int) -> Floats:
        stated = _levels(np.where(clauses.guaranteed, 1.0, traffic_factor) * arl0)
        if traffic is None:
            return stated
        known = traffic.levels(arl0, contract, unit, replicas)
        return np.where(clauses.guaranteed | np.isnan(known), stated, known)

    replica = 2.0 * split.replica_arl0  # the other half of the share is for ``anywhere``
    probed = clauses.guaranteed & (clauses.kind == Kind.BETTING)
    finite = np.where(np.isfinite(replica), replica, 0.0).max(axis=1)
    whole = np.where(finite > 0.0, finite, np.inf)
    suspects = probed & moves_traffic(contract) & contract.applies.T
    heard = range(2, max(*members, 2) + 1)
    return Thresholds(
        replica=np.stack([levels(replica, "replica", count) for count in heard]),
        anywhere=np.stack([levels(whole, "anywhere", count) for count in heard]),
        kernel=np.stack([
            levels(arl0, "kernel", count) for arl0, count in zip(split.kernel_arl0, members, strict=True)
        ]),
        suspect=np.where(suspects, _levels(_suspected(split.kernel_arl0, suspect_arl0)), np.inf),
        against=guaranteed_threshold(AGAINST_ARL0),
    )  # fmt: skip


def _members(fleet: FleetSetup) -> list[int]:
    """Replicas of each kernel."""
    layout = fleet.layout
    return [int(count) for count in np.bincount(layout.replica_kernel, minlength=len(layout.kernels))]


def _suspected(kernel_arl0: Floats, stated: float) -> Floats:
    """ARL0 [S, C] of suspects: as ``stated``, or a share of the largest that a kernel has of its own."""
    own = np.where(np.isfinite(kernel_arl0), kernel_arl0, 0.0).max(axis=0)
    return np.where(own > 0.0, np.minimum(np.maximum(SUSPECT_SHARE * own, 2.0), stated), stated)


def _levels(arl0: Floats) -> Floats:
    """Guaranteed log-evidence of each ARL0; inf stays."""
    levels = np.full(arl0.shape, math.inf)
    finite = np.isfinite(arl0)
    levels[finite] = [guaranteed_threshold(float(value)) for value in arl0[finite]]
    return levels
