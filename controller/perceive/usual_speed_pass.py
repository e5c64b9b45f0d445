"""Compiled: what is usual of a replica, mean and variance of the log of a ratio, with a long memory."""

from __future__ import annotations

import numpy as np

from contracts.jit import compiled
from controller.detect.step_time import NOISE
from controller.perceive.queue_pass import insert, middle_of

#: Columns of what is remembered of a replica: scrapes that it stands on, mean and variance of their logs.
SCRAPES, MEAN, VARIANCE = range(3)
COLUMNS = 3
#: Scrapes after which it is known what is usual.
LEAST_SCRAPES = 60.0
#: Scrapes that are remembered: what is usual may change over an hour, and a fault does not become usual.
MEMORY_SCRAPES = 3600.0
#: Standard deviations above the usual from which a scrape teaches nothing.
MOST_SIGMAS = 3.0
#: Largest standard deviation, of the log, of which anything can be told.
MOST_SPREAD = 0.5


@compiled
def follow(usual, ratio, teaches):
    """Add the scrapes of who ``teaches`` [B, R] to ``usual`` [B, R, 3]; ``ratio`` [B, R], NaN: none."""
    for b in range(ratio.shape[0]):
        for r in range(ratio.shape[1]):
            if teaches[b, r] and 0.0 < ratio[b, r] < np.inf:
                _add(usual[b, r], np.log(ratio[b, r]))


@compiled(inline="always")
def _add(known, value):
    """Welford's recursion, with weights that end at those of the memory."""
    off = value - known[MEAN]
    if not (_is_usual(known) and off > MOST_SIGMAS * _spread(known)):
        known[SCRAPES] = min(known[SCRAPES] + 1.0, MEMORY_SCRAPES)
        weight = 1.0 / known[SCRAPES]
        known[MEAN] += weight * off
        known[VARIANCE] = (1.0 - weight) * (known[VARIANCE] + weight * off * off)


@compiled(inline="always")
def _is_usual(known):
    """Whether enough was seen to tell, and it does not differ too much from scrape to scrape."""
    return known[SCRAPES] >= LEAST_SCRAPES and known[VARIANCE] <= MOST_SPREAD**2


@compiled(inline="always")
def _spread(known):
    """Standard deviation of the log from scrape to scrape, ``NOISE`` at least."""
    return max(np.sqrt(known[VARIANCE]), NOISE)


@compiled
def divide(found, ratio, usual, threshold):
    """Fill in ``ratio`` [B, R] over what is usual; NaN where that is not known.

    What is judged takes its logarithm beyond ``threshold`` to have a standard deviation of ``NOISE``: where
    it has more, it is shrunk until it has.
    """
    for b in range(ratio.shape[0]):
        for r in range(ratio.shape[1]):
            known = usual[b, r]
            found[b, r] = np.nan
            if _is_usual(known):
                beyond = ratio[b, r] / np.exp(known[MEAN]) / threshold
                found[b, r] = threshold * beyond ** (NOISE / _spread(known))


@compiled
def of_kernels(found, usual, owner):
    """Fill in [B, K] the usual log ratio of a kernel's middle replica; of who has not told, the middle one's
    of those who have, 0 at least.
    """
    kernels = found.shape[1]
    of_replicas, told = np.zeros(len(owner)), np.zeros(kernels)
    for b in range(found.shape[0]):
        known = 0
        for k in range(kernels):
            count = _tell(of_replicas, usual, owner, b, k)
            found[b, k] = np.nan
            if count > 0:
                found[b, k] = middle_of(of_replicas, count)
                insert(told, known, found[b, k])
                known += 1
        others = max(middle_of(told, known), 0.0) if known > 0 else 0.0
        for k in range(kernels):
            if np.isnan(found[b, k]):
                found[b, k] = others


@compiled(inline="always")
def _tell(values, usual, owner, b, k):
    """Sort in ``values`` what is usual of a kernel's replicas; how many have told."""
    count = 0
    for r in range(len(owner)):
        if owner[r] == k and usual[b, r, SCRAPES] >= LEAST_SCRAPES:
            insert(values, count, usual[b, r, MEAN])
            count += 1
    return count
