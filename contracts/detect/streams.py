"""The fold from a controller's tick to stream updates, and how to wire it in.

A stream is one (fleet, unit, slice, clause); a unit is a replica, or a kernel that pools its replicas.
Evidence arrays are [B, U, S, C, G]: the e-SR detector of ``clauses.plan_clauses`` in every cell.

Wiring, exact: once per tick,

1. ``plan = stream_plan(contract, split_budget(contract, layout, rates))``;
2. ``fold_probes(state, seen.probes, heard, unit_of, plan)`` with ``unit_of = arange(R)`` for replicas or
   ``layout.replica_kernel`` for kernels, and ``heard`` False for stale probes (and, for kernels, those of
   quarantined replicas). Several probes of one stream in one tick are taken in their order in the list;
3. ``fold_units(state, *tick_units(increments, plan), plan)`` for traffic and gauges, with this tick's sums
   (``COUNT, TOTAL, SQUARES, OVER``) of those clauses: one unit per stream and scrape, the share over the
   threshold, because requests between two scrapes are not independent;
4. ``alarm = alarms(state, thresholds)``, ``excess = relative_excess(state, plan)``. An alarm stays until
   ``inside(state, return_arl0)`` says that the clause holds again; then, and when a replica is restarted,
   ``reset(state, mask)``. A pool of replicas changes its meaning when they leave or join: reset it too.

Wiring, as a drop-in for a detector that is given running sums of a window: ``increments = sums - sums of
the tick before`` (sums themselves after a window closed), then step 3 for probes too: the units of one
tick and stream are averaged into one, which keeps the guarantee and loses speed only where there are several.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contracts.compiled import CompiledContract, Source
from contracts.detect.budget import BudgetSplit
from contracts.detect.calibrate import guaranteed_threshold
from contracts.detect.clauses import ClausePlan, Kind, plan_clauses
from contracts.detect.fold_compiled import CERTAIN, fold_one_each, fold_probe_list
from contracts.detect.protocol import LOWEST, Flags, Floats
from contracts.detect.recovery import SHARES
from contracts.telemetry import ProbeSamples

#: Last axis of sums arrays, as the controller keeps them.
COUNT, TOTAL, SQUARES, OVER = 0, 1, 2, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPlan:
    """What the fold needs of a contract. applies: bool [C, S], online clauses only.

    replica_threshold, kernel_threshold: float64 [R or K, S, C], log-evidence of an alarm: the guaranteed one
    of the stream's ARL0 (inf: no stream). Raise those of traffic clauses to calibrated ones.
    """

    contract: CompiledContract
    clauses: ClausePlan
    applies: Flags
    replica_threshold: Floats
    kernel_threshold: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """State of all streams. evidence: float64 [B, U, S, C, G]; statistic [B, U, S, C], its logarithm.

    since: float64 [B, U, S, C, 2], units and their sum since the evidence last stood below 1.
    health: float64 [B, U, S, C, H], evidence that the clause holds; healthy [B, U, S, C], its logarithm.
    """

    evidence: Floats
    statistic: Floats
    since: Floats
    health: Floats
    healthy: Floats


def stream_plan(contract: CompiledContract, split: BudgetSplit) -> StreamPlan:
    """Detectors and thresholds of every stream; clauses that alarm at once stand at ``CERTAIN``."""
    clauses = plan_clauses(contract)
    applies = contract.applies & (contract.source != Source.OFFLINE)[:, None]
    return StreamPlan(
        contract=contract, clauses=clauses, applies=np.ascontiguousarray(applies),
        replica_threshold=_thresholds(split.replica_arl0, clauses, applies),
        kernel_threshold=_thresholds(split.kernel_arl0, clauses, applies),
    )  # fmt: skip


def _thresholds(arl0: Floats, clauses: ClausePlan, applies: Flags) -> Floats:
    finite = np.isfinite(arl0)
    levels = np.full(arl0.shape, np.inf)
    levels[finite] = [guaranteed_threshold(float(value)) for value in arl0[finite]]
    at_once = (clauses.kind == Kind.AT_ONCE) & applies.T
    return np.where(at_once, CERTAIN, levels)


def initial_evidence(batch: int, units: int, plan: StreamPlan) -> Evidence:
    """No evidence anywhere."""
    clauses, groups = plan.clauses.bets.shape
    shape = (batch, units, plan.applies.shape[1], clauses)
    return Evidence(
        evidence=np.zeros((*shape, groups)), statistic=np.full(shape, LOWEST), since=np.zeros((*shape, 2)),
        health=np.zeros((*shape, len(SHARES))), healthy=np.full(shape, LOWEST),
    )  # fmt: skip


def _copied(state: Evidence) -> Evidence:
    return Evidence(
        evidence=state.evidence.copy(), statistic=state.statistic.copy(), since=state.since.copy(),
        health=state.health.copy(), healthy=state.healthy.copy(),
    )  # fmt: skip


def fold_probes(
    state: Evidence, probes: ProbeSamples, heard: Flags, unit_of: NDArray[np.int64], plan: StreamPlan
) -> Evidence:
    """Evidence after the probes that are ``heard`` bool [B, P]; ``unit_of`` int64 [R]: replica to unit."""
    after = _copied(state)
    fold_probes_into(after, probes, heard, unit_of, plan)
    return after


def fold_probes_into(
    state: Evidence, probes: ProbeSamples, heard: Flags, unit_of: NDArray[np.int64], plan: StreamPlan
) -> None:
    """As ``fold_probes``, in place: for callers that own ``state``."""
    contract, clauses, plain = plan.contract, plan.clauses, np.ascontiguousarray
    fold_probe_list(
        state.evidence, state.statistic, state.since, state.health, state.healthy, unit_of,
        heard & probes.valid, plain(probes.replica), plain(probes.slice), plain(probes.values),
        contract.source, contract.column, contract.threshold, contract.sense, plan.applies, clauses.kind,
        clauses.is_rate, clauses.mirrored, clauses.upper, clauses.clip, clauses.null_mean, clauses.bets,
        clauses.weights, clauses.health_null, clauses.health_upper,
    )  # fmt: skip


def tick_units(increments: Floats, plan: StreamPlan) -> tuple[Floats, Flags]:
    """One unit per stream from this tick's sums [B, U, S, C, 4]: value and presence, both [B, U, S, C]."""
    clauses, count = plan.clauses, increments[..., COUNT]
    present = count > 0.0
    units = np.where(present, count, 1.0)
    mean = increments[..., TOTAL] / units
    value = np.where(clauses.mirrored, clauses.upper - mean, np.minimum(mean, clauses.clip))
    value = np.where(clauses.is_rate, increments[..., OVER] / units, value)
    return np.maximum(value, 0.0), present


def fold_units(state: Evidence, value: Floats, present: Flags, plan: StreamPlan) -> Evidence:
    """Evidence after one unit per stream where ``present``; see ``tick_units``."""
    after, clauses, plain = _copied(state), plan.clauses, np.ascontiguousarray
    fold_one_each(
        after.evidence, after.statistic, after.since, after.health, after.healthy, plain(value),
        plain(present), plan.applies, clauses.kind, clauses.null_mean, clauses.bets, clauses.weights,
        clauses.health_null, clauses.health_upper,
    )  # fmt: skip
    return after


def alarms(state: Evidence, threshold: Floats) -> Flags:
    """bool [B, U, S, C]: the clause is broken, as far as the evidence goes; ``threshold`` [U, S, C]."""
    return np.asarray(state.statistic >= threshold)


def inside(state: Evidence, return_arl0: float) -> Flags:
    """bool [B, U, S, C]: evidence shows that the clause holds.

    A stream whose clause is still broken is called inside at most once in ``return_arl0`` of its units on
    average (best start, guaranteed).
    """
    return np.asarray(state.healthy >= guaranteed_threshold(return_arl0))


def relative_excess(state: Evidence, plan: StreamPlan) -> Floats:
    """float64 [B, U, S, C]: how far units since the likely change lie beyond the limit, as a share of it."""
    units = np.maximum(state.since[..., 0], 1.0)
    null = np.where(plan.clauses.kind == Kind.BETTING, plan.clauses.null_mean, 0.0)
    return np.asarray(np.maximum(state.since[..., 1] / units - null, 0.0) / plan.clauses.scale)


def reset(state: Evidence, mask: Flags) -> Evidence:
    """Evidence that starts anew where ``mask`` bool [B, U, S, C]."""
    return Evidence(
        evidence=np.where(mask[..., None], 0.0, state.evidence),
        statistic=np.where(mask, LOWEST, state.statistic),
        since=np.where(mask[..., None], 0.0, state.since),
        health=np.where(mask[..., None], 0.0, state.health),
        healthy=np.where(mask, LOWEST, state.healthy),
    )
