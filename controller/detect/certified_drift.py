"""Drift of replicas from the certified baseline. Level L1, never a switch.

Every probe is compared with the certified value of its prompt on the replica's kernel, metric by metric. This
is the most sensitive signal, because the spread between prompts cancels. It shows that a replica differs from
the certified build, not that a clause is broken. One e-detector per (replica, metric), over all slices, has
its own ARL0 under the null "certified value times ``exp(repeat_noise z)``". Without repeat noise any
difference is an alarm, and there are no false alarms. A replica in alarm counts as *drifted* until probes
match again at ``confidence``. The null of that test is, without noise, "at least ``DIFFERING_RATIO`` of the
probes still differ", and with noise, "some metric is still ``SHIFT`` standard deviations of a repeat away".

Drift is shown to policies and in explanations. Its ARL0 is chosen such that all false flags together, each
counted for every slice, amount to ``FLAG_SHARE`` of the budget of false switches. They move no traffic, so no
part of that budget is reserved for them.

With ``prior``, an option that is off by default, drift also gives sequential detectors the start of a change.
While a subject has drifted, they run an e-process from that moment on, beside the sum over all start times;
its threshold need not pay for all other start times (``controller.detect.sequential``). Flags then affect
routing, so routing alarms leave ``FLAG_SHARE`` of their budget to false flags. A true drift that keeps every
clause costs false switches through its e-processes: each ever reaches its threshold A with a probability of
at most 1 / A (Ville), however long the replica stays drifted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.certified import CertifiedValues
from contracts.telemetry import ProbeSamples, Source
from contracts.units import SECONDS_PER_MONTH
from controller.detect.as_certified import CertifiedRuns, initial_runs, run_plan
from controller.detect.as_certified_pass import ProbeComparisons, follow_runs
from controller.detect.budget import MOST_ARL0
from controller.detect.certified_drift_pass import ComparedProbes, DriftMemory, DriftRules, compare
from controller.detect.detector import CertifiedFleet, DetectorState, flags, floats
from controller.detect.streams.eprocess import Gaussian
from controller.detect.streams.protocol import Floats, guaranteed_threshold, log_threshold

#: False flags, each counted for all slices, as a share of the contract's budget of false switches.
FLAG_SHARE = 0.1
#: Without repeat noise: drift counts as gone when fewer of the probes differ.
DIFFERING_RATIO = 0.1
#: With repeat noise: drift counts as gone when values are closer than so many standard deviations.
SHIFT = 2.0
#: Shifts of the score in the bets, and their weights: a fault far above the noise scores in the tens.
DRIFT_SHIFTS: tuple[float, ...] = (0.5, 1.0, 2.0, 5.0)
DRIFT_WEIGHTS: tuple[float, ...] = (0.2, 0.25, 0.3, 0.25)


def drift_detector() -> Gaussian:
    """Two-sided detector: a kernel closer to the reference than certified is not the certified one either."""
    return Gaussian(shifts=DRIFT_SHIFTS, weights=DRIFT_WEIGHTS, two_sided=True)


def drift_score(value: Floats, certified: Floats, repeat_noise: float) -> Floats:
    """Score of each ``value`` [N] against its ``certified`` [N] one; NaN where either was not measured.

    repeat_noise: relative standard deviation of a repeat (of the logarithm), >= 0.
    """
    if not (repeat_noise >= 0.0 and math.isfinite(repeat_noise)):
        raise ValueError(f"expected a repeat noise >= 0, got {repeat_noise}")
    unknown = np.isnan(value) | np.isnan(certified)
    same = value == certified
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        distance = np.log(value / certified)
        score = distance / repeat_noise if repeat_noise > 0.0 else np.copysign(np.inf, distance)
    # A value of 0 or of the other sign is no multiple of the certified one: its score is infinite.
    score = np.where(np.isnan(score), np.copysign(np.inf, value - certified), score)
    return np.where(unknown, np.nan, np.where(same, 0.0, score))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DriftPlan:
    """Settings; R replicas, M' compared metrics."""

    certified: CertifiedValues
    #: int64 [R].
    replica_kernel: NDArray[np.int64]
    #: int64 [M'], probe metrics that online clauses read.
    metrics: NDArray[np.int64]
    #: Mean run length to a false alarm, in observations of a stream.
    arl0: float
    #: Threshold of the log-evidence.
    threshold: float
    #: Evidence of a match that ends the drifted state.
    returns: float
    #: Runs of matches that re-certify subjects (None: repeats are not exact).
    runs: CertifiedRuns | None
    #: Sequential detectors take drift as the start of a change.
    prior: bool = False


def drift_plan(
    fleet: CertifiedFleet,
    *,
    budget_per_slice_month: float | None = None,
    confidence: float = 0.95,
    prior: bool = False,
) -> DriftPlan | None:
    """Plan whose false flags amount to ``FLAG_SHARE`` of the budget; None without certified values."""
    contract = fleet.contract
    probed = (contract.source == Source.PROBE) & contract.applies.any(axis=1)
    metrics = np.unique(contract.column[probed]).astype(np.int64)
    if fleet.certified is None or metrics.size == 0:
        return None
    _, slices, replicas = fleet.layout.shape
    allowed = budget_per_slice_month or contract.false_switch_budget_per_slice_month
    flags = FLAG_SHARE * allowed / (replicas * slices * metrics.size)
    arl0 = min(max(fleet.rates.probes_per_s * SECONDS_PER_MONTH / flags, 2.0), MOST_ARL0)
    returns = 1.0 / (1.0 - confidence)
    return DriftPlan(
        certified=fleet.certified,
        replica_kernel=fleet.layout.replica_kernel,
        metrics=metrics,
        arl0=arl0,
        threshold=guaranteed_threshold(arl0),
        returns=returns,
        runs=run_plan(fleet, DIFFERING_RATIO, returns),
        prior=prior,
    )


def initial_drift(batch: int, plan: DriftPlan | None) -> DetectorState:
    """Memory before the first comparison: arrays of ``DriftMemory`` and ``runs``; empty without a plan."""
    if plan is None:
        return {}
    replicas, metrics = plan.replica_kernel.size, plan.metrics.size
    runs = {} if plan.runs is None else {"runs": initial_runs(batch, *plan.runs.kept.shape[:2])}
    return {
        "evidence": np.zeros((batch, replicas, metrics, drift_detector().grid[0].size)),
        "matched": np.ones((batch, replicas, metrics)),
        "drifted": np.zeros((batch, replicas), dtype=np.bool_),
        **runs,
    }


def drift_tick(
    state: DetectorState,
    probes: ProbeSamples,
    received: NDArray[np.bool_],
    plan: DriftPlan | None,
    pooled: NDArray[np.bool_] | None = None,
) -> DetectorState:
    """Memory after the probes that are ``received`` bool [B, P], in their order.

    pooled: bool [B, P], probes that count for the kernel as well (None: all).
    """
    if plan is None:
        return state
    after = {name: np.array(array) for name, array in state.items()}
    memory = DriftMemory(
        evidence=floats(after, "evidence"), matched=floats(after, "matched"), drifted=flags(after, "drifted")
    )
    plain = np.ascontiguousarray
    compared = ComparedProbes(
        received=received,
        replica=plain(probes.replica),
        row=plan.certified.rows(plain(probes.prompt)),
        values=plain(probes.values),
    )
    outcome = np.empty(received.shape, dtype=np.int8)
    compare(memory, outcome, compared, _rules(plan))
    if plan.runs is not None:
        comparisons = ProbeComparisons(
            outcome=outcome,
            replica=compared.replica,
            slice=plain(probes.slice),
            pooled=received if pooled is None else pooled,
        )
        follow_runs(floats(after, "runs"), tuple(comparisons), tuple(plan.runs.rules))
    return after


@lru_cache(maxsize=32)
def _rules(plan: DriftPlan) -> DriftRules:
    """Constants of a plan; plans are compared by object identity."""
    shifts, weights = drift_detector().grid
    return DriftRules(
        certified=plan.certified.values,
        owner=plan.replica_kernel,
        metrics=plan.metrics,
        noise=plan.certified.repeat_noise,
        shifts=shifts,
        weights=weights,
        threshold=log_threshold(np.array([plan.threshold])),
        returns=plan.returns,
        gain=1.0 / (1.0 - DIFFERING_RATIO),
        shift=SHIFT,
    )


def drifted_replicas(state: DetectorState) -> NDArray[np.bool_] | None:
    """bool [B, R]: drifted from the certified baseline; None where probes are not compared."""
    return flags(state, "drifted") if state else None
