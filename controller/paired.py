"""The paired form at work: is each replica still what was certified? Information of level L1, never a switch.

Every probe is compared with the certified value of its prompt on the replica's kernel, metric by metric
(``contracts.detect.paired``). One e-detector per (replica, metric), over all slices, has its own ARL0 under
the null "certified value times ``exp(repeat_noise z)``"; without repeat noise any difference is an alarm and
the null never is. A replica in alarm counts as *changed* until probes match again at ``confidence``: of the
null "at least ``DIFFERING_SHARE`` of the probes still differ" without noise, "some metric is still ``SHIFT``
standard deviations of a repeat away" with it.

What it is good for: it is shown to policies and in explanations. Its ARL0 is such that all false flags
together, each counted for every slice, come to ``FLAG_SHARE`` of the budget of false switches. They move
nothing, so no part of that budget is kept for them.

With ``prior``, an option that is off by default, it tells sequential detectors when a change began as well.
While a replica is changed they run an e-process from that moment on, beside the sum over all starts, whose
threshold need not pay for all the other moments (``controller.sequential``). Flags are then no longer
information alone, and routing alarms leave ``FLAG_SHARE`` of their budget to false ones. A true change that
keeps every clause costs false switches through its e-processes: each reaches its threshold A, ever, with
probability at most 1 / A (Ville), however long the flag stands.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from contracts.certified import CertifiedValues
from contracts.compiled import Source
from contracts.detect.budget import MONTH_S, MOST_ARL0
from contracts.detect.calibrate import guaranteed_threshold
from contracts.detect.fold_compiled import both_levels
from contracts.detect.paired import paired_detector
from contracts.telemetry import ProbeSamples
from controller.detectors import DetectorState
from controller.paired_compiled import compare

if TYPE_CHECKING:  # the set-up holds a plan
    from controller.setup import FleetSetup

#: False flags, each counted for all slices, as a share of the contract's budget of false switches.
FLAG_SHARE = 0.1
#: Without repeat noise: a change counts as gone when fewer of the probes differ.
DIFFERING_SHARE = 0.1
#: With repeat noise: a change counts as gone when values are closer than so many standard deviations.
SHIFT = 2.0

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedPlan:
    """Settings. replica_kernel: int64 [R]. metrics: int64 [M'], probe metrics that online clauses read.

    arl0: in units of a stream. threshold: of the log-evidence. returns: evidence of a match that ends a flag.
    prior: alarms take a flag as the beginning of a change.
    """

    certified: CertifiedValues
    replica_kernel: NDArray[np.int64]
    metrics: NDArray[np.int64]
    arl0: float
    threshold: float
    returns: float
    prior: bool = False


def paired_plan(
    fleet: FleetSetup, *, budget_per_slice_month: float | None = None, confidence: float = 0.95,
    prior: bool = False,
) -> PairedPlan | None:  # fmt: skip
    """Plan whose false flags come to ``FLAG_SHARE`` of the budget; None where nothing was certified."""
    contract = fleet.contract
    probed = (contract.source == Source.PROBE) & contract.applies.any(axis=1)
    metrics = np.unique(contract.column[probed]).astype(np.int64)
    if fleet.certified is None or metrics.size == 0:
        return None
    _, slices, replicas = fleet.layout.shape
    allowed = budget_per_slice_month or contract.false_switch_budget_per_slice_month
    flags = FLAG_SHARE * allowed / (replicas * slices * metrics.size)
    arl0 = min(max(fleet.rates.probes_per_s * MONTH_S / flags, 2.0), MOST_ARL0)
    return PairedPlan(
        certified=fleet.certified, replica_kernel=fleet.layout.replica_kernel, metrics=metrics, arl0=arl0,
        threshold=guaranteed_threshold(arl0),
        returns=1.0 / (1.0 - confidence), prior=prior,
    )  # fmt: skip


def initial_paired(batch: int, plan: PairedPlan | None) -> DetectorState:
    """Nothing compared yet: evidence float64 [B, R, M', 2 G], matched [B, R, M'], changed bool [B, R]."""
    if plan is None:
        return {}
    replicas, metrics = plan.replica_kernel.size, plan.metrics.size
    return {
        "evidence": np.zeros((batch, replicas, metrics, paired_detector().grid[0].size)),
        "matched": np.ones((batch, replicas, metrics)),
        "changed": np.zeros((batch, replicas), dtype=np.bool_),
    }


def paired_tick(
    state: DetectorState, probes: ProbeSamples, heard: NDArray[np.bool_], plan: PairedPlan | None
) -> DetectorState:
    """Memory after the probes that are ``heard`` bool [B, P], in their order."""
    if plan is None:
        return state
    certified = plan.certified
    after = {name: np.array(array) for name, array in state.items()}
    plain, (shifts, weights) = np.ascontiguousarray, paired_detector().grid
    level = both_levels(np.array(plan.threshold))
    compare(
        np.asarray(after["evidence"], dtype=np.float64), np.asarray(after["matched"], dtype=np.float64),
        np.asarray(after["changed"], dtype=np.bool_), heard, plain(probes.replica),
        certified.rows(plain(probes.prompt)), plain(probes.values), certified.values,
        plan.replica_kernel, plan.metrics, certified.repeat_noise, shifts, weights, level,
        plan.returns, 1.0 / (1.0 - DIFFERING_SHARE), SHIFT,
    )  # fmt: skip
    return after


def changed_replicas(state: DetectorState) -> NDArray[np.bool_] | None:
    """bool [B, R]: not what was certified; None where nobody compares."""
    return np.asarray(state["changed"], dtype=np.bool_) if state else None
