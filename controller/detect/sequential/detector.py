"""Sequential detector: every clause stream runs an e-detector with its share of the contract's budget.

Alarm: the evidence that the clause is broken (sum over start times of betting e-values, ``streams.eprocess``)
has reached the threshold of the stream's ARL0. The budget of false switches per slice-month is split over
replicas, kernels, slices and clauses (``controller.detect.budget``). An alarm is latched and the evidence
starts anew; another alarm restarts the recovery test.

A scrape of a replica is weighed by its peers' last scrapes where those are beyond the limit (``peers``): a
queue caused by load is long on all replicas, that of a slow host only on one. A shared excess is left to the
kernel's own streams. Calibrated thresholds depend on the number of peers that serve.

Replicas are watched slice by slice and, because quarantine removes them from every slice, also pooled over
slices. Pooled, every probe counts, a scrape is one observation whatever its size, and the alarm is booked to
the slice with the largest evidence of the replica.

Lowered thresholds: a fault of a build that is proven on one slice is likely on the others. While a probe
clause of a kernel is in alarm on a slice, its streams of probes on other slices raise an alarm at
``lowered_arl0`` observations, or at a twentieth of their own ARL0 if that is less. This costs false switches
only where the kernel is proven broken on another slice, or had a false alarm there within the budget.

Recovery: an e-process of the null "still broken" that starts with the alarm and ends the latch at
``confidence``. A clause on traffic cannot be tested without traffic. Its alarm ends after ``expiry_s``
without observations, as with windows; the half-open return then tests the kernel again.

| observations | alarm threshold |
|---|---|
| probes | guaranteed: independent prompts, mean or rate at most the clause's limit |
| latency, KV use | calibrated by blocks (``controller.detect.traffic``), one observation per scrape |
| latency of a kernel | and persistent gross lateness (``standing``), outside any budget |
| other traffic and gauges | of ``traffic_factor`` times the ARL0, one per scrape; not guaranteed |
| limit 0 | the first observation over the threshold, outside any budget |

Scrapes of one replica are correlated through its queue. So the condition of guaranteed thresholds
(observations that are fair given the past) does not hold for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.contract import CompiledContract
from controller.detect.bounds import BoundsPlan
from controller.detect.certified_drift import DriftPlan
from controller.detect.clauses import Kind, from_traffic, moves_traffic, needs_traffic
from controller.detect.detector import (
    AlarmState,
    DetectorState,
    EvidenceBatch,
    blanked,
    flags,
    floats,
)
from controller.detect.sequential.advance import advance
from controller.detect.sequential.alarms import nearest_alarm
from controller.detect.sequential.evidence import HEALTHS, blank_cells
from controller.detect.sequential.peers import compared_clauses
from controller.detect.sequential.plan import SequentialPlan
from controller.detect.sequential.records import ArrivedObservations, Levels, Streams, TickAlarms
from controller.detect.sequential.standing import MOST_GAP_WINDOWS, standing_after_s
from controller.detect.streams.protocol import Flags, Floats, log_threshold
from controller.detect.sums import Sums

#: Arrays of the memory that are pooled over slices: their third axis has length 1.
_POOLED = ("over_slices", "prior_evidence_over_slices")


@dataclass(frozen=True, slots=True, kw_only=True)
class SequentialDetector:
    """Detector of ``plan``'s contract and fleet; see the module."""

    plan: SequentialPlan

    @property
    def by_observation(self) -> bool:
        """True: it judges every observation on arrival."""
        return True

    @property
    def drift(self) -> DriftPlan | None:
        """Comparison of probes with certified values (None: not done)."""
        return self.plan.drift

    @property
    def bounds(self) -> BoundsPlan | None:
        """Comparison of probes with bounds learned in health (None: not done)."""
        return self.plan.bounds

    def initial(self, batch: int, subjects: int, contract: CompiledContract) -> DetectorState:
        """Memory without evidence: the arrays of ``Streams``.

        Both arrays of ``prior_evidence`` have a last axis of length 0 without a prior.
        """
        shape = (batch, subjects, len(contract.slices), len(contract.clause_ids))
        drift = self.plan.drift
        bets = self.plan.clauses.bets.shape[1] if drift is not None and drift.prior else 0
        return {
            "cells": blank_cells(*shape),
            "over_slices": blank_cells(batch, subjects, 1, len(contract.clause_ids)),
            "health": np.ones((*shape, HEALTHS)),
            "tested": np.zeros(shape, dtype=np.bool_),
            "silent_s": np.zeros(shape),
            "standing_s": np.zeros(shape),
            "standing_counts": np.zeros((*shape, 2)),
            "recent": np.zeros((*shape, 4)),
            "latest": np.zeros((*shape, 4)),
            "alarm": np.zeros(shape, dtype=np.bool_),
            "against": np.zeros(shape, dtype=np.bool_),
            "excess": np.zeros(shape),
            "prior_evidence": np.zeros((*shape, bets)),
            "prior_evidence_over_slices": np.zeros((batch, subjects, 1, len(contract.clause_ids), bets)),
            "prior_active": np.zeros((batch, subjects, 1, 1), dtype=np.bool_),
        }

    def forget(self, state: DetectorState, mask: NDArray[np.bool_]) -> DetectorState:
        """See the protocol. Evidence pooled over slices is forgotten together with that of any slice."""
        blank = self.initial(1, 1, self.plan.contract)
        places, whole = np.nonzero(mask), np.nonzero(mask.any(axis=2, keepdims=True))
        after = {"prior_active": state["prior_active"]}  # a forgotten e-process stays spent
        for name in set(state) - set(after):
            after[name] = blanked(state[name], blank[name][0, 0, 0, 0], whole if name in _POOLED else places)
        return {name: after[name] for name in state}

    def evidence_ratio(self, state: DetectorState, contract: CompiledContract) -> Floats:
        """Of kernels: log-evidence over its threshold; in alarm, 1 plus that ratio since the alarm."""
        return self.evidence_ratio_without(state, np.zeros(state["alarm"].shape, dtype=np.bool_), contract)

    def evidence_ratio_without(
        self, state: DetectorState, hidden: Flags, contract: CompiledContract
    ) -> Floats:
        """``evidence_ratio`` without the evidence and alarms that are ``hidden`` bool [B, K, S, C]."""
        cells, levels = floats(state, "cells"), self.plan.thresholds
        ratio, alarm = np.zeros(cells.shape[:3]), flags(state, "alarm") & ~hidden
        thresholds = levels.kernel, levels.lowered
        nearest_alarm(ratio, cells, alarm, hidden, *thresholds, moves_traffic(contract))
        return ratio

    def update(
        self,
        state: DetectorState,
        sums: Sums | None,  # noqa: ARG002
        closed: NDArray[np.bool_],  # noqa: ARG002
        contract: CompiledContract,  # noqa: ARG002
        arrived: EvidenceBatch | None = None,
        *,
        consume: bool = False,
    ) -> tuple[AlarmState, DetectorState]:
        """Process the observations of one tick; see the protocol."""
        if arrived is None:
            raise ValueError("a sequential detector judges arrivals, not sums of windows")
        after = state if consume else {name: np.array(array) for name, array in state.items()}
        streams, tick = _streams(after, arrived.pooled), _blank_alarms(arrived.sums.shape)
        evidence_plan = self.plan.evidence_plan if arrived.pooled else self.plan.replica_evidence_plan
        advance(streams, self._arrived(arrived), _levels(self.plan, arrived.pooled), tick, evidence_plan)
        return AlarmState(
            alarm=streams.alarm.copy(),  # a consumed state may be overwritten, alarms may not
            excess=streams.excess.copy(),
            inside=tick.inside,
            fresh=tick.fresh,
            judged=tick.judged,
            against=streams.against.copy(),
        ), after

    def _arrived(self, arrived: EvidenceBatch) -> ArrivedObservations:
        plain, probes, news, shape = np.ascontiguousarray, arrived.probes, arrived.news, arrived.sums.shape
        return ArrivedObservations(
            subject_of=arrived.subject_of,
            received=arrived.received,
            replica=plain(probes.replica),
            slice=plain(probes.slice),
            values=plain(probes.values),
            sums=plain(arrived.sums),
            news=np.ones(shape[:3], dtype=np.bool_) if news is None else plain(news),
            doubted=plain(arrived.doubted),
            since_s=arrived.since_s,
            kept=np.exp(-arrived.since_s / self.plan.memory_s),
            drifted=_flags_or_false(arrived.drifted, shape[:2]),
            blurred=_flags_or_false(arrived.blurred, shape[:2]),
        )


@lru_cache(maxsize=32)
def _levels(plan: SequentialPlan, pooled: bool) -> Levels:
    """Thresholds of a plan; plans are compared by object identity."""
    levels = plan.thresholds
    by_slice = log_threshold(levels.kernel[None] if pooled else levels.replica)
    over_slices, against = log_threshold(levels.over_slices), log_threshold(np.array([levels.against]))
    stands_s = standing_after_s(plan.contract, pooled)
    return Levels(
        by_slice=by_slice,
        over_slices=over_slices,
        lowered=log_threshold(levels.lowered),
        against=against,
        least=min(float(records["near"].min()) for records in (by_slice, over_slices, against)),
        at_once=np.flatnonzero(plan.clauses.kind == Kind.AT_ONCE),
        standing=np.flatnonzero(np.isfinite(stands_s)),
        returns=1.0 / (1.0 - plan.confidence),
        expiry_s=plan.expiry_s,
        scale=plan.clauses.scale,
        traffic=from_traffic(plan.contract),
        compared=compared_clauses(plan.contract, plan.clauses),
        expires=needs_traffic(plan.contract),
        standing_after_s=stands_s,
        most_gap_s=MOST_GAP_WINDOWS * plan.contract.window_s,
        owner=np.empty(0, dtype=np.int64) if pooled else plan.owner,
    )


def _streams(state: DetectorState, pooled: bool) -> Streams:
    over_slices = floats(state, "over_slices")
    return Streams(
        cells=floats(state, "cells"),
        over_slices=over_slices[:, :, :0] if pooled else over_slices,
        health=floats(state, "health"),
        tested=flags(state, "tested"),
        silent_s=floats(state, "silent_s"),
        standing_s=floats(state, "standing_s"),
        standing_counts=floats(state, "standing_counts"),
        recent=floats(state, "recent"),
        latest=floats(state, "latest"),
        alarm=flags(state, "alarm"),
        against=flags(state, "against"),
        excess=floats(state, "excess"),
        prior_evidence=floats(state, "prior_evidence"),
        prior_evidence_over_slices=floats(state, "prior_evidence_over_slices"),
        prior_active=flags(state, "prior_active"),
    )


def _flags_or_false(marked: Flags | None, shape: tuple[int, ...]) -> Flags:
    return np.zeros(shape, dtype=np.bool_) if marked is None else np.ascontiguousarray(marked)


def _blank_alarms(shape: tuple[int, ...]) -> TickAlarms:
    """Blank alarms for sums of ``shape`` [B, U, S, C, 4]."""
    inside, fresh = np.zeros((2, *shape[:-1]), dtype=np.bool_)
    return TickAlarms(inside=inside, fresh=fresh, judged=np.empty(shape))
