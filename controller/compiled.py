"""Compiled loops of the controller: what arrived, and telemetry into sums.

Each fleet is worked through by itself and in one fixed order, so no result depends on the batch. Arrays
that are brought up to date are written to: the caller hands in copies.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from contracts.compiled import Source
from contracts.telemetry import ReplicaState
from contracts.units import MS_PER_S

# Plain integers, because compiled code does not know the enumerations.
PROBE, LATENCY, FAILED = int(Source.PROBE), int(Source.LATENCY), int(Source.FAILED)
FINGERPRINT, TRACE_FIELDS = int(Source.FINGERPRINT), int(Source.TRACE_FIELDS)
KV_USED = int(Source.KV_USED)
READY = int(ReplicaState.READY)

#: Values are bounded here even where a clause has no clip, so that an infinite one leaves sums finite.
MOST_VALUE = 1e12


@njit(cache=True, error_model="numpy")
def add_up(out, values, owner):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Add the replicas' values to their kernel's row, in replica order."""
    for b in range(values.shape[0]):
        for r in range(len(owner)):
            for x in range(values.shape[2]):
                out[b, owner[r], x] += values[b, r, x]


@njit(cache=True, error_model="numpy")
def pool_included(out, sums, included, owner):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Add the sums [B, R, X] of the included [B, R] replicas to their kernel's, in replica order."""
    for b in range(sums.shape[0]):
        for r in range(len(owner)):
            if not included[b, r]:
                continue
            for x in range(sums.shape[2]):
                out[b, owner[r], x] += sums[b, r, x]


@njit(cache=True, error_model="numpy")
def pool_news(out, out_news, sums, news, included, owner):  # type: ignore[no-untyped-def]  # pragma: no cover
    """The same of sums [B, R, S, C, 4] of one tick, where only cells with ``news`` [B, R, S] hold any."""
    for b in range(sums.shape[0]):
        for r in range(len(owner)):
            for s in range(sums.shape[2]):
                if not included[b, r] or not news[b, r, s]:
                    continue
                out_news[b, owner[r], s] = True
                for c in range(sums.shape[3]):
                    for i in range(4):
                        out[b, owner[r], s, c, i] += sums[b, r, s, c, i]


@njit(cache=True, error_model="numpy")
def pass_time(started_s, since_s, closed, before_s, now_s, tick_s, window_s):  # type: ignore[no-untyped-def]  # pragma: no cover
    """From the last tick (NaN: there was none) to this: fills time since then, and whether the window ends.

    A window that has not begun begins now. All [B].
    """
    for b in range(len(now_s)):
        if np.isnan(started_s[b]):
            started_s[b] = now_s[b]
        since_s[b] = tick_s if np.isnan(before_s[b]) else now_s[b] - before_s[b]
        closed[b] = now_s[b] - started_s[b] >= window_s


@njit(cache=True, error_model="numpy")
def hear(  # type: ignore[no-untyped-def]  # pragma: no cover
    scraped_s, heard_s, fresh, heard, now_s, stale_after_s, scraped_at_ms, sampled_at_ms, valid
):
    """What is new and not older than ``stale_after_s``; late news say nothing about now.

    Brings ``scraped_s`` [B, R] and ``heard_s`` [B] up to date; fills fresh bool [B, R], a new scrape arrived,
    and heard bool [B, P], probes that count.
    """
    for b in range(len(now_s)):
        oldest_s = now_s[b] - stale_after_s
        anything = np.isnan(heard_s[b])
        for r in range(scraped_s.shape[1]):
            before, newest = scraped_s[b, r], scraped_at_ms[b, r] / MS_PER_S
            if np.isnan(newest) or newest < before:
                newest = before
            newer = newest > (-np.inf if np.isnan(before) else before)
            fresh[b, r] = newer and newest >= oldest_s
            scraped_s[b, r] = newest
            anything |= fresh[b, r]
        for p in range(valid.shape[1]):
            heard[b, p] = valid[b, p] and sampled_at_ms[b, p] >= oldest_s * MS_PER_S
            anything |= heard[b, p]
        if anything:
            heard_s[b] = now_s[b]


@njit(cache=True, error_model="numpy")
def follow_rates(  # type: ignore[no-untyped-def]  # pragma: no cover
    progress_s, answered_rps, failed_rps, offered_rps, failing_now, now_s, since_s, keep, first, fresh,
    running, replica_state, answered, failed, offered,
):  # fmt: skip
    """Last sign of progress and smoothed rates; the very first rates are taken as they come.

    A replica makes progress when it answers or has nothing to answer: nothing runs, or it is not ready at
    all. Without a fresh scrape nobody knows, so the clock of a silent replica stands still: stale is not
    hung.
    """
    for b in range(len(now_s)):
        new = 1.0 if first[b] else 1.0 - keep[b]
        for r in range(progress_s.shape[1]):
            well, ill = 0, 0
            for s in range(answered.shape[2]):
                well += answered[b, r, s]
                ill += failed[b, r, s]
            failing_now[b, r] = ill > 0
            idle = (fresh[b, r] and not running[b, r] > 0.0) or replica_state[b, r] != READY
            if idle or well > 0 or np.isnan(progress_s[b, r]):
                progress_s[b, r] = now_s[b]
            old = 0.0 if first[b] else keep[b] * answered_rps[b, r]
            answered_rps[b, r] = old + new * well / since_s[b]
            old = 0.0 if first[b] else keep[b] * failed_rps[b, r]
            failed_rps[b, r] = old + new * ill / since_s[b]
        for s in range(offered.shape[1]):
            old = 0.0 if first[b] else keep[b] * offered_rps[b, s]
            offered_rps[b, s] = old + new * offered[b, s] / since_s[b]


@njit(cache=True, error_model="numpy")
def _add(sums, b, r, s, c, value, clip, threshold, sense):  # type: ignore[no-untyped-def]  # pragma: no cover
    """One unit into one cell of ``sums``; a view of the cell would cost two atomic reference counts."""
    sums[b, r, s, c, 0] += 1.0
    clipped = min(max(value, -MOST_VALUE), min(clip, MOST_VALUE))
    sums[b, r, s, c, 1] += clipped
    sums[b, r, s, c, 2] += clipped * clipped
    if sense * (value - threshold) > 0.0:
        sums[b, r, s, c, 3] += 1.0


@njit(cache=True, error_model="numpy")
def fold_probes(  # type: ignore[no-untyped-def]  # pragma: no cover
    window, sums, news, probed_s, replica, slice_, sampled_at_ms, values, valid, clauses, column, threshold,
    sense, clip, applies,
):  # fmt: skip
    """Each valid probe sample is one unit for every probe clause of its slice.

    window: [B, R, S, C, 4]; sums: the same of this tick alone, or without a fleet where nobody asks; news:
    bool [B, R, S], where anything came. clauses: int64, those on probes.
    """
    twice = sums.shape[0] > 0
    for b in range(valid.shape[0]):
        for p in range(valid.shape[1]):
            if not valid[b, p]:
                continue
            r, s = replica[b, p], slice_[b, p]
            probed_s[b, r, s] = max(probed_s[b, r, s], sampled_at_ms[b, p] / MS_PER_S)
            for c in clauses:
                value = values[b, p, column[c]]
                if not applies[c, s] or np.isnan(value):
                    continue
                _add(window, b, r, s, c, value, clip[c], threshold[c], sense[c])
                if twice:
                    _add(sums, b, r, s, c, value, clip[c], threshold[c], sense[c])
                    news[b, r, s] = True


@njit(cache=True, error_model="numpy")
def fold_requests(  # type: ignore[no-untyped-def]  # pragma: no cover
    window, sums, news, answered, failed, latency_le, fresh, clauses, source, column, edge, applies
):
    """Each answer is a unit of the latency clauses, each ended request one of the failure clauses.

    Latencies come with a fresh scrape; without one they are not even looked at. Edge -1 (a threshold above
    every edge) reads the total: nothing is known to lie over it.
    """
    twice, last = sums.shape[0] > 0, latency_le.shape[4] - 1
    failing = clauses[source[clauses] == FAILED]
    for b in range(answered.shape[0]):
        for r in range(answered.shape[1]):
            for s in range(answered.shape[2]):
                over_now = failed[b, r, s]
                ended = answered[b, r, s] + over_now
                if not fresh[b, r] and ended == 0 and over_now == 0:
                    continue
                for c in clauses if fresh[b, r] else failing:
                    if not applies[c, s]:
                        continue
                    if source[c] == FAILED:
                        units, over = ended, over_now
                    else:
                        units = latency_le[b, r, s, column[c], last]
                        over = units - latency_le[b, r, s, column[c], edge[c]]
                    if units == 0 and over == 0:
                        continue
                    _add_counts(window, b, r, s, c, units, over)
                    if twice:
                        _add_counts(sums, b, r, s, c, units, over)
                        news[b, r, s] = True


@njit(cache=True, error_model="numpy")
def _add_counts(sums, b, r, s, c, units, over):  # type: ignore[no-untyped-def]  # pragma: no cover
    """So many units, each 1 where it is over and else 0, into one cell of ``sums``."""
    sums[b, r, s, c, 0] += units
    sums[b, r, s, c, 1] += over
    sums[b, r, s, c, 2] += over
    sums[b, r, s, c, 3] += over


@njit(cache=True, error_model="numpy")
def fold_gauges(  # type: ignore[no-untyped-def]  # pragma: no cover
    window, sums, news, fingerprint_match, trace_fields_ratio, kv_used_ratio, fresh, clauses, source,
    threshold, sense, applies,
):  # fmt: skip
    """Each fresh scrape is one unit of the fingerprint, trace-field and KV clauses, on every slice."""
    for b in range(fresh.shape[0]):
        for r in range(fresh.shape[1]):
            if not fresh[b, r]:
                continue
            for c in clauses:
                if source[c] == FINGERPRINT:
                    value = 1.0 - fingerprint_match[b, r]
                elif source[c] == TRACE_FIELDS:
                    value = 1.0 - trace_fields_ratio[b, r]
                else:
                    value = kv_used_ratio[b, r]
                if not np.isnan(value):
                    _add_everywhere(window, b, r, c, value, threshold, sense, applies)
                    if sums.shape[0] > 0:
                        _add_everywhere(sums, b, r, c, value, threshold, sense, applies)
                        news[b, r] |= applies[c]


@njit(cache=True, error_model="numpy")
def _add_everywhere(sums, b, r, c, value, threshold, sense, applies):  # type: ignore[no-untyped-def]  # pragma: no cover
    """One unit of clause ``c`` on every slice that it applies to."""
    for s in range(applies.shape[1]):
        if applies[c, s]:
            _add(sums, b, r, s, c, value, np.inf, threshold[c], sense[c])


@njit(cache=True, error_model="numpy")
def note_overload(  # type: ignore[no-untyped-def]  # pragma: no cover
    overloaded_s, now_s, replica_state, away, owner, table, offered_rps, capacity_rps, overload_ratio
):
    """Bring up to date when each kernel was last offered more than it carries, ``overloaded_s`` [B, K].

    away: bool [B, R], taken out of rotation.
    """
    fleets, kernels = overloaded_s.shape
    ready, load_rps = np.zeros(kernels, np.int64), np.zeros(kernels)
    for b in range(fleets):
        ready[:], load_rps[:] = 0, 0.0
        for r in range(len(owner)):
            ready[owner[r]] += replica_state[b, r] == READY and not away[b, r]
        for s in range(offered_rps.shape[1]):
            for k in range(kernels):
                load_rps[k] += table[b, s, k] * offered_rps[b, s]
        for k in range(kernels):
            if load_rps[k] > overload_ratio * ready[k] * capacity_rps[k]:
                overloaded_s[b, k] = now_s[b]


@njit(cache=True, error_model="numpy")
def excuse_overloaded(sums, overloaded_s, now_s, window_s, owner, latency):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Drop the ``latency`` clauses of replicas whose kernel is, or within ``window_s`` was, overloaded."""
    for b in range(sums.shape[0]):
        for r in range(len(owner)):
            if now_s[b] - overloaded_s[b, owner[r]] < window_s:
                for s in range(sums.shape[2]):
                    for c in latency:
                        sums[b, r, s, c] = 0.0
