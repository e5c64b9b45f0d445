"""Compiled loop over replicas: the time between gateway and server by the newest scrapes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.jit import borrowed, compiled

#: So many blocks of scrapes in a row have to show it.
BLOCKS = 3
#: A block is as many scrapes as last so long: a scrape may come every second or every ten.
BLOCK_S = 4.5
#: Shorter times are none: a scrape and a reading of the gateway lie as far apart.
LEAST_S = 0.5
#: Of the block under way: least requests outside, requests that ended, seconds.
_LEAST, _ENDED, _LASTED = range(3)
BLOCK_COLUMNS = 3


class Shown(NamedTuple):
    """What newest scrapes show; all float64 [B, R], but for ``fresh`` bool [B, R]."""

    outside: NDArray[np.float64]  # [B, R], requests that are not in the server
    span_s: NDArray[np.float64]  # [B, R], time between scrapes
    finished: NDArray[np.float64]  # [B, R], requests that ended in it
    fresh: NDArray[np.bool_]  # [B, R], a new scrape arrived


@compiled
def follow(way_s, block, late_s, shown):
    """Move ``way_s`` and ``block`` on, and fill ``late_s``; all in place."""
    shown = borrowed(Shown(*shown))
    for b in range(late_s.shape[0]):
        for r in range(late_s.shape[1]):
            if shown.fresh[b, r]:
                _add(block, shown, b, r)
                if not block[b, r, _LASTED] < BLOCK_S:
                    _close(way_s, block, b, r)
            least_s = np.inf
            for at in range(BLOCKS):
                least_s = min(least_s, way_s[b, r, at]) if way_s[b, r, at] >= LEAST_S else 0.0
            late_s[b, r] = least_s


@compiled(inline="always")
def _add(block, shown, b, r):
    """One scrape to the block under way; what is unknown makes it unknown, and ends it."""
    outside = shown.outside[b, r]
    first = block[b, r, _LASTED] == 0.0
    if first or outside < block[b, r, _LEAST] or np.isnan(outside):
        block[b, r, _LEAST] = outside
    block[b, r, _ENDED] += shown.finished[b, r]
    block[b, r, _LASTED] += shown.span_s[b, r]


@compiled(inline="always")
def _close(way_s, block, b, r):
    """Time on the way by a block, the newest last; NaN where nothing ended in it. A new one begins.

    One request more is taken to have ended than did: who answers little is not late for that.
    """
    for at in range(BLOCKS - 1):
        way_s[b, r, at] = way_s[b, r, at + 1]
    least, ended, lasted_s = block[b, r, _LEAST], block[b, r, _ENDED], block[b, r, _LASTED]
    least = 0.0 if least < 0.0 else least  # what is unknown stays NaN
    way_s[b, r, BLOCKS - 1] = least * lasted_s / (ended + 1.0) if ended > 0.0 else np.nan
    block[b, r, :] = 0.0
