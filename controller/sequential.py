"""Sequential detector: every clause stream runs an e-detector with its share of the contract's budget.

Alarm: evidence that the clause is broken (sum over starts of betting e-values, ``contracts.detect``) has
reached the threshold of the stream's ARL0. The budget of false switches per slice-month is split over
replicas, kernels, slices and clauses (``contracts.detect.budget``). An alarm is latched and the evidence
starts anew; a further one restarts the recovery test.

Replicas are watched slice by slice and, because quarantine takes them off every slice, over all slices at
once: there every probe counts, a scrape is one unit whatever it holds, and the alarm is booked where the
replica's own evidence is largest.

Suspects: a fault of a build that is proven on one slice is likely on the others. While a probe clause of a
kernel is in alarm on some slice, its other streams of probes alarm at ``suspect_arl0`` units. That costs
false switches only where the kernel is proven broken elsewhere, or was falsely so within the budget.

Recovery: an e-process of the null "still broken" that starts with the alarm and ends the latch at
``confidence``. A clause on traffic, about which nobody can know more without traffic, is let go after
``expiry_s`` of silence, as with windows; the half-open return then asks anew.

| units | alarm threshold |
|---|---|
| probes | guaranteed: independent prompts, mean or rate at most the clause's limit |
| traffic and gauges | of ``traffic_factor`` times the ARL0, one unit per scrape; not guaranteed |
| limit 0 | the first unit over, outside any budget |

Scrapes of one replica follow each other's queues, so what guarantees a threshold (units that are fair given
the past) does not hold of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contracts.compiled import CompiledContract, Source
from contracts.detect.clauses import Kind
from contracts.detect.protocol import LOWEST
from contracts.detect.recovery import SHARES
from controller.detectors import (
    COUNT,
    OVER,
    TOTAL,
    Arrivals,
    DetectorState,
    Sums,
    Verdicts,
    applies,
    from_traffic,
    moves_traffic,
)
from controller.sequential_compiled import fold_one_unit_each, fold_probes_in_order, nearest_alarm
from controller.sequential_plan import SequentialPlan

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """State of U units, copied from and to named arrays.

    evidence: float64 [B, U, S, C, G]; statistic: float64 [B, U, S, C], its logarithm; since: float64
    [B, U, S, C, 2], units and their sum since the evidence last stood below 1. anywhere*: the same over all
    slices, S = 1. health: float64 [B, U, S, C, H], evidence of health. alarm: bool [B, U, S, C]. excess,
    silent_s: float64 [B, U, S, C]. recent: float64 [B, U, S, C, 4], sums that fade.
    """

    evidence: Floats
    statistic: Floats
    since: Floats
    anywhere: Floats
    anywhere_statistic: Floats
    anywhere_since: Floats
    health: Floats
    alarm: Flags
    excess: Floats
    silent_s: Floats
    recent: Floats


_NAMES = tuple(Memory.__dataclass_fields__)
_COPIED = _NAMES[:7]  # changed in place by the fold


@dataclass(frozen=True, slots=True, kw_only=True)
class SequentialDetector:
    """Detector of ``plan``'s contract and fleet; see the module."""

    plan: SequentialPlan

    @property
    def by_unit(self) -> bool:
        """Every unit when it comes."""
        return True

    def initial(self, batch: int, units: int, contract: CompiledContract) -> DetectorState:
        """No evidence of anything; named as in ``Memory``."""
        slices, groups = len(contract.slices), self.plan.clauses.bets.shape[1]
        shape = (batch, units, slices, len(contract.clause_ids))
        whole = (batch, units, 1, len(contract.clause_ids))
        return {
            "evidence": np.zeros((*shape, groups)),
            "statistic": np.full(shape, LOWEST),
            "since": np.zeros((*shape, 2)),
            "anywhere": np.zeros((*whole, groups)),
            "anywhere_statistic": np.full(whole, LOWEST),
            "anywhere_since": np.zeros((*whole, 2)),
            "health": np.ones((*shape, len(SHARES))),
            "alarm": np.zeros(shape, dtype=np.bool_),
            "excess": np.zeros(shape),
            "silent_s": np.zeros(shape),
            "recent": np.zeros((*shape, 4)),
        }

    def forget(self, state: DetectorState, mask: NDArray[np.bool_]) -> DetectorState:
        """See the protocol. Evidence over all slices is forgotten with any of them."""
        blank = self.initial(1, 1, self.plan.contract)
        whole = np.asarray(mask.any(axis=2, keepdims=True))
        return {
            name: _blanked(array, blank[name].ravel()[0], whole if name.startswith("anywhere") else mask)
            for name, array in state.items()
        }

    def evidence_ratio(self, state: DetectorState, contract: CompiledContract) -> Floats:
        """Of kernels: log-evidence over the threshold in force; in alarm, 1 and what has come in since."""
        statistic, levels = np.asarray(state["statistic"], dtype=np.float64), self.plan.thresholds
        ratio = np.zeros(statistic.shape[:3])
        nearest_alarm(
            ratio, statistic, np.asarray(state["alarm"], dtype=np.bool_), levels.kernel, levels.suspect,
            moves_traffic(contract),
        )  # fmt: skip
        return ratio

    def update(
        self, state: DetectorState, sums: Sums | None, closed: NDArray[np.bool_],  # noqa: ARG002
        contract: CompiledContract, arrived: Arrivals | None = None, *, consume: bool = False,  # noqa: ARG002
    ) -> tuple[Verdicts, DetectorState]:  # fmt: skip
        """Take in the units of one tick; see the protocol."""
        if arrived is None:
            raise ValueError("a sequential detector judges arrivals, not sums of windows")
        memory = self._folded(_memory(state), arrived)
        rung, against = self._rung(memory, arrived.pooled), self._against(memory)
        memory = self._started_anew(memory, rung, arrived.pooled)
        wanted = (memory.alarm | arrived.doubted) & ~rung
        heard = arrived.sums[..., COUNT] > 0.0
        silent_s = np.where(heard, 0.0, memory.silent_s + arrived.since_s[:, None, None, None])
        expired = (silent_s >= self.plan.expiry_s) & from_traffic(self.plan.contract) & wanted
        inside = expired | (wanted & (memory.health.mean(axis=-1) >= 1.0 / (1.0 - self.plan.confidence)))
        alarm = rung | (memory.alarm & ~inside)
        kept = np.exp(-arrived.since_s / self.plan.memory_s)[:, None, None, None, None]
        memory = replace(
            memory, alarm=alarm, excess=np.where(alarm, memory.excess, 0.0), silent_s=silent_s,
            recent=memory.recent * kept + arrived.sums,
        )  # fmt: skip
        verdicts = Verdicts(
            alarm=alarm, excess=memory.excess, inside=inside, fresh=heard | rung | expired,
            judged=np.where(memory.recent[..., COUNT, None] >= 1.0, memory.recent, 0.0), against=against,
        )  # fmt: skip
        return verdicts, {name: getattr(memory, name) for name in _NAMES}

    def _folded(self, memory: Memory, arrived: Arrivals) -> Memory:
        """``memory`` with this tick's units: probes in their order, one unit per scrape of traffic."""
        plan, clauses, contract = self.plan, self.plan.clauses, self.plan.contract
        wanted, plain = memory.alarm | arrived.doubted, np.ascontiguousarray
        health = np.where(wanted[..., None], memory.health, 1.0)
        online = plain(applies(contract).T)
        gain, shares, probes = np.full(clauses.kind.shape, plan.gain), np.array(SHARES), arrived.probes
        fold_probes_in_order(
            memory.evidence, memory.statistic, memory.since, health, wanted, memory.anywhere[:, :, 0],
            memory.anywhere_statistic[:, :, 0], memory.anywhere_since[:, :, 0], arrived.unit_of,
            arrived.heard, plain(probes.replica), plain(probes.slice), plain(probes.values), contract.source,
            contract.column, contract.threshold, contract.sense, online, clauses.kind, clauses.is_rate,
            clauses.mirrored, clauses.upper, clauses.clip, clauses.null_mean, clauses.bets, clauses.weights,
            plan.range_, gain, shares,
        )  # fmt: skip
        self._fold_scrapes(memory, health, wanted, arrived)
        return replace(memory, health=health)

    def _fold_scrapes(self, memory: Memory, health: Floats, wanted: Flags, arrived: Arrivals) -> None:
        """One unit per scrape of traffic and gauges, on each slice and, of replicas, over all slices."""
        plan, clauses, contract = self.plan, self.plan.clauses, self.plan.contract
        scraped = (arrived.sums[..., COUNT] > 0.0) & (contract.source != Source.PROBE)
        if not bool(scraped.any()):
            return
        online = applies(contract)
        rest = (
            clauses.kind, clauses.null_mean, clauses.bets, clauses.weights, plan.range_,
            np.full(clauses.kind.shape, plan.gain), np.array(SHARES),
        )  # fmt: skip
        fold_one_unit_each(
            memory.evidence, memory.statistic, memory.since, health, wanted, _share(arrived.sums, plan),
            scraped, np.ascontiguousarray(online.T), *rest,
        )  # fmt: skip
        if arrived.pooled:
            return
        whole = np.where(online[..., None], arrived.sums, 0.0).sum(axis=2, keepdims=True)
        nowhere = np.zeros(whole.shape[:-1], dtype=np.bool_)
        fold_one_unit_each(
            memory.anywhere, memory.anywhere_statistic, memory.anywhere_since,
            np.ones((*nowhere.shape, len(SHARES))), nowhere, _share(whole, plan),
            (whole[..., COUNT] > 0.0) & (contract.source != Source.PROBE),
            np.asarray(online.any(axis=0)).reshape(-1, 1), *rest,
        )  # fmt: skip

    def _rung(self, memory: Memory, pooled: bool) -> Flags:
        """Streams that reach their threshold now, bool [B, U, S, C]."""
        levels, statistic = self.plan.thresholds, memory.statistic
        at_once = (self.plan.clauses.kind == Kind.AT_ONCE) & (memory.since[..., 1] > 0.0)
        rung = at_once | (statistic >= (levels.kernel if pooled else levels.replica))
        if pooled:
            proven = ((memory.alarm | rung) & np.isfinite(levels.suspect)).any(axis=(2, 3), keepdims=True)
            return np.asarray(rung | (proven & (statistic >= levels.suspect)))
        whole = memory.anywhere_statistic >= levels.anywhere[:, None, :]
        if not bool(whole.any()):
            return np.asarray(rung)
        own = np.where(applies(self.plan.contract), statistic, -np.inf)
        return np.asarray(rung | (whole & _first_largest(own)))

    def _against(self, memory: Memory) -> Flags:
        """Streams with some evidence against their clause, on their slice or over all."""
        most = np.maximum(memory.statistic, memory.anywhere_statistic)
        return np.asarray(most >= self.plan.thresholds.against)

    def _started_anew(self, memory: Memory, rung: Flags, pooled: bool) -> Memory:
        """Evidence against and for begins anew with an alarm, whose excess is what it was raised for."""
        if not bool(rung.any()):
            return memory
        raised = self._excess(memory.since)
        if not pooled:
            raised = np.maximum(raised, self._excess(memory.anywhere_since))
        whole = np.asarray(rung.any(axis=2, keepdims=True))
        cells, wholes = rung[..., None], whole[..., None]
        return replace(
            memory,
            excess=np.where(rung, raised, memory.excess),
            evidence=np.where(cells, 0.0, memory.evidence),
            statistic=np.where(rung, LOWEST, memory.statistic),
            since=np.where(cells, 0.0, memory.since),
            anywhere=np.where(wholes, 0.0, memory.anywhere),
            anywhere_statistic=np.where(whole, LOWEST, memory.anywhere_statistic),
            anywhere_since=np.where(wholes, 0.0, memory.anywhere_since),
            health=np.where(cells, 1.0, memory.health),
        )

    def _excess(self, since: Floats) -> Floats:
        """How far the units since the likely change lie beyond the limit, as a share of it."""
        clauses = self.plan.clauses
        null = np.where(clauses.kind == Kind.BETTING, clauses.null_mean, 0.0)
        mean = since[..., 1] / np.maximum(since[..., 0], 1.0)
        return np.asarray(np.maximum(mean - null, 0.0) / clauses.scale)


def _memory(state: DetectorState) -> Memory:
    """Typed arrays; those that the fold writes to are copies."""
    typed: dict[str, Any] = {
        name: np.array(state[name]) if name in _COPIED else state[name] for name in _NAMES
    }
    return Memory(**typed)


def _blanked(array: NDArray[np.generic], blank: np.generic, mask: Flags) -> NDArray[np.generic]:
    wide = mask.reshape(mask.shape + (1,) * (array.ndim - 4))
    return np.asarray(np.where(wide, blank, array))


def _share(sums: Sums, plan: SequentialPlan) -> Floats:
    """One unit per stream, float64 [B, U, S, C]: share over the threshold, or the mean, of this tick."""
    clauses, units = plan.clauses, np.maximum(sums[..., COUNT], 1.0)
    mean = sums[..., TOTAL] / units
    value = np.where(clauses.mirrored, clauses.upper - mean, np.minimum(mean, clauses.clip))
    return np.asarray(np.maximum(np.where(clauses.is_rate, sums[..., OVER] / units, value), 0.0))


def _first_largest(values: Floats) -> Flags:
    """bool [B, U, S, C]: the first slice with the largest value."""
    index = values.argmax(axis=2)[:, :, None, :]
    return np.asarray(np.arange(values.shape[2])[:, None] == index)
