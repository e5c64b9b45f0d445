"""The sequential detector in plain NumPy and Python loops: the compiled one must equal it bit for bit.

Slow and simple: every cell is visited in every tick, nothing is skipped, nothing is changed in place.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from contracts.telemetry import Source
from controller.detect.clauses import Kind, applies, from_traffic, needs_traffic
from controller.detect.detector import EvidenceBatch
from controller.detect.sequential.evidence import SHARES
from controller.detect.sequential.peers import LEAST_RECEIVED
from controller.detect.sequential.plan import SequentialPlan
from controller.detect.sequential.standing import (
    GROSS,
    MOST_GAP_WINDOWS,
    STANDING_NATS,
    STANDING_WINDOWS,
)
from controller.detect.streams.passes import CEILING, FLOOR
from controller.detect.streams.protocol import LOWEST
from controller.detect.sums import COUNT, OVER, TOTAL

State = dict[str, np.ndarray[Any, Any]]
NAMES = ("evidence", "statistic", "since")


def initial(plan: SequentialPlan, batch: int, units: int) -> State:
    """No evidence of anything."""
    slices, clauses = len(plan.contract.slices), len(plan.contract.clause_ids)
    state: State = {}
    for name, places in (("", slices), ("pooled_", 1)):
        shape = (batch, units, places, clauses)
        state[name + "evidence"] = np.zeros((*shape, plan.clauses.bets.shape[1]))
        state[name + "statistic"] = np.full(shape, LOWEST)
        state[name + "since"] = np.zeros((*shape, 2))
    shape = (batch, units, slices, clauses)
    return state | {
        "health": np.ones((*shape, len(SHARES))),
        "alarm": np.zeros(shape, dtype=np.bool_),
        "excess": np.zeros(shape),
        "silent_s": np.zeros(shape),
        "standing_s": np.zeros(shape),
        "standing_counts": np.zeros((*shape, 2)),
        "recent": np.zeros((*shape, 4)),
        "latest": np.zeros((*shape, 4)),
    }


def update(state: State, seen: EvidenceBatch, plan: SequentialPlan) -> tuple[State, State]:
    """AlarmState by name, and the state after one tick."""
    state = {name: array.copy() for name, array in state.items()}
    wanted = state["alarm"] | seen.doubted
    state["health"] = np.where(wanted[..., None], state["health"], 1.0)
    _accumulate_probes(state, wanted, seen, plan)
    _accumulate_scrapes(state, wanted, seen, plan)
    state |= _standing(state, seen, plan)
    raised, against = _raised(state, seen, plan), _against(state, seen, plan)
    state = _begin_anew(state, raised, seen, plan)
    wanted &= ~raised
    received = seen.sums[..., COUNT] > 0.0
    silent_s = np.where(received, 0.0, state["silent_s"] + seen.since_s[:, None, None, None])
    expired = (silent_s >= plan.expiry_s) & needs_traffic(plan.contract) & wanted
    inside = expired | (wanted & (state["health"].mean(axis=-1) >= 1.0 / (1.0 - plan.confidence)))
    alarm = raised | (state["alarm"] & ~inside)
    excess = np.where(alarm, state["excess"], 0.0)
    kept = np.exp(-seen.since_s / plan.memory_s)[:, None, None, None, None]
    recent = state["recent"] * kept + seen.sums
    judged = np.where(recent[..., COUNT, None] >= 1.0, recent, 0.0)
    latest = np.where(received[..., None], seen.sums, state["latest"] * (kept * kept))
    said = {
        "alarm": alarm,
        "excess": excess,
        "inside": inside,
        "fresh": received | raised | expired,
        "judged": judged,
        "against": against,
    }
    return said, state | {
        "alarm": alarm,
        "excess": excess,
        "silent_s": silent_s,
        "recent": recent,
        "latest": latest,
    }


def _take(state: State, prefix: str, place: tuple[int, ...], y: float, plan: SequentialPlan) -> None:
    clauses, c = plan.clauses, place[-1]
    evidence, statistic, since = (state[prefix + name] for name in NAMES)
    if clauses.kind[c] == Kind.AT_ONCE:
        since[place] += (1.0, y)
        if y > 0.0:
            statistic[place] = np.log(CEILING)
        return
    if statistic[place] < 0.0:
        since[place] = 0.0
    since[place] += (1.0, y)
    total = 0.0
    for g, (bet, weight) in enumerate(
        zip(clauses.bets[c].tolist(), clauses.weights[c].tolist(), strict=True)
    ):
        grown = min(
            (float(evidence[place][g]) + 1.0) * (1.0 + bet * (y / clauses.null_mean[c] - 1.0)), CEILING
        )
        evidence[place][g] = grown
        total += weight * grown
    statistic[place] = np.log(min(max(total, FLOOR), CEILING))


def _grow(state: State, place: tuple[int, ...], y: float, plan: SequentialPlan) -> None:
    clauses, c, health = plan.clauses, place[-1], state["health"][place]
    if clauses.kind[c] == Kind.AT_ONCE:
        health[:] = np.minimum(health * plan.evidence_plan.gain, CEILING) if y <= 0.0 else 1.0
        return
    null, range_ = float(clauses.null_mean[c]), float(clauses.health_range[c])
    most, short = null / (range_ - null), 1.0 - min(max(y, 0.0), range_) / null
    for h, share in enumerate(SHARES):
        health[h] = min(float(health[h]) * (1.0 + share * most * short), CEILING)


def _accumulate_probes(
    state: State, wanted: np.ndarray[Any, Any], seen: EvidenceBatch, plan: SequentialPlan
) -> None:
    contract, clauses, online = plan.contract, plan.clauses, applies(plan.contract)
    for b, p in np.argwhere(seen.received).tolist():
        u, s = int(seen.subject_of[seen.probes.replica[b, p]]), int(seen.probes.slice[b, p])
        for c in np.flatnonzero((contract.source == Source.PROBE) & (clauses.kind != Kind.NONE) & online[s]):
            value = float(seen.probes.values[b, p, contract.column[c]])
            if np.isnan(value):
                continue
            y = clauses.upper[c] - value if clauses.mirrored[c] else min(value, float(clauses.clip[c]))
            over = contract.sense[c] * (value - contract.threshold[c]) > 0.0
            y = max(float(over) if clauses.is_rate[c] else float(y), 0.0)
            _take(state, "", (b, u, s, int(c)), y, plan)
            if not seen.pooled:
                _take(state, "pooled_", (b, u, 0, int(c)), y, plan)
            if wanted[b, u, s, c]:
                _grow(state, (b, u, s, int(c)), y, plan)


def _share(sums: np.ndarray[Any, Any], c: int, plan: SequentialPlan) -> float:
    clauses, units = plan.clauses, max(float(sums[COUNT]), 1.0)
    if clauses.is_rate[c]:
        return max(float(sums[OVER]) / units, 0.0)
    mean = float(sums[TOTAL]) / units
    return max(clauses.upper[c] - mean if clauses.mirrored[c] else min(mean, float(clauses.clip[c])), 0.0)


def _accumulate_scrapes(
    state: State, wanted: np.ndarray[Any, Any], seen: EvidenceBatch, plan: SequentialPlan
) -> None:
    traffic = (plan.contract.source != Source.PROBE) & (plan.clauses.kind != Kind.NONE)
    here = applies(plan.contract) & traffic
    present = (seen.sums[..., COUNT] > 0.0) & here
    for b, u, s, c in np.argwhere(present).tolist():
        y = _share(seen.sums[b, u, s, c], c, plan)
        worth = 1.0 if seen.pooled else _worth(_peers_of(state, seen, (b, u, s, c), plan), c, plan)
        _take(state, "", (b, u, s, c), y * worth, plan)
        if wanted[b, u, s, c]:
            _grow(state, (b, u, s, c), y, plan)
    if seen.pooled:
        return
    whole = np.where(here[..., None], seen.sums, 0.0).sum(axis=2)
    for b, u, c in np.argwhere(whole[..., COUNT] > 0.0).tolist():
        beside = np.zeros(4)
        for s in np.flatnonzero(here[:, c]).tolist():
            beside = beside + _peers_of(state, seen, (b, u, s, c), plan)
        y = _share(whole[b, u, c], c, plan) * _worth(beside, c, plan)
        _take(state, "pooled_", (b, u, 0, c), y, plan)


def _peers_of(
    state: State, seen: EvidenceBatch, place: tuple[int, ...], plan: SequentialPlan
) -> np.ndarray[Any, Any]:
    """The last scrapes of the other replicas of the same kernel, added up."""
    b, u, s, c = place
    total = np.zeros(4)
    for q, owner in enumerate(plan.owner.tolist()):
        if q != u and owner == plan.owner[u]:
            now = seen.sums[b, q, s, c]
            total = total + (now if now[COUNT] > 0.0 else state["latest"][b, q, s, c])
    return total


def _worth(beside: np.ndarray[Any, Any], c: int, plan: SequentialPlan) -> float:
    """1 beside peers within the limit or at limit 0, less beside worse ones, 0 beside none."""
    if plan.clauses.kind[c] == Kind.AT_ONCE:
        return 1.0
    if beside[COUNT] <= LEAST_RECEIVED:
        return 0.0
    mean = _share(np.array([1.0, *(beside[1:] / beside[COUNT])]), c, plan)
    return float(plan.clauses.null_mean[c]) / max(mean, float(plan.clauses.null_mean[c]))


def _raised(state: State, seen: EvidenceBatch, plan: SequentialPlan) -> np.ndarray[Any, Any]:
    levels, statistic, members = plan.thresholds, state["statistic"], np.arange(plan.owner.size)
    at_once = (plan.clauses.kind == Kind.AT_ONCE) & (state["since"][..., 1] > 0.0)
    received = None if seen.pooled else _peers_received(state, seen, plan)
    raised = (
        _stands(state, seen, plan)
        | at_once
        | (statistic >= (levels.kernel if received is None else levels.replica[received, members]))
    )
    if received is None:
        broken = ((state["alarm"] | raised) & np.isfinite(levels.lowered)).any(axis=3, keepdims=True)
        elsewhere = broken.sum(axis=2, keepdims=True) - broken > 0
        return np.asarray(raised | (elsewhere & (statistic >= levels.lowered)))
    whole = state["pooled_statistic"] >= levels.over_slices[received, members][:, :, None]
    first = np.where(applies(plan.contract), statistic, -np.inf).argmax(axis=2)[:, :, None, :]
    return np.asarray(raised | (whole & (np.arange(statistic.shape[2])[:, None] == first)))


def _standing(state: State, seen: EvidenceBatch, plan: SequentialPlan) -> State:
    """For how long every flush was grossly late, of latencies of kernels, and of how many requests; 0
    elsewhere.
    """
    contract, sums = plan.contract, seen.sums
    received = (sums[..., COUNT] > 0.0) & (contract.source == Source.LATENCY) & contract.is_rate & seen.pooled
    gap_s = state["silent_s"] + seen.since_s[:, None, None, None]
    late = sums[..., OVER] >= GROSS * plan.clauses.null_mean * sums[..., COUNT]
    goes_on = late & (gap_s <= MOST_GAP_WINDOWS * contract.window_s)
    counts = state["standing_counts"] + sums[..., [COUNT, OVER]]
    passed = {"standing_s": state["standing_s"] + gap_s, "standing_counts": counts}
    found = {}
    for name, more in passed.items():
        wide = (...,) + (None,) * (more.ndim - received.ndim)
        found[name] = np.where(received[wide], np.where(goes_on[wide], more, 0.0), state[name])
    return found


def _stands(state: State, seen: EvidenceBatch, plan: SequentialPlan) -> np.ndarray[Any, Any]:
    recent, gross = state["recent"], GROSS * plan.clauses.null_mean
    long = state["standing_s"] >= STANDING_WINDOWS * plan.contract.window_s
    news = np.ones(recent.shape[:3], np.bool_) if seen.news is None else seen.news
    count, late = np.moveaxis(state["standing_counts"], -1, 0)
    limit = plan.clauses.null_mean
    with np.errstate(divide="ignore", invalid="ignore"):
        nats = late * np.log(late / (limit * count))
        nats += np.where(count > late, (count - late) * np.log((count - late) / ((1.0 - limit) * count)), 0.0)
    long &= (late > limit * count) & (nats >= STANDING_NATS)
    return np.asarray(news[..., None] & long & (recent[..., OVER] >= gross * recent[..., COUNT]))


def _peers_received(state: State, seen: EvidenceBatch, plan: SequentialPlan) -> np.ndarray[Any, Any]:
    """Index of the thresholds [B, R] of replicas by the number of peers that served recently."""
    served = (state["latest"][..., COUNT] > LEAST_RECEIVED) | (seen.sums[..., COUNT] > 0.0)
    told = (served & from_traffic(plan.contract)).any(axis=(2, 3))
    same = (plan.owner[:, None] == plan.owner) & ~np.eye(plan.owner.size, dtype=np.bool_)
    return np.asarray(np.clip(told.astype(np.int64) @ same, 1, len(plan.thresholds.replica)) - 1)


def _against(state: State, seen: EvidenceBatch, plan: SequentialPlan) -> np.ndarray[Any, Any]:
    most = state["statistic"] if seen.pooled else np.maximum(state["statistic"], state["pooled_statistic"])
    return np.asarray(most >= plan.thresholds.against)


def _begin_anew(
    state: State, raised: np.ndarray[Any, Any], seen: EvidenceBatch, plan: SequentialPlan
) -> State:
    excess_found = _excess(state["since"], plan)
    if not seen.pooled:
        excess_found = np.maximum(excess_found, _excess(state["pooled_since"], plan))
    blank = {"evidence": 0.0, "statistic": LOWEST, "since": 0.0}
    after = {**state, "excess": np.where(raised, excess_found, state["excess"])}
    after["health"] = np.where(raised[..., None], 1.0, state["health"])
    after["standing_s"] = np.where(raised, 0.0, state["standing_s"])
    after["standing_counts"] = np.where(raised[..., None], 0.0, state["standing_counts"])
    for prefix, mask in (("", raised), ("pooled_", raised.any(axis=2, keepdims=True))):
        for name in NAMES:
            old = state[prefix + name]
            after[prefix + name] = np.where(
                mask.reshape(mask.shape + (1,) * (old.ndim - 4)), blank[name], old
            )
    return after


def _excess(since: np.ndarray[Any, Any], plan: SequentialPlan) -> np.ndarray[Any, Any]:
    null = np.where(plan.clauses.kind == Kind.BETTING, plan.clauses.null_mean, 0.0)
    mean = since[..., 1] / np.maximum(since[..., 0], 1.0)
    return np.asarray(np.maximum(mean - null, 0.0) / plan.clauses.scale)
