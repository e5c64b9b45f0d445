"""Answers that have left their server and not come to the gateway: late on the way."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: Nobody waits longer for an answer than this: what took longer is counted as if it took so long.
MOST_S = 60.0


class Returning:
    """Counts them, for B fleets of R replicas.

    A server is done with a request when its last token leaves; whoever counts at the gateway sees it later by
    what the way takes. So those of the last so many seconds are under way. Within a tick they are taken as
    evenly spread.
    """

    def __init__(self, batch: int, replicas: int, tick_s: float) -> None:
        self._tick_s = tick_s
        #: [ticks, B, R] answers of the newest ticks, in a ring: the newest at ``_newest``, older ones behind.
        self._answered = np.zeros((int(np.ceil(MOST_S / tick_s)), batch, replicas))
        self._newest = 0

    def count(self, answered: NDArray[np.int64], return_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """float64 [B, R], under way at the end of a tick in which ``answered`` [B, R] left their servers.

        return_s: float64 [B, R], what the way takes.
        """
        kept = len(self._answered)
        self._newest = (self._newest - 1) % kept
        self._answered[self._newest] = answered
        ticks = return_s / self._tick_s
        longest = float(ticks.max(initial=0.0))
        if not longest > 1.0:
            return np.asarray(answered * ticks)
        age = np.arange(min(int(np.ceil(min(longest, kept))), kept))  # of older ones nothing is under way
        share = np.clip(ticks - age[:, None, None], 0.0, 1.0)
        return np.asarray((share * self._answered[(self._newest + age) % kept]).sum(axis=0))
