"""Recovery without certified values: who stays within what was seen in health keeps the contract.

The test that a mean is kept again has to allow for what differs from prompt to prompt, so it takes hundreds
of probes of a slice. The same prompt on the same build differs less. So while nothing is said against a
replica and its kernel, the worst that each golden prompt gave on the kernel is remembered, and from the worst
follow bounds: half of what their mean leaves up to the limit above them, more of it where values are larger
(``bounds_pass.bound``). Once a prompt has been seen, only what lies within its bound moves it, and nothing is
learned with which *whoever gives the worst everywhere* would break the clause. So a fault that is not found
yet is hardly learned. And whatever was learned, and from whom, who stays within the bounds on every prompt
keeps the clause.

A probe beyond a bound *differs*, and from there on all is as with certified values (``as_certified``): a
subject in alarm, or condemned, comes back when its probes match in a row often enough to reject, at the
confidence of recovery, that half of the share differs which differed while it was ill.

This serves where nothing was certified (running servers: the values of a profile are those of the machine
that measured it) and where repeats are not exact. In health a probe beyond a bound says nothing.
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
from controller.detect.as_certified_pass import RunRules, Told, follow_runs
from controller.detect.bounds_pass import BoundsMemory, BoundsRules, SeenProbes, compare_with_bounds
from controller.detect.certified_drift import DIFFERING_RATIO
from controller.detect.detector import CertifiedFleet, DetectorState, floats
from controller.detect.streams.protocol import Flags

#: Prompts of a slice that are remembered each by itself, at most and at least; what a further one gives is
#: judged as one that was never seen. Between them as many as keep the memory of a fleet within
#: ``MOST_NUMBERS``, so that its state can be kept.
MOST_PROMPTS, LEAST_PROMPTS, MOST_NUMBERS = 64, 16, 20_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BoundsPlan:
    """Settings of a fleet. A clauses on probes."""

    kernels: int
    prompts: int  # that are remembered, of a slice
    clauses: NDArray[np.int64]  # [A], which of the contract's they are
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


def _prompts_within(room: int) -> int:
    return min(MOST_PROMPTS, max(LEAST_PROMPTS, room))


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
    """Nothing seen yet: the arrays of ``BoundsMemory`` and ``runs``; nothing at all without a plan."""
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
    teaches: Flags,
    plan: BoundsPlan,
) -> DetectorState:
    """Memory after the probes that are ``received`` [B, P], ``pooled`` of them for the kernel as well.

    teaches: [B, R], in rotation, and nothing is said against the replica or its kernel.
    """
    after = {**state, "runs": np.array(state["runs"])}
    if not bool(received.any()):
        return after
    plain = np.ascontiguousarray
    replica, places = plain(probes.replica), plain(probes.slice)
    seen = SeenProbes(received, replica, places, plain(probes.prompt), plain(probes.values), teaches)
    told = np.empty(received.shape, dtype=np.int8)
    if compare_with_bounds(tuple(_memory(after)), told, tuple(seen), tuple(plan.rules), False):
        after |= {name: np.array(state[name]) for name in BoundsMemory._fields}
        compare_with_bounds(tuple(_memory(after)), told, tuple(seen), tuple(plan.rules), True)
    about = Told(told=told, replica=replica, slice=places, pooled=pooled)
    follow_runs(floats(after, "runs"), tuple(about), tuple(plan.runs))
    return after


def teachers(replicas: Subjects, kernels: Subjects, in_rotation: Flags, plan: BoundsPlan) -> Flags:
    """bool [B, R]: in rotation, and no clause on probes speaks against the replica or its kernel."""
    own, shared = (some_within(one.ill()[..., plan.clauses], 2) for one in (replicas, kernels))
    well: Flags = np.logical_not(own | shared[:, plan.rules.owner])
    return np.ascontiguousarray(in_rotation & well)


def bounded_runs(state: DetectorState, plan: BoundsPlan, clauses: int) -> CertifiedRuns:
    """Who is let in when its probes match: by the clauses that have bounds; ``clauses`` C in all."""
    known = (np.isfinite(floats(state, "worst")).any(axis=3) | plan.rules.is_rate) & plan.rules.applies
    kept = np.zeros((*known.shape[:3], clauses), dtype=np.bool_)
    kept[..., plan.clauses] = known
    return CertifiedRuns(kept=np.concatenate([kept[:, plan.rules.owner], kept], axis=1), rules=plan.runs)


def _memory(state: DetectorState) -> BoundsMemory:
    return BoundsMemory(prompts=np.asarray(state["prompts"], dtype=np.int64), worst=floats(state, "worst"))
