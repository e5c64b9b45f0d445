"""The compiled parts of readings: numbers that add up samples, and what was counted between two readings."""

from __future__ import annotations

import numpy as np

from contracts.jit import compiled

#: More answers than this between two scrapes are no count.
_MOST = 2.0**53


@compiled
def add_up(numbers, values, places, ends):
    """``numbers`` float64 [N] of ``values`` float64 [V]: each the sum over its places, NaN without any.

    places: int64, of values, number by number; those of each end at ``ends`` int64 [N].
    """
    begin = 0
    for n in range(len(ends)):
        numbers[n] = np.nan if ends[n] == begin else values[places[begin]]
        for at in range(begin + 1, ends[n]):
            numbers[n] += values[places[at]]
        begin = ends[n]


@compiled
def count_between(engine, latency_le, before, now, rows, first, families, places):
    """What one replica counted from ``before`` to ``now``, float64 [N], into ``engine`` float64 [COUNTERS]
    and ``latency_le`` int64 [F, E + 1]. False, and nothing is counted, where a counter fell.

    rows: int64, row of ``engine`` of each counter; they stand in the numbers from ``first`` on.
    families: int64 [F, 3], where the counts of each begin in ``before`` and in ``now``, and how many are
    compared; one in which a count fell, or is none, is left out.
    places: int64 [F, E + 1], count that each edge of the record takes.
    """
    for n in range(len(rows)):
        if now[first + n] - before[first + n] < 0.0:
            return False
    for n in range(len(rows)):
        engine[rows[n]] = now[first + n] - before[first + n]
    for f in range(len(families)):
        old, new, counts = families[f]
        known = counts > 0
        for at in range(counts):
            known = known and 0.0 <= now[new + at] - before[old + at] < _MOST
        for at in range(places.shape[1] if known else 0):
            place = places[f, at]
            latency_le[f, at] = np.int64(now[new + place] - before[old + place])
    return True
