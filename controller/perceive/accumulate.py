"""Compiled loops from telemetry to sums: every observation adds to a cell of a replica, or of a kernel.

For probes and gauges, a cell is (replica, slice, clause). Traffic is counted twice, because two sources see
different parts of it. The counters of a replica's server and the gateway's counters per host cover all
requests of the replica and add to one cell per clause (``clauses.replica_places``). The gateway's counts of a
slice on a kernel add to the cell (kernel, slice, clause). Each fleet is processed independently and in one
fixed order, so no result depends on the batch.

Records are passed to compiled code as plain tuples, which numba unpacks in a third of the time of named
tuples (0.1 us an array). Inside they become named tuples again.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.jit import borrowed, compiled
from contracts.telemetry import Source
from contracts.units import MS_PER_S
from controller.perceive.excuse_pass import Overload, counting_shares, excuse_overloaded

# Plain integers, because compiled code does not know the enumeration.
FAILED, FINGERPRINT, TRACE_FIELDS = int(Source.FAILED), int(Source.FINGERPRINT), int(Source.TRACE_FIELDS)
STEP_TIME = int(Source.STEP_TIME)

#: Bound of values even where a clause has no clip, so that an infinite value leaves sums finite.
MOST_VALUE = 1e12


class Sinks(NamedTuple):
    """Arrays to which a tick adds; all written to."""

    window: NDArray[np.float64]  # [B, R, S, C, 4], the running window
    sums: NDArray[np.float64]  # [B, R, S, C, 4], of this tick; empty (B = 0) where not read
    news: NDArray[np.bool_]  # [B, R, S], has observations in this tick; empty as well
    probed_at_s: NDArray[np.float64]  # [B, R, S], newest probe
    kernel_window: NDArray[np.float64]  # [B, K, S, C, 4], the running window of the gateway's counts
    kernel_sums: NDArray[np.float64]  # [B, K, S, C, 4], of this tick; empty as well
    kernel_news: NDArray[np.bool_]  # [B, K, S], has observations in this tick; empty as well


class Probes(NamedTuple):
    """Probe samples of one telemetry."""

    replica: NDArray[np.int64]  # [B, P]
    slice: NDArray[np.int64]  # [B, P]
    sampled_at_ms: NDArray[np.float64]  # [B, P]
    values: NDArray[np.float64]  # [B, P, M], NaN: not measured
    received: NDArray[np.bool_]  # [B, P], samples that count


class Scrapes(NamedTuple):
    """Counters and gauges of the replicas in one telemetry."""

    answered: NDArray[np.int64]  # [B, R], attempts since the last telemetry
    failed: NDArray[np.int64]  # [B, R]
    counted_failed: NDArray[np.int64]  # [B, R], without what a reset of a hung replica ended
    latency_le: NDArray[np.int64]  # [B, R, F, E + 1], answers below each edge, the total last
    fingerprint_match: NDArray[np.float64]  # [B, R], 0..1
    trace_fields_ratio: NDArray[np.float64]  # [B, R], 0..1
    kv_used_ratio: NDArray[np.float64]  # [B, R], 0..1
    step_time_ratio: NDArray[np.float64]  # [B, R], NaN: unknown; empty (B = 0) where no clause reads it
    fresh: NDArray[np.bool_]  # [B, R], a new scrape arrived


class GatewayBatch(NamedTuple):
    """``GatewayCounts`` of one telemetry, and the replicas that do not count for their kernel."""

    answered: NDArray[np.int64]  # [B, S, K]
    failed: NDArray[np.int64]  # [B, S, K]
    timed_out: NDArray[np.int64]  # [B, S, K], timeouts among the failed
    latency_le: NDArray[np.int64]  # [B, S, K, F, E + 1]
    quarantined: NDArray[np.bool_]  # [B, R], in quarantine, or needed although they fail


class Clauses(NamedTuple):
    """The clauses of a contract by what they read."""

    probes: NDArray[np.int64]  # [n], places of clauses on probes
    requests: NDArray[np.int64]  # [n], places of clauses on requests: failures and latencies
    failing: NDArray[np.int64]  # [n], places of clauses on failures
    latency: NDArray[np.int64]  # [n], places of clauses on latencies
    gauges: NDArray[np.int64]  # [n], places of clauses on gauges
    source: NDArray[np.int64]  # [C], a ``Source``
    column: NDArray[np.int64]  # [C], metric or latency family
    edge: NDArray[np.int64]  # [C], edge of the histogram; -1: above every edge
    threshold: NDArray[np.float64]  # [C]
    sense: NDArray[np.float64]  # [C], 1: at most, -1: at least
    clip: NDArray[np.float64]  # [C]
    applies: NDArray[np.bool_]  # [C, S]
    place: NDArray[np.int64]  # [C], slice to which traffic of a replica is booked; -1: none


@compiled
def accumulate_tick(sinks, probes, scrapes, gateway, clauses, overload):
    """Add one telemetry's observations, without latencies and timeouts of overloaded kernels.

    A timeout is a late answer, so overload excuses it like any other late answer.
    """
    sinks, probes, scrapes = borrowed((Sinks(*sinks), Probes(*probes), Scrapes(*scrapes)))
    gateway, clauses, overload = borrowed((GatewayBatch(*gateway), Clauses(*clauses), Overload(*overload)))
    _accumulate_probes(sinks, probes, clauses)
    counting = counting_shares(gateway.failed, gateway.timed_out, overload)
    _accumulate_requests(sinks, scrapes, clauses, counting, overload.owner)
    _accumulate_gateway(sinks, gateway, scrapes, clauses, counting, overload.owner)
    _accumulate_gauges(sinks, scrapes, clauses)
    kernels = np.arange(overload.overloaded_at_s.shape[1])
    excuse_overloaded(sinks.window, overload, overload.owner, clauses.latency)
    excuse_overloaded(sinks.sums, overload, overload.owner, clauses.latency)
    excuse_overloaded(sinks.kernel_window, overload, kernels, clauses.latency)
    excuse_overloaded(sinks.kernel_sums, overload, kernels, clauses.latency)


@compiled
def _add(sums, b, r, s, c, value, clip, threshold, sense):
    """Add one observation to one cell of ``sums``; a view of it would cost two atomic reference counts."""
    sums[b, r, s, c, 0] += 1.0
    clipped = min(max(value, -MOST_VALUE), min(clip, MOST_VALUE))
    sums[b, r, s, c, 1] += clipped
    sums[b, r, s, c, 2] += clipped * clipped
    if sense * (value - threshold) > 0.0:
        sums[b, r, s, c, 3] += 1.0


@compiled
def _accumulate_probes(sinks, probes, clauses):
    """Each received probe sample is one observation for every probe clause of its slice."""
    window, sums, news, probed_at_s = sinks.window, sinks.sums, sinks.news, sinks.probed_at_s
    threshold, sense, clip = clauses.threshold, clauses.sense, clauses.clip
    twice = sums.shape[0] > 0
    for b in range(probes.received.shape[0]):
        for p in range(probes.received.shape[1]):
            if not probes.received[b, p]:
                continue
            r, s = probes.replica[b, p], probes.slice[b, p]
            probed_at_s[b, r, s] = max(probed_at_s[b, r, s], probes.sampled_at_ms[b, p] / MS_PER_S)
            for c in clauses.probes:
                value = probes.values[b, p, clauses.column[c]]
                if not clauses.applies[c, s] or np.isnan(value):
                    continue
                _add(window, b, r, s, c, value, clip[c], threshold[c], sense[c])
                if twice:
                    _add(sums, b, r, s, c, value, clip[c], threshold[c], sense[c])
                    news[b, r, s] = True


@compiled
def _accumulate_requests(sinks, scrapes, clauses, counting, owner):
    """Each answer of a replica is an observation for latency clauses, each attempt one for failure clauses.

    Latencies come with a fresh scrape; without one they are not read. Edge -1 (a threshold above every edge)
    reads the total: no answer is known to lie above it.
    """
    window, sums, news = sinks.window, sinks.sums, sinks.news
    answered, failed = scrapes.answered, scrapes.counted_failed
    latency_le, fresh = scrapes.latency_le, scrapes.fresh
    source, column, edge, place = clauses.source, clauses.column, clauses.edge, clauses.place
    twice, last = sums.shape[0] > 0, latency_le.shape[3] - 1
    for b in range(answered.shape[0]):
        for r in range(answered.shape[1]):
            over_now = failed[b, r] * counting[b, owner[r]]
            ended = answered[b, r] + over_now
            if not fresh[b, r] and ended == 0.0:
                continue
            for c in clauses.requests if fresh[b, r] else clauses.failing:
                if source[c] == FAILED:
                    count, over = ended, over_now
                else:
                    count = 1.0 * latency_le[b, r, column[c], last]
                    over = count - latency_le[b, r, column[c], edge[c]]
                if place[c] < 0 or (count == 0 and over == 0):
                    continue
                squares = over * over if source[c] == FAILED else over
                _add_counts(window, b, r, place[c], c, count, over, squares)
                if twice:
                    _add_counts(sums, b, r, place[c], c, count, over, squares)
                    news[b, r, place[c]] = True


@compiled
def _accumulate_gateway(sinks, gateway, scrapes, clauses, counting, owner):
    """Observations of each slice on each kernel, by the gateway's counts.

    Attempts on replicas that are in quarantine or needed do not count for the kernel. Their share of its
    attempts is left out, equally on every slice, because their slice is unknown.
    """
    window, sums, news = sinks.kernel_window, sinks.kernel_sums, sinks.kernel_news
    answered, failed, latency_le = gateway.answered, gateway.failed, gateway.latency_le
    source, column, edge = clauses.source, clauses.column, clauses.edge
    twice, last = sums.shape[0] > 0, latency_le.shape[4] - 1
    slices, kernels = answered.shape[1:]
    kept, away = np.ones((kernels, 2)), np.zeros((kernels, 2))
    for b in range(answered.shape[0]):
        _share_in_rotation(kept, away, gateway.quarantined[b], scrapes, owner, b)
        for s in range(slices):
            for k in range(kernels):
                over_now = failed[b, s, k] * kept[k, 1] * counting[b, k]
                ended = answered[b, s, k] * kept[k, 0] + over_now
                if ended == 0.0 and latency_le[b, s, k, 0, last] == 0:
                    continue
                for c in clauses.requests:
                    if not clauses.applies[c, s]:
                        continue
                    failing = source[c] == FAILED
                    count = ended if failing else float(latency_le[b, s, k, column[c], last])
                    if count == 0.0:  # without a flush there is none, and edges lie elsewhere in memory
                        continue
                    over = over_now if failing else count - latency_le[b, s, k, column[c], edge[c]]
                    squares = over * over if failing else over
                    _add_counts(window, b, k, s, c, count, over, squares)
                    if twice:
                        _add_counts(sums, b, k, s, c, count, over, squares)
                        news[b, k, s] = True


@compiled
def _share_in_rotation(kept, away, quarantined, scrapes, owner, b):
    """Into ``kept`` [K, 2]: share of a kernel's answered and failed attempts outside of ``quarantined`` [R].

    ``away`` [K, 2] is scratch.
    """
    kept[:] = 1.0
    if not quarantined.any():
        return
    kept[:], away[:] = 0.0, 0.0
    for r in range(len(owner)):  # first all attempts
        kept[owner[r], 0] += scrapes.answered[b, r]
        kept[owner[r], 1] += scrapes.failed[b, r]
        if quarantined[r]:
            away[owner[r], 0] += scrapes.answered[b, r]
            away[owner[r], 1] += scrapes.failed[b, r]
    for k in range(kept.shape[0]):
        for i in range(2):
            kept[k, i] = max(1.0 - away[k, i] / kept[k, i], 0.0) if away[k, i] > 0.0 else 1.0


@compiled
def _add_counts(sums, b, r, s, c, count, over, squares):
    """Add ``count`` observations to one cell of ``sums``: ``over`` of them have the value 1, the others 0.

    squares: sum of squares; for failures, the square of the tick's count, because failures come in bursts
    (``detect.sums``).
    """
    sums[b, r, s, c, 0] += count
    sums[b, r, s, c, 1] += over
    sums[b, r, s, c, 2] += squares
    sums[b, r, s, c, 3] += over


@compiled
def _accumulate_gauges(sinks, scrapes, clauses):
    """Each fresh scrape is one observation for the clauses on gauges, on every slice."""
    window, sums, news = sinks.window, sinks.sums, sinks.news
    for b in range(scrapes.fresh.shape[0]):
        for r in range(scrapes.fresh.shape[1]):
            if not scrapes.fresh[b, r]:
                continue
            for c in clauses.gauges:
                value = _gauge(scrapes, clauses.source[c], b, r)
                if not np.isnan(value):
                    _add_to_every_slice(window, b, r, c, value, clauses)
                    if sums.shape[0] > 0:
                        _add_to_every_slice(sums, b, r, c, value, clauses)
                        for s in range(news.shape[2]):
                            news[b, r, s] |= clauses.applies[c, s]


@compiled(inline="always")
def _gauge(scrapes, source, b, r):
    """Value in the newest scrape of a replica for a clause with this source; NaN: unknown."""
    if source == FINGERPRINT:
        return 1.0 - scrapes.fingerprint_match[b, r]
    if source == TRACE_FIELDS:
        return 1.0 - scrapes.trace_fields_ratio[b, r]
    return scrapes.step_time_ratio[b, r] if source == STEP_TIME else scrapes.kv_used_ratio[b, r]


@compiled(inline="always")
def _add_to_every_slice(sums, b, r, c, value, clauses):
    """Add one observation of clause ``c`` on every slice that it applies to."""
    for s in range(clauses.applies.shape[1]):
        if clauses.applies[c, s]:
            _add(sums, b, r, s, c, value, np.inf, clauses.threshold[c], clauses.sense[c])
