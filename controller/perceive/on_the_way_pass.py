"""Compiled loop over replicas: the time between gateway and server by the newest scrapes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.jit import borrowed, compiled

#: So many scrapes in a row have to show it.
SCRAPES = 3
#: Shorter times are none: a scrape and a reading of the gateway lie as far apart.
LEAST_S = 0.5


class Shown(NamedTuple):
    """What newest scrapes show; all float64 [B, R], but for ``fresh`` bool [B, R]."""

    under_way: NDArray[np.float64]
    running: NDArray[np.float64]
    waiting: NDArray[np.float64]
    span_s: NDArray[np.float64]
    finished: NDArray[np.float64]
    fresh: NDArray[np.bool_]


@compiled
def follow(way_s, late_s, shown):
    """Move ``way_s`` on, and fill ``late_s``; both in place."""
    shown = borrowed(Shown(*shown))
    for b in range(late_s.shape[0]):
        for r in range(late_s.shape[1]):
            if shown.fresh[b, r]:
                outside = shown.under_way[b, r] - shown.running[b, r] - shown.waiting[b, r]
                outside = 0.0 if outside < 0.0 else outside  # what is unknown stays NaN
                ended = shown.finished[b, r]
                for at in range(SCRAPES - 1):
                    way_s[b, r, at] = way_s[b, r, at + 1]
                known = outside + ended > 0.0
                way_s[b, r, SCRAPES - 1] = outside * shown.span_s[b, r] / (ended + 1.0) if known else np.nan
            least_s = np.inf
            for at in range(SCRAPES):
                least_s = min(least_s, way_s[b, r, at]) if way_s[b, r, at] >= LEAST_S else 0.0
            late_s[b, r] = least_s
