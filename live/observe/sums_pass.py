"""The compiled parts of readings: numbers that add up samples, and what was counted between two readings."""

from __future__ import annotations

import numpy as np

from contracts.jit import compiled

#: More answers than this between two scrapes are no count.
_MOST = 2.0**53


@compiled
def add_up(numbers, values, places, ends):
    """``numbers`` float64 [N] of ``values`` float64 [V]: each the sum over its ``places``, NaN without any."""
    begin = 0
    for n in range(len(ends)):
        numbers[n] = np.nan if ends[n] == begin else values[places[begin]]
        for at in range(begin + 1, ends[n]):
            numbers[n] += values[places[at]]
        begin = ends[n]


@compiled
def count_between(engine, rows, before, now, begin):
    """Counters of one replica from ``before`` to ``now``, float64 [N], into ``engine`` float64 [COUNTERS].

    They stand in the numbers from ``begin`` on; counter n goes to row ``rows`` int64 [n]. False, and nothing
    is counted, where one fell.
    """
    for n in range(len(rows)):
        if now[begin + n] - before[begin + n] < 0.0:
            return False
    for n in range(len(rows)):
        engine[rows[n]] = now[begin + n] - before[begin + n]
    return True


@compiled
def histogram_between(counted, places, before, now):
    """Answers from ``before`` to ``now``, float64 [server's edges], into ``counted`` int64 [E + 1] by
    ``places`` int64 [E + 1]; none where one count fell or is no count.
    """
    for at in range(len(now)):
        if not 0.0 <= now[at] - before[at] < _MOST:
            return
    for at in range(len(counted)):
        counted[at] = np.int64(now[places[at]] - before[places[at]])
