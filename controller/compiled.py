"""Compiled loops of the controller: sums over replicas, and telemetry into sums.

Each fleet is worked through by itself and in one fixed order, so no result depends on the batch.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from contracts.compiled import Source
from contracts.units import MS_PER_S

# Plain integers, because compiled code does not know the enumeration.
PROBE, LATENCY, FAILED = int(Source.PROBE), int(Source.LATENCY), int(Source.FAILED)
#: The gauges stand one after the other: fingerprint, trace fields, KV use.
FINGERPRINT, KV_USED = int(Source.FINGERPRINT), int(Source.KV_USED)

#: Values are bounded here even where a clause has no clip, so that an infinite one leaves sums finite.
MOST_VALUE = 1e12


@njit(cache=True)
def add_up(out, values, owner):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Add the replicas' values to their kernel's row, in replica order."""
    for b in range(values.shape[0]):
        for r in range(len(owner)):
            for x in range(values.shape[2]):
                out[b, owner[r], x] += values[b, r, x]


@njit(cache=True)
def largest(out, values, owner):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Keep in each kernel's row the largest of its replicas' values."""
    for b in range(values.shape[0]):
        for r in range(len(owner)):
            for x in range(values.shape[2]):
                out[b, owner[r], x] = max(out[b, owner[r], x], values[b, r, x])


@njit(cache=True)
def _add(cell, value, clip, threshold, sense):  # type: ignore[no-untyped-def]  # pragma: no cover
    """One unit into one cell of sums."""
    cell[0] += 1.0
    clipped = min(max(value, -MOST_VALUE), min(clip, MOST_VALUE))
    cell[1] += clipped
    cell[2] += clipped * clipped
    if sense * (value - threshold) > 0.0:
        cell[3] += 1.0


@njit(cache=True)
def fold_probes(  # type: ignore[no-untyped-def]  # pragma: no cover
    window, probed_s, replica, slice_, sampled_at_ms, values, valid, source, column, threshold, sense,
    clip, applies,
):  # fmt: skip
    """Each valid probe sample is one unit for every probe clause of its slice."""
    for b in range(valid.shape[0]):
        for p in range(valid.shape[1]):
            if not valid[b, p]:
                continue
            r, s = replica[b, p], slice_[b, p]
            probed_s[b, r, s] = max(probed_s[b, r, s], sampled_at_ms[b, p] / MS_PER_S)
            for c in range(len(source)):
                if source[c] != PROBE or not applies[c, s]:
                    continue
                value = values[b, p, column[c]]
                if not np.isnan(value):
                    _add(window[b, r, s, c], value, clip[c], threshold[c], sense[c])


@njit(cache=True)
def fold_requests(  # type: ignore[no-untyped-def]  # pragma: no cover
    window, answered, failed, latency_le, known, source, column, edge, applies
):
    """Each answer is a unit of the latency clauses, each ended request one of the failure clauses.

    Edge -1 (a threshold above every edge) reads the total: nothing is known to lie over it.
    """
    last = latency_le.shape[4] - 1
    for c in range(len(source)):
        if source[c] != LATENCY and source[c] != FAILED:
            continue
        for b in range(answered.shape[0]):
            for r in range(answered.shape[1]):
                for s in range(answered.shape[2]):
                    if not applies[c, s]:
                        continue
                    if source[c] == LATENCY:
                        if not known[b, r]:
                            continue
                        units = latency_le[b, r, s, column[c], last]
                        over = units - latency_le[b, r, s, column[c], edge[c]]
                    else:
                        units = answered[b, r, s] + failed[b, r, s]
                        over = failed[b, r, s]
                    cell = window[b, r, s, c]
                    cell[0] += units
                    cell[1] += over
                    cell[2] += over
                    cell[3] += over


@njit(cache=True)
def fold_gauges(window, gauges, fresh, source, threshold, sense, applies):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Each fresh scrape is one unit of the fingerprint, trace-field and KV clauses, on every slice."""
    for c in range(len(source)):
        if source[c] < FINGERPRINT or source[c] > KV_USED:
            continue
        for b in range(fresh.shape[0]):
            for r in range(fresh.shape[1]):
                value = gauges[b, r, source[c] - FINGERPRINT]
                if not fresh[b, r] or np.isnan(value):
                    continue
                for s in range(applies.shape[1]):
                    if applies[c, s]:
                        _add(window[b, r, s, c], value, np.inf, threshold[c], sense[c])
