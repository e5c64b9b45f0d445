"""Supervision of a policy under its meta-contract: readings, demotion to the baseline, re-promotion.

This is a Simplex architecture. Policy and baseline both propose from the same observation, so that the
baseline's memory is current, and the supervisor selects the proposal for the shield. A demoted policy is
still judged by its proposals, which are not executed. It drives again when ``repromote_after_s`` have passed
since the demotion and since its last violation, at most ``most_repromotions`` times.

All memory is a dict of named arrays with one entry per fleet, so no result depends on the batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.meta import POLICY_METRICS, CompiledMeta, Remedy
from controller.options import ControllerSetup
from controller.ports import Observation, PolicyState, Proposal
from controller.shield.capacity import SLACK
from controller.shield.records import ShieldReason
from controller.supervise.harm import useful_loss
from controller.supervise.switch_counter import begin_anew, follow, forced_rows, initial_follow, per_hour

#: Reasons of a demotion are places in ``POLICY_METRICS``; these two are additional codes.
NO_REASON, OPERATOR = -1, len(POLICY_METRICS)
#: Metrics whose violation is not the policy's fault: it does not count against ``most_repromotions``.
BLAMELESS = ("fleet_ejected_ratio", "telemetry_age_before_fallback_s")
#: A violation of this metric demotes to the home table instead of the baseline.
HARM_METRIC = "useful_loss_ratio"
HARM = POLICY_METRICS.index(HARM_METRIC)
#: Time constant of the average of shed traffic.
SHED_S = 600.0
#: Number of newest decisions in the 99th percentile, and the least number that must be known.
DECISIONS, LEAST_DECISIONS = 600, 100
#: Exemptions for moves that are not the policy's. Moves by the shield because a kernel is full would happen
#: under any policy: a demotion does not end them.
_FORCING = ("shield_forced_hard_move", "quarantine", "capacity_short")
_CAPACITY = int(ShieldReason.CAPACITY)

Memory = PolicyState


@dataclass(frozen=True, slots=True, kw_only=True)
class Executed:
    """Result of a tick of B fleets, for the counters."""

    table: NDArray[np.float64]  #: [B, S, K + 1], in force from now on
    reason: NDArray[np.int64]  #: [B, S], bits of ``ShieldReason``
    proposed: NDArray[np.float64]  #: [B, S, K + 1], as the policy wanted it
    hard_violated: NDArray[np.bool_]  #: [B, K, S]
    certified: NDArray[np.bool_]  #: [B, K, S]
    ready: NDArray[np.int64]  #: [B, K], replicas in rotation
    seen: Observation


def _flags(memory: Memory, name: str) -> NDArray[np.bool_]:
    return np.asarray(memory[name], dtype=np.bool_)


def _floats(memory: Memory, name: str) -> NDArray[np.float64]:
    return np.asarray(memory[name], dtype=np.float64)


def initial_memory(setup: ControllerSetup, batch: int) -> Memory:
    """Memory of the supervisor before the first tick, beside ``initial_follow``; empty without a
    meta-contract.
    """
    if setup.meta is None:
        return {}
    return {
        **initial_follow(setup.meta, setup.layout, batch),
        "shed_ratio": np.zeros(batch),  # of offered traffic, averaged over ``SHED_S``
        "shed_requests": np.zeros(batch),
        "offered_requests": np.zeros(batch),
        "empty_ticks": np.zeros(batch, dtype=np.int64),
        "decision_ms": np.full((batch, DECISIONS), np.nan),  # newest last (NaN: none)
        "demoted": np.zeros(batch, dtype=np.bool_),
        "reason": np.full(batch, NO_REASON, dtype=np.int64),  # place in POLICY_METRICS, NO_REASON or OPERATOR
        "demoted_at_s": np.full(batch, -np.inf),
        "violated_at_s": np.full(batch, -np.inf),
        "demotions": np.zeros(batch, dtype=np.int64),
        "repromotions": np.zeros(batch, dtype=np.int64),
        "worst": np.zeros((batch, len(POLICY_METRICS))),  # largest readings so far
        # Weighted sums over blocks away from home: 1, difference to the home table's lower limit, its square.
        "missing": np.zeros((batch, 3)),
    }


def note_decision(memory: Memory, spent_ms: NDArray[np.float64] | float) -> Memory:
    """The memory after a decision took ``spent_ms``, by a clock outside of the core, which has none."""
    before = _floats(memory, "decision_ms")
    newest = np.broadcast_to(np.asarray(spent_ms, dtype=np.float64), before.shape[:1])
    return {**memory, "decision_ms": np.concatenate([before[:, 1:], newest[:, None]], axis=1)}


def readings(
    memory: Memory,
    ejected: NDArray[np.bool_],
    silent_s: NDArray[np.float64],
    now_s: NDArray[np.float64],
    setup: ControllerSetup,
) -> NDArray[np.float64]:
    """Present value of every metric, float64 [B, M]; NaN for metrics of ground truth or of a suite.

    ejected: bool [B, R], out of rotation by quarantine or policy. The fleet-wide share counts only where more
    than one replica is ejected: one of three is a third of the fleet, but no mass ejection. silent_s:
    float64 [B], age of telemetry.
    """
    out = np.full((len(now_s), len(POLICY_METRICS)), np.nan)
    owner, kernels = setup.layout.replica_kernel, len(setup.layout.kernels)
    count = np.maximum(np.bincount(owner, minlength=kernels), 1)
    by_kernel = np.stack([ejected[:, owner == k].sum(axis=1) for k in range(kernels)], axis=1) / count
    for metric, values in (
        ("switch_rate_per_slice_hour", per_hour(memory["moved_at_s"], now_s)),
        ("weight_move_per_tick", memory["largest_move"]),
        ("dwell_s", memory["shortest_stay_s"]),
        ("oscillation_sign_changes_per_hour", per_hour(memory["turned_at_s"], now_s)),
        ("shed_ratio", memory["shed_ratio"]),
        ("empty_pool_ticks", memory["empty_ticks"]),
        ("ejected_ratio", by_kernel.max(axis=1)),
        ("fleet_ejected_ratio", np.where(ejected.sum(axis=1) > 1, ejected.mean(axis=1), 0.0)),
        ("decision_ms_p99", _p99(memory)),
        (HARM_METRIC, useful_loss(_floats(memory, "missing"))),
        ("telemetry_age_s", silent_s),
        ("telemetry_age_before_fallback_s", silent_s),
    ):
        out[:, POLICY_METRICS.index(metric)] = values
    return out


def _p99(memory: Memory) -> NDArray[np.float64]:
    """99th percentile of the newest decisions, float64 [B]; NaN until enough are known."""
    spent = _floats(memory, "decision_ms")
    known = np.isfinite(spent).sum(axis=1) >= LEAST_DECISIONS
    out = np.full(len(spent), np.nan)
    if bool(known.any()):
        out[known] = np.nanpercentile(spent[known], 99.0, axis=1)
    return out


def judge_policy(
    memory: Memory, read: NDArray[np.float64], now_s: NDArray[np.float64], setup: ControllerSetup
) -> Memory:
    """Demote the fleets that break a clause; re-promote those that have kept all clauses for long enough.

    With ``setup.watch_only`` violations are counted and no fleet is demoted: a certificate must show the
    policy without its baseline.
    """
    meta = setup.meta
    assert meta is not None
    judged = meta.online & (meta.remedy == Remedy.DEMOTE)
    broken = (read > meta.limit) & judged
    worst = np.fmax(_floats(memory, "worst"), np.where(np.isnan(read), 0.0, read))
    some, first = broken.any(axis=1), broken.argmax(axis=1)
    memory = {**memory, "worst": worst, "violated_at_s": np.where(some, now_s, memory["violated_at_s"])}
    if setup.watch_only:
        return {**memory, "demotions": np.where(some, 1, memory["demotions"])}
    demoted = _flags(memory, "demoted")
    memory = hand_over(memory, some & ~demoted, first, now_s)
    return _hand_back(memory, demoted & ~some, now_s, meta)


def hand_over(
    memory: Memory, fleets: NDArray[np.bool_], reason: NDArray[np.int64], now_s: NDArray[np.float64]
) -> Memory:
    """The baseline drives ``fleets`` bool [B] from now on; reason: int64 [B], as in the memory."""
    if not bool(fleets.any()):
        return memory
    cleared = begin_anew(memory, fleets)
    return {
        **cleared,
        "demoted": _flags(memory, "demoted") | fleets,
        "reason": np.where(fleets, reason, memory["reason"]),
        "demoted_at_s": np.where(fleets, now_s, memory["demoted_at_s"]),
        "violated_at_s": np.where(fleets, now_s, memory["violated_at_s"]),
        "demotions": memory["demotions"] + fleets,
        "shed_ratio": np.where(fleets, 0.0, memory["shed_ratio"]),
        "missing": np.where(fleets[:, None], 0.0, memory["missing"]),
    }


def _hand_back(
    memory: Memory, candidates: NDArray[np.bool_], now_s: NDArray[np.float64], meta: CompiledMeta
) -> Memory:
    """Re-promote the ``candidates`` bool [B] that have kept every clause for long enough."""
    reason = np.asarray(memory["reason"], dtype=np.int64)
    blameless = np.isin(reason, [POLICY_METRICS.index(name) for name in BLAMELESS])
    clean_s = now_s - np.fmax(memory["demoted_at_s"], memory["violated_at_s"])
    left = blameless | (np.asarray(memory["repromotions"], dtype=np.int64) < meta.most_repromotions)
    back = candidates & (reason != OPERATOR) & left & (clean_s >= meta.repromote_after_s - SLACK)
    if not bool(back.any()):
        return memory
    cleared = begin_anew(memory, back)
    return {
        **cleared,
        "demoted": _flags(memory, "demoted") & ~back,
        "reason": np.where(back, NO_REASON, reason),
        "repromotions": memory["repromotions"] + (back & ~blameless),
        "shed_ratio": np.where(back, 0.0, memory["shed_ratio"]),
    }


def count(memory: Memory, done: Executed, setup: ControllerSetup) -> Memory:
    """The memory after this tick; it follows the table in force, or the proposals of a demoted policy."""
    meta = setup.meta
    assert meta is not None
    demoted = _flags(memory, "demoted")
    own = np.where(demoted[:, None, None], done.proposed, done.table)
    hard, away, short = (meta.exempts("switch_rate_per_slice_hour", name) for name in _FORCING)
    last = _floats(memory, "followed")
    forced = forced_rows(own, last, done.hard_violated, done.ready, (hard, away))
    if short:
        forced |= (done.reason & _CAPACITY) != 0
    memory = follow(memory, own, forced, done.seen.now_s)
    living = done.certified & ~done.hard_violated & (done.ready > 0)[:, :, None]
    return _count_shed(_count_empty(memory, done, living, demoted), own, done, living, setup)


def _count_empty(
    memory: Memory, done: Executed, living: NDArray[np.bool_], demoted: NDArray[np.bool_]
) -> Memory:
    """Count ticks in which a slice had no serving kernel although a certified kernel lives.

    living: bool [B, K, S], cells that are certified and have a replica.
    """
    served = (done.table[:, :, :-1] * (done.ready > 0)[:, None, :]).sum(axis=2) > SLACK
    empty = (~served & living.any(axis=1)).any(axis=1) & ~demoted
    return {**memory, "empty_ticks": memory["empty_ticks"] + empty}


def _count_shed(
    memory: Memory,
    table: NDArray[np.float64],
    done: Executed,
    living: NDArray[np.bool_],
    setup: ControllerSetup,
) -> Memory:
    """Count shed traffic, except for exempt causes: the contract's choice, and a lack of capacity."""
    seen, meta = done.seen, setup.meta
    assert meta is not None
    shed_rps = table[:, :, -1] * seen.offered_rps
    if setup.contract.shed_when_uncertified and meta.exempts("shed_ratio", "contract_sheds_when_uncertified"):
        shed_rps = np.where(living.any(axis=1), shed_rps, 0.0)
    offered, shed = seen.offered_rps.sum(axis=1), shed_rps.sum(axis=1)
    if meta.exempts("shed_ratio", "capacity_short"):
        reach_rps = (living * seen.offered_rps[:, None, :]).sum(axis=2)  # traffic that may go to each kernel
        carried = np.minimum(seen.capacity_rps, reach_rps).sum(axis=1)
        shed = np.maximum(shed - np.maximum(offered - carried, 0.0), 0.0)
    share = shed / np.maximum(offered, SLACK)
    keep = float(np.exp(-setup.fleet.tick_s / SHED_S))
    return {
        **memory,
        "shed_ratio": keep * _floats(memory, "shed_ratio") + (1.0 - keep) * share,
        "shed_requests": memory["shed_requests"] + shed * setup.fleet.tick_s,
        "offered_requests": memory["offered_requests"] + offered * setup.fleet.tick_s,
    }


def capped_ejections(
    proposal: Proposal, before: NDArray[np.bool_], quarantined: NDArray[np.bool_], setup: ControllerSetup
) -> NDArray[np.bool_]:
    """bool [B, R]: the policy's ejections, at most as many per kernel as its clause allows with quarantine.

    Replicas that are ejected already come first, then new ones in the layout's order.
    """
    meta, wanted = setup.meta, proposal.ejected
    if meta is None or not bool(wanted.any()):
        return wanted
    allowed = np.zeros_like(wanted)
    limit = min(meta.most("ejected_ratio"), 1.0)
    for kernel in range(len(setup.layout.kernels)):
        own = np.flatnonzero(setup.layout.replica_kernel == kernel)
        allowance = np.floor(limit * own.size + SLACK) - quarantined[:, own].sum(axis=1)
        old = wanted[:, own] & before[:, own] & ~quarantined[:, own]
        new = wanted[:, own] & ~before[:, own] & ~quarantined[:, own]
        place = np.where(old, old.cumsum(axis=1), old.sum(axis=1)[:, None] + new.cumsum(axis=1))
        allowed[:, own] = (old | new) & (place <= allowance[:, None])
    return allowed
