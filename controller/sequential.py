"""Sequential detector: every clause stream runs an e-detector with its share of the contract's budget.

Alarm: evidence that the clause is broken (sum over starts of betting e-values, ``contracts.detect``) has
reached the threshold of the stream's ARL0. The budget of false switches per slice-month is split over
replicas, kernels, slices and clauses (``contracts.detect.budget``). An alarm is latched and the evidence
starts anew; a further one restarts the recovery test.

A scrape of a replica counts in units of its siblings' last scrapes where those are beyond the limit
(``controller.siblings_compiled``): a queue is long everywhere, a slow host's alone. What they share is for
the kernel's own streams to find. How high calibrated evidence has to stand goes by how many siblings are
heard.

Replicas are watched slice by slice and, because quarantine takes them off every slice, over all slices at
once: there every probe counts, a scrape is one unit whatever it holds, and the alarm is booked where the
replica's own evidence is largest.

Suspects: a fault of a build that is proven on one slice is likely on the others. While a probe clause of a
kernel is in alarm on a slice, its streams of probes on the others alarm at ``suspect_arl0`` units, or a
twentieth of their own ARL0 if that is less. That costs false switches only where the kernel is proven broken
elsewhere, or was falsely so within the budget.

Recovery: an e-process of the null "still broken" that starts with the alarm and ends the latch at
``confidence``. A clause on traffic, about which nobody can know more without traffic, is let go after
``expiry_s`` of silence, as with windows; the half-open return then asks anew.

| units | alarm threshold |
|---|---|
| probes | guaranteed: independent prompts, mean or rate at most the clause's limit |
| latency, KV use | calibrated by blocks (``contracts.detect.traffic``), one unit per scrape |
| other traffic and gauges | of ``traffic_factor`` times the ARL0, one unit per scrape; not guaranteed |
| limit 0 | the first unit over, outside any budget |

Scrapes of one replica follow each other's queues, so what guarantees a threshold (units that are fair given
the past) does not hold of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from contracts.compiled import CompiledContract
from contracts.detect.fold_compiled import blank_cells, both_levels
from contracts.detect.recovery import SHARES
from controller.detectors import Arrivals, DetectorState, Sums, Verdicts, from_traffic, moves_traffic
from controller.paired import PairedPlan
from controller.sequential_compiled import Arrived, Levels, Said, Streams, advance, nearest_alarm
from controller.sequential_plan import SequentialPlan

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class SequentialDetector:
    """Detector of ``plan``'s contract and fleet; see the module."""

    plan: SequentialPlan

    @property
    def by_unit(self) -> bool:
        """Every unit when it comes."""
        return True

    @property
    def paired(self) -> PairedPlan | None:
        """The paired form that tells when a unit changed (None: nobody does)."""
        return self.plan.paired

    def initial(self, batch: int, units: int, contract: CompiledContract) -> DetectorState:
        """No evidence of anything: ``Streams`` as arrays, and the verdicts' ``alarm`` and ``excess``.

        ``anywhere`` is float64 [B, U, 1, C, G + 3]; ``suspicion*`` have a last axis of 0 without a prior.
        """
        shape = (batch, units, len(contract.slices), len(contract.clause_ids))
        paired = self.plan.paired
        bets = self.plan.clauses.bets.shape[1] if paired is not None and paired.prior else 0
        return {
            "cells": blank_cells(*shape),
            "anywhere": blank_cells(batch, units, 1, len(contract.clause_ids)),
            "health": np.ones((*shape, len(SHARES))),
            "tested": np.zeros(shape, dtype=np.bool_),
            "silent_s": np.zeros(shape),
            "recent": np.zeros((*shape, 4)),
            "latest": np.zeros((*shape, 4)),
            "alarm": np.zeros(shape, dtype=np.bool_),
            "against": np.zeros(shape, dtype=np.bool_),
            "excess": np.zeros(shape),
            "suspicion": np.zeros((*shape, bets)),
            "suspicion_anywhere": np.zeros((batch, units, 1, len(contract.clause_ids), bets)),
            "suspected": np.zeros((batch, units, 1, 1), dtype=np.bool_),
        }

    def forget(self, state: DetectorState, mask: NDArray[np.bool_]) -> DetectorState:
        """See the protocol. Evidence over all slices is forgotten with any of them."""
        blank = self.initial(1, 1, self.plan.contract)
        whole = np.asarray(mask.any(axis=2, keepdims=True))
        after = {"suspected": state["suspected"]}  # an e-process that is forgotten is spent
        for name in set(state) - set(after):
            over_all = name in ("anywhere", "suspicion_anywhere")
            after[name] = _blanked(state[name], blank[name][0, 0, 0, 0], whole if over_all else mask)
        return {name: after[name] for name in state}

    def evidence_ratio(self, state: DetectorState, contract: CompiledContract) -> Floats:
        """Of kernels: log-evidence over the threshold in force; in alarm, 1 and what has come in since."""
        cells, levels = _floats(state, "cells"), self.plan.thresholds
        ratio = np.zeros(cells.shape[:3])
        nearest_alarm(
            ratio, cells, np.asarray(state["alarm"], dtype=np.bool_), levels.kernel,
            levels.suspect, moves_traffic(contract),
        )  # fmt: skip
        return ratio

    def update(
        self, state: DetectorState, sums: Sums | None, closed: NDArray[np.bool_],  # noqa: ARG002
        contract: CompiledContract, arrived: Arrivals | None = None, *, consume: bool = False,  # noqa: ARG002
    ) -> tuple[Verdicts, DetectorState]:  # fmt: skip
        """Take in the units of one tick; see the protocol."""
        if arrived is None:
            raise ValueError("a sequential detector judges arrivals, not sums of windows")
        after = state if consume else {name: np.array(array) for name, array in state.items()}
        streams, said = _streams(after, arrived.pooled), _unsaid(arrived.sums.shape)
        fold = self.plan.fold if arrived.pooled else self.plan.replica_fold
        advance(streams, self._arrived(arrived), _levels(self.plan, arrived.pooled), said, fold)
        alarm, excess = streams.alarm.copy(), streams.excess.copy()  # verdicts outlive a consumed state
        return Verdicts(
            alarm=alarm, excess=excess, inside=said.inside, fresh=said.fresh, judged=said.judged,
            against=streams.against.copy(),
        ), after  # fmt: skip

    def _arrived(self, arrived: Arrivals) -> Arrived:
        plain, probes, news = np.ascontiguousarray, arrived.probes, arrived.news
        return Arrived(
            unit_of=arrived.unit_of, heard=arrived.heard, replica=plain(probes.replica),
            slice=plain(probes.slice), values=plain(probes.values), sums=plain(arrived.sums),
            news=np.ones(arrived.sums.shape[:3], dtype=np.bool_) if news is None else plain(news),
            doubted=plain(arrived.doubted), since_s=arrived.since_s,
            kept=np.exp(-arrived.since_s / self.plan.memory_s),
            changed=np.zeros(arrived.sums.shape[:2], dtype=np.bool_)
            if arrived.changed is None
            else plain(arrived.changed),
        )  # fmt: skip


@lru_cache(maxsize=32)
def _levels(plan: SequentialPlan, pooled: bool) -> Levels:
    """Thresholds of a plan, which is told from others by identity."""
    levels = plan.thresholds
    return Levels(
        unit=both_levels(levels.kernel[None] if pooled else levels.replica),
        anywhere=both_levels(levels.anywhere),
        suspect=both_levels(levels.suspect), against=both_levels(np.array(levels.against)),
        returns=1.0 / (1.0 - plan.confidence), expiry_s=plan.expiry_s, scale=plan.clauses.scale,
        traffic=from_traffic(plan.contract), owner=np.empty(0, dtype=np.int64) if pooled else plan.owner,
    )  # fmt: skip


def _streams(state: DetectorState, pooled: bool) -> Streams:
    anywhere = _floats(state, "anywhere")[:, :, 0]
    if pooled:
        anywhere = np.empty((len(anywhere), 0, *anywhere.shape[2:]))
    return Streams(
        cells=_floats(state, "cells"), anywhere=anywhere, health=_floats(state, "health"),
        tested=_flags(state, "tested"), silent_s=_floats(state, "silent_s"), recent=_floats(state, "recent"),
        latest=_floats(state, "latest"), alarm=_flags(state, "alarm"), against=_flags(state, "against"),
        excess=_floats(state, "excess"),
        suspicion=_floats(state, "suspicion"),
        suspicion_anywhere=_floats(state, "suspicion_anywhere")[:, :, 0],
        suspected=_flags(state, "suspected")[:, :, 0, 0],
    )  # fmt: skip


def _unsaid(shape: tuple[int, ...]) -> Said:
    """Verdicts for sums of ``shape`` [B, U, S, C, 4], to be filled in."""
    inside, fresh = np.empty((2, *shape[:-1]), dtype=np.bool_)
    return Said(inside=inside, fresh=fresh, judged=np.empty(shape))


def _flags(state: DetectorState, name: str) -> Flags:
    return np.asarray(state[name], dtype=np.bool_)


def _floats(state: DetectorState, name: str) -> Floats:
    return np.asarray(state[name], dtype=np.float64)


def _blanked(
    array: NDArray[np.generic], blank: NDArray[np.generic] | np.generic, mask: Flags
) -> NDArray[np.generic]:
    wide = mask.reshape(mask.shape + (1,) * (array.ndim - 4))
    return np.asarray(np.where(wide, blank, array))
