"""Compiled loop over replicas: time between gateway and server, estimated from the newest scrapes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.jit import borrowed, compiled

#: Consecutive blocks of scrapes that have to show the time.
BLOCKS = 3
#: Least duration of a block; its number of scrapes depends on the scrape interval (one second, or ten).
BLOCK_S = 4.5
#: Shorter times count as zero: a scrape and a gateway reading may be that far apart.
LEAST_S = 0.5
#: Columns of the open block: fewest requests outside, requests that ended, seconds.
_LEAST, _ENDED, _LASTED = range(3)
BLOCK_COLUMNS = 3


class OutsideCounts(NamedTuple):
    """Counts of the newest scrapes; all float64 [B, R], except ``fresh`` bool [B, R]."""

    outside: NDArray[np.float64]  # [B, R], requests in flight that are not in the engine
    span_s: NDArray[np.float64]  # [B, R], time between the last two scrapes
    finished: NDArray[np.float64]  # [B, R], requests that ended in that time
    fresh: NDArray[np.bool_]  # [B, R], a new scrape arrived


@compiled
def follow(way_s, block, late_s, counts):
    """Update ``way_s`` and ``block``, and fill ``late_s``; all in place."""
    counts = borrowed(OutsideCounts(*counts))
    for b in range(late_s.shape[0]):
        for r in range(late_s.shape[1]):
            if counts.fresh[b, r]:
                _add(block, counts, b, r)
                if not block[b, r, _LASTED] < BLOCK_S:
                    _close(way_s, block, b, r)
            least_s = np.inf
            for at in range(BLOCKS):
                least_s = min(least_s, way_s[b, r, at]) if way_s[b, r, at] >= LEAST_S else 0.0
            late_s[b, r] = least_s


@compiled(inline="always")
def _add(block, counts, b, r):
    """Add one scrape to the open block; an unknown value makes the block unknown and ends it."""
    outside = counts.outside[b, r]
    first = block[b, r, _LASTED] == 0.0
    if first or outside < block[b, r, _LEAST] or np.isnan(outside):
        block[b, r, _LEAST] = outside
    block[b, r, _ENDED] += counts.finished[b, r]
    block[b, r, _LASTED] += counts.span_s[b, r]


@compiled(inline="always")
def _close(way_s, block, b, r):
    """Store the time on the way of the open block, newest last (NaN: no request ended), and open a new one.

    One more request than counted is taken as ended, so that a replica with few answers does not look late.
    """
    for at in range(BLOCKS - 1):
        way_s[b, r, at] = way_s[b, r, at + 1]
    least, ended, lasted_s = block[b, r, _LEAST], block[b, r, _ENDED], block[b, r, _LASTED]
    least = 0.0 if least < 0.0 else least  # unknown stays NaN
    way_s[b, r, BLOCKS - 1] = least * lasted_s / (ended + 1.0) if ended > 0.0 else np.nan
    block[b, r, :] = 0.0
