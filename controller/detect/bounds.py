"""Recovery without certified values: a subject within bounds learned in health keeps the contract.

The test that a mean is kept again has to allow for differences between prompts, so it takes hundreds of
probes of a slice. Values of the same prompt on the same build differ less. So while a replica and its kernel
are healthy, the worst value of each golden prompt on the kernel is remembered. The bounds follow from these
values: each lies above its worst value, by half of the margin between the mean of the worst values and the
limit, in larger part where values are larger (``bounds_pass.bound``). Once a prompt was observed, only values
within its bound move the bound. No value is learned if a subject that gives the worst value on every prompt
would then break the clause. So an undetected fault is hardly learned. And whatever was learned, and from
which replica, a subject within the bounds on every prompt keeps the clause.

A probe beyond a bound *differs*. The rest is as with certified values (``as_certified``): a subject in alarm
or condemned is re-certified when enough consecutive probes match. They must reject, at the confidence of
recovery, the hypothesis that probes differ at half of the share at which they differed during the fault.

This serves fleets without certified values (running servers: the values of a profile are those of the machine
that measured it) and builds without exact repeats. In health, a probe beyond a bound is no evidence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.contract import CompiledContract
from contracts.telemetry import ProbeSamples, Source
from controller.cells import some_within
from controller.detect.as_certified import CertifiedRuns, Subjects, initial_runs
from controller.detect.as_certified_pass import ProbeComparisons, RunRules, follow_runs
from controller.detect.bounds_pass import BoundedProbes, BoundsMemory, BoundsRules, compare_with_bounds
from controller.detect.certified_drift import DIFFERING_RATIO
from controller.detect.detector import CertifiedFleet, DetectorState, floats
from controller.detect.streams.protocol import Flags

#: Upper and lower bound of the prompts of a slice with a memory of their own; any further prompt is judged
#: like one never observed. Between them, as many as keep the memory of a fleet within ``MOST_NUMBERS``, so
#: that its state stays small enough to be stored.
MOST_PROMPTS, LEAST_PROMPTS, MOST_NUMBERS = 64, 16, 20_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BoundsPlan:
    """Settings of a fleet. A clauses on probes."""

    kernels: int
    prompts: int  # remembered per slice
    clauses: NDArray[np.int64]  # [A], places of these clauses in the contract
    rules: BoundsRules
    runs: RunRules


def bounds_plan(fleet: CertifiedFleet, *, confidence: float) -> BoundsPlan | None:
    """Plan of recovery at ``confidence``; None where no clause is on probes."""
    contract, owner = fleet.contract, fleet.layout.replica_kernel
    clauses = np.flatnonzero((contract.source == Source.PROBE) & contract.applies.any(axis=1))
    if not clauses.size:
        return None
    return BoundsPlan(
        kernels=fleet.layout.shape[0],
        prompts=_prompts_within(
            MOST_NUMBERS // (fleet.layout.shape[0] * clauses.size * len(contract.slices))
        ),
        clauses=clauses.astype(np.int64),
        rules=_rules(contract, clauses, owner),
        runs=RunRules(owner=owner, most_ratio=DIFFERING_RATIO, returns=-math.log(1.0 - confidence)),
    )


def _prompts_within(budget: int) -> int:
    return min(MOST_PROMPTS, max(LEAST_PROMPTS, budget))


def _rules(contract: CompiledContract, chosen: NDArray[np.intp], owner: NDArray[np.int64]) -> BoundsRules:
    sense = contract.sense[chosen]
    return BoundsRules(
        owner=owner,
        column=contract.column[chosen],
        sense=sense,
        limit=sense * contract.threshold[chosen],
        clip=contract.clip[chosen],
        is_rate=contract.is_rate[chosen],
        rate_limit=contract.rate_limit[chosen],
        applies=np.ascontiguousarray(contract.applies[chosen].T),
    )


def initial_bounds(batch: int, plan: BoundsPlan | None) -> DetectorState:
    """Empty memory: the arrays of ``BoundsMemory`` and ``runs``; an empty dictionary without a plan."""
    if plan is None:
        return {}
    slices, clauses = plan.rules.applies.shape
    return {
        "prompts": np.full((batch, slices, plan.prompts), -1, dtype=np.int64),
        "worst": np.full((batch, plan.kernels, slices, plan.prompts, clauses), np.nan),
        "runs": initial_runs(batch, plan.rules.owner.size + plan.kernels, slices),
    }


def bounds_tick(
    state: DetectorState,
    probes: ProbeSamples,
    received: Flags,
    pooled: Flags,
    healthy: Flags,
    plan: BoundsPlan,
) -> DetectorState:
    """Memory after the probes that are ``received`` [B, P]; ``pooled`` ones count for the kernel as well.

    healthy: bool [B, R], replicas in rotation that are healthy like their kernel; only they are learned from.
    """
    after = {**state, "runs": np.array(state["runs"])}
    if not bool(received.any()):
        return after
    plain = np.ascontiguousarray
    replica, places = plain(probes.replica), plain(probes.slice)
    batch = BoundedProbes(received, replica, places, plain(probes.prompt), plain(probes.values), healthy)
    outcome = np.empty(received.shape, dtype=np.int8)
    if compare_with_bounds(tuple(_memory(after)), outcome, tuple(batch), tuple(plan.rules), False):
        after |= {name: np.array(state[name]) for name in BoundsMemory._fields}
        compare_with_bounds(tuple(_memory(after)), outcome, tuple(batch), tuple(plan.rules), True)
    comparisons = ProbeComparisons(outcome=outcome, replica=replica, slice=places, pooled=pooled)
    follow_runs(floats(after, "runs"), tuple(comparisons), tuple(plan.runs))
    return after


def healthy_replicas(replicas: Subjects, kernels: Subjects, in_rotation: Flags, plan: BoundsPlan) -> Flags:
    """bool [B, R]: in rotation, and no clause on probes is in alarm or condemned for it or its kernel."""
    own, shared = (some_within(s.unhealthy()[..., plan.clauses], 2) for s in (replicas, kernels))
    healthy: Flags = np.logical_not(own | shared[:, plan.rules.owner])
    return np.ascontiguousarray(in_rotation & healthy)


def bounded_runs(state: DetectorState, plan: BoundsPlan, clauses: int) -> CertifiedRuns:
    """Runs by which subjects are re-certified, on clauses with bounds; ``clauses``: their total number C."""
    known = (np.isfinite(floats(state, "worst")).any(axis=3) | plan.rules.is_rate) & plan.rules.applies
    kept = np.zeros((*known.shape[:3], clauses), dtype=np.bool_)
    kept[..., plan.clauses] = known
    return CertifiedRuns(kept=np.concatenate([kept[:, plan.rules.owner], kept], axis=1), rules=plan.runs)


def _memory(state: DetectorState) -> BoundsMemory:
    return BoundsMemory(prompts=np.asarray(state["prompts"], dtype=np.int64), worst=floats(state, "worst"))
