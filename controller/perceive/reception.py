"""Compiled loops of reception: new telemetry, progress of replicas, smoothed rates, overload.

Each fleet is processed independently and in one fixed order, so no result depends on the batch. Updated
arrays are written in place: the caller passes copies.

Records are passed to compiled code as plain tuples, which numba unpacks in a third of the time of named
tuples (0.1 us an array). Inside they become named tuples again.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.jit import borrowed, compiled
from contracts.telemetry import ReplicaState
from contracts.units import MS_PER_S
from controller.cells import LEAST_BEHIND

#: A plain integer, because compiled code does not know the enumeration.
READY = int(ReplicaState.READY)
#: Upper bound of a kernel's backlog, in seconds of work: gateways time out after that.
MOST_BEHIND_S = 30.0


class Clocks(NamedTuple):
    """Start of the window and arrival times; written to by ``receive``."""

    window_began_at_s: NDArray[np.float64]  # [B], begin of the running window (NaN: not begun)
    since_s: NDArray[np.float64]  # [B], filled: time since the last tick
    closed: NDArray[np.bool_]  # [B], filled: the window ends with this tick
    scraped_at_s: NDArray[np.float64]  # [B, R], newest scrape (NaN: none yet)
    received_at_s: NDArray[np.float64]  # [B], when anything last arrived (NaN: never)
    fresh: NDArray[np.bool_]  # [B, R], filled: a new scrape arrived
    received: NDArray[np.bool_]  # [B, P], filled: probes that count as evidence


class Arrived(NamedTuple):
    """Measurement times of one telemetry."""

    scraped_at_ms: NDArray[np.float64]  # [B, R]
    sampled_at_ms: NDArray[np.float64]  # [B, P]
    valid: NDArray[np.bool_]  # [B, P], the slot holds a probe


class Rates(NamedTuple):
    """Progress, smoothed rates and overload; written to by ``follow``."""

    progressed_at_s: NDArray[np.float64]  # [B, R], last sign of progress (NaN: none yet)
    answered_rps: NDArray[np.float64]  # [B, R]
    failed_rps: NDArray[np.float64]  # [B, R]
    offered_rps: NDArray[np.float64]  # [B, S]
    failing_now: NDArray[np.bool_]  # [B, R], filled: failed answers arrived
    overloaded_at_s: NDArray[np.float64]  # [B, K], last offered more than the kernel carries
    behind: NDArray[np.float64]  # [B, K], backlog: offered requests beyond what the kernel could serve so far


class Traffic(NamedTuple):
    """Traffic in one telemetry."""

    fresh: NDArray[np.bool_]  # [B, R], a new scrape arrived
    running: NDArray[np.float64]  # [B, R], requests
    waiting: NDArray[np.float64]  # [B, R], requests
    replica_state: NDArray[np.int8]  # [B, R], a ``ReplicaState``
    answered: NDArray[np.int64]  # [B, R], attempts since the last telemetry
    failed: NDArray[np.int64]  # [B, R]
    offered: NDArray[np.int64]  # [B, S]


class Pace(NamedTuple):
    """Time steps and smoothing factors of a tick."""

    now_s: NDArray[np.float64]  # [B]
    since_s: NDArray[np.float64]  # [B], time since the last tick, > 0
    keep: NDArray[np.float64]  # [B], weight of the old rate
    first: NDArray[np.bool_]  # [B], the very first tick: rates are not smoothed


class Serving(NamedTuple):
    """Replicas in rotation, routing of the traffic, and capacities."""

    quarantined: NDArray[np.bool_]  # [B, R]
    ejected: NDArray[np.bool_]  # [B, R]
    needed: NDArray[np.bool_]  # [B, R], fails a share of its requests, or is late, and cannot be spared
    table: NDArray[np.float64]  # [B, S, K + 1], in force
    owner: NDArray[np.int64]  # [R], kernel of each replica
    capacity_rps: NDArray[np.float64]  # [B, K], of one replica
    overload_ratio: float  # load over capacity above which a kernel is overloaded
    beyond_rps: float  # least mean excess of the load above that
    behind_s: float  # least backlog for a burst to count as overload, in seconds of work


@compiled
def receive(clocks, arrived, before_at_s, now_s, tick_s, window_s, stale_after_s):
    """Fill and update ``clocks`` from the last tick ``before_at_s`` [B] (NaN: none) to ``now_s`` [B].

    A window that has not begun begins now. Data older than ``stale_after_s`` on arrival is ignored.
    """
    clocks, arrived = borrowed((Clocks(*clocks), Arrived(*arrived)))
    _pass_time(clocks, before_at_s, now_s, tick_s, window_s)
    _receive(clocks, arrived, now_s, stale_after_s)


@compiled
def _pass_time(clocks, before_at_s, now_s, tick_s, window_s):
    began_at_s = clocks.window_began_at_s
    for b in range(len(now_s)):
        if np.isnan(began_at_s[b]):
            began_at_s[b] = now_s[b]
        clocks.since_s[b] = tick_s if np.isnan(before_at_s[b]) else now_s[b] - before_at_s[b]
        clocks.closed[b] = now_s[b] - began_at_s[b] >= window_s


@compiled
def _receive(clocks, arrived, now_s, stale_after_s):
    scraped_at_s, received_at_s, fresh = clocks.scraped_at_s, clocks.received_at_s, clocks.fresh
    received, valid, sampled_at_ms = clocks.received, arrived.valid, arrived.sampled_at_ms
    scraped_at_ms = arrived.scraped_at_ms
    for b in range(len(now_s)):
        oldest_at_s = now_s[b] - stale_after_s
        anything = np.isnan(received_at_s[b])
        for r in range(scraped_at_s.shape[1]):
            before, newest = scraped_at_s[b, r], scraped_at_ms[b, r] / MS_PER_S
            if np.isnan(newest) or newest < before:
                newest = before
            newer = newest > (-np.inf if np.isnan(before) else before)
            fresh[b, r] = newer and newest >= oldest_at_s
            scraped_at_s[b, r] = newest
            anything |= fresh[b, r]
        for p in range(valid.shape[1]):
            received[b, p] = valid[b, p] and sampled_at_ms[b, p] >= oldest_at_s * MS_PER_S
            anything |= received[b, p]
        if anything:
            received_at_s[b] = now_s[b]


@compiled
def follow(rates, traffic, pace, serving):
    """Update progress, smoothed rates and the instants of overload."""
    rates, traffic = borrowed((Rates(*rates), Traffic(*traffic)))
    pace, serving = borrowed((Pace(*pace), Serving(*serving)))
    _follow_rates(rates, traffic, pace)
    _note_overload(rates, traffic, pace, serving)


@compiled
def _follow_rates(rates, traffic, pace):
    """Last sign of progress and smoothed rates; rates of the very first tick are not smoothed.

    A replica makes progress when it answers or has nothing to answer: no request runs or waits, or it is not
    ready. Without a fresh scrape its queue is unknown: such a replica counts neither as idle nor as hung.
    """
    progressed_at_s, answered_rps, failed_rps = rates.progressed_at_s, rates.answered_rps, rates.failed_rps
    offered_rps, answered, failed, offered = (
        rates.offered_rps,
        traffic.answered,
        traffic.failed,
        traffic.offered,
    )
    now_s, since_s, keep, first = pace.now_s, pace.since_s, pace.keep, pace.first
    fresh, replica_state = traffic.fresh, traffic.replica_state
    for b in range(len(now_s)):
        new = 1.0 if first[b] else 1.0 - keep[b]
        for r in range(progressed_at_s.shape[1]):
            answers, failures = answered[b, r], failed[b, r]
            rates.failing_now[b, r] = failures > 0
            holds = traffic.running[b, r] > 0.0 or traffic.waiting[b, r] > 0.0
            idle = (fresh[b, r] and not holds) or replica_state[b, r] != READY
            if idle or answers > 0 or np.isnan(progressed_at_s[b, r]):
                progressed_at_s[b, r] = now_s[b]
            old = 0.0 if first[b] else keep[b] * answered_rps[b, r]
            answered_rps[b, r] = old + new * answers / since_s[b]
            old = 0.0 if first[b] else keep[b] * failed_rps[b, r]
            failed_rps[b, r] = old + new * failures / since_s[b]
        for s in range(offered.shape[1]):
            old = 0.0 if first[b] else keep[b] * offered_rps[b, s]
            offered_rps[b, s] = old + new * offered[b, s] / since_s[b]


@compiled
def _note_overload(rates, traffic, pace, serving):
    """Note the kernels that are offered more than they carry now, on average or in a burst.

    The backlog of a burst is the load beyond the capacity (Lindley's recursion). Failed requests of a needed
    replica are retried on the others, so its capacity is reduced by its failure ratio. A few requests never
    overload a kernel that has capacity.
    """
    offered_rps, table, owner = rates.offered_rps, serving.table, serving.owner
    fleets, kernels = rates.overloaded_at_s.shape
    ready, load_rps, offered = np.zeros(kernels), np.zeros(kernels), np.zeros(kernels)
    for b in range(fleets):
        ready[:], load_rps[:], offered[:] = 0.0, 0.0, 0.0
        for r in range(len(owner)):
            away = serving.quarantined[b, r] or serving.ejected[b, r]
            if traffic.replica_state[b, r] == READY and not away:
                ready[owner[r]] += 1.0 - (_failing_share(rates, b, r) if serving.needed[b, r] else 0.0)
        for s in range(offered_rps.shape[1]):
            for k in range(kernels):
                load_rps[k] += table[b, s, k] * offered_rps[b, s]
                offered[k] += table[b, s, k] * traffic.offered[b, s]
        for k in range(kernels):
            carried_rps = ready[k] * serving.capacity_rps[b, k]
            behind = _behind(rates.behind[b, k], offered[k], carried_rps, pace.since_s[b])
            rates.behind[b, k] = behind
            limit_rps = serving.overload_ratio * carried_rps
            most_rps = limit_rps + (serving.beyond_rps if carried_rps > 0.0 else 0.0)
            if load_rps[k] > most_rps or behind > max(serving.behind_s * limit_rps, LEAST_BEHIND):
                rates.overloaded_at_s[b, k] = pace.now_s[b]


@compiled
def _failing_share(rates, b, r):
    """Share of the recent attempts on a replica that failed, in 0..1."""
    ended_rps = rates.answered_rps[b, r] + rates.failed_rps[b, r]
    return rates.failed_rps[b, r] / ended_rps if ended_rps > 0.0 else 0.0


@compiled
def _behind(before, offered, carried_rps, since_s):
    """Computed backlog in requests, at most ``MOST_BEHIND_S`` of work: no request waits for longer."""
    if not carried_rps > 0.0:
        return 0.0
    return min(max(before + offered - carried_rps * since_s, 0.0), MOST_BEHIND_S * carried_rps)
