"""Compiled: what is usual of a replica, mean and variance of the log of a ratio, and of the loads it saw.

A model that was measured elsewhere may be wrong in how steps grow with load, so what is usual at night need
not be so at noon. So a load that nobody has seen yet tells nothing, and one that is less than usual little.
A line over the load would explain slowness away: who is slow under a fixed number of users gives less.
"""

from __future__ import annotations

import numpy as np

from contracts.jit import compiled
from controller.detect.step_time import NOISE
from controller.perceive.queue_pass import insert, middle_of

#: Columns of what is remembered of a replica: scrapes that it stands on, mean and variance of the log of the
#: ratio, mean and variance of the log of the load.
SCRAPES, MEAN, VARIANCE, LOAD, LOADS = range(5)
COLUMNS = 5
#: Scrapes after which it is known what is usual.
LEAST_SCRAPES = 60.0
#: Scrapes that are remembered: what is usual may change over an hour, and a fault does not become usual.
MEMORY_SCRAPES = 3600.0
#: Times the usual beyond which a scrape teaches nothing, where it lies a standard deviation above that too.
MOST_RATIO = 1.4
#: Largest standard deviation, of the log, of which anything can be told.
MOST_SPREAD = 0.5
#: Standard deviation of how the log of the ratio grows with that of the load: ten times the load makes it 1.4
#: times what it was, or as much less.
SLOPE = 0.15
#: A load beyond so many standard deviations of those seen, and a quarter more, tells nothing yet.
LOAD_SIGMAS, LOAD_MARGIN = 2.0, 0.25


@compiled
def follow(usual, ratio, load, teaches):
    """Add the scrapes of who ``teaches`` [B, R] to ``usual`` [B, R, COLUMNS].

    ratio: [B, R], of step times, NaN: none; load: [B, R], tokens per second.
    """
    for b in range(ratio.shape[0]):
        for r in range(ratio.shape[1]):
            if teaches[b, r] and _tells(ratio[b, r], load[b, r]):
                _add(usual[b, r], np.log(load[b, r]), np.log(ratio[b, r]))


@compiled(inline="always")
def _tells(ratio, load):
    """Whether a scrape has told both."""
    return 0.0 < ratio < np.inf and 0.0 < load < np.inf


@compiled(inline="always")
def _add(known, load, value):
    """Count a scrape, unless it is slow by what is known."""
    most = known[MEAN] + np.log(MOST_RATIO) + np.sqrt(_noise(known))
    if not (_is_usual(known) and _was_seen(known, load) and value > most):
        known[SCRAPES] = min(known[SCRAPES] + 1.0, MEMORY_SCRAPES)
        _move(known[MEAN : VARIANCE + 1], value, 1.0 / known[SCRAPES])
        _move(known[LOAD : LOADS + 1], load, 1.0 / known[SCRAPES])


@compiled(inline="always")
def _move(moments, value, weight):
    """Welford's recursion on a mean and a variance, with weights that end at those of the memory."""
    off = value - moments[0]
    moments[0] += weight * off
    moments[1] = (1.0 - weight) * (moments[1] + weight * off * off)


@compiled(inline="always")
def _is_usual(known):
    """Whether enough was seen to tell, and it does not differ too much from scrape to scrape."""
    return known[SCRAPES] >= LEAST_SCRAPES and known[VARIANCE] <= MOST_SPREAD**2


@compiled(inline="always")
def _was_seen(known, load):
    """Whether the log ``load`` is none that nobody has seen yet. A slow server gives no more than usual."""
    return load <= known[LOAD] + LOAD_SIGMAS * np.sqrt(known[LOADS]) + LOAD_MARGIN


@compiled(inline="always")
def _noise(known):
    """Variance of the log of the ratio from scrape to scrape, that of ``NOISE`` at least."""
    return max(known[VARIANCE], NOISE * NOISE)


@compiled
def usual_ratio(found, usual):
    """Fill in [B, R] the usual ratio of who has told it; NaN of everybody else."""
    for b in range(found.shape[0]):
        for r in range(found.shape[1]):
            found[b, r] = np.exp(usual[b, r, MEAN]) if _is_usual(usual[b, r]) else np.nan


@compiled
def divide(found, ratio, load, usual, threshold):
    """Fill in ``ratio`` [B, R] over what is usual at that ``load``; NaN where that is not known.

    What is judged takes its logarithm beyond ``threshold`` to have a standard deviation of ``NOISE``: where
    it has more, it is shrunk until it has.
    """
    for b in range(ratio.shape[0]):
        for r in range(ratio.shape[1]):
            found[b, r] = np.nan
            if _is_usual(usual[b, r]) and _tells(ratio[b, r], load[b, r]):
                found[b, r] = _judged(ratio[b, r], np.log(load[b, r]), usual[b, r], threshold)


@compiled(inline="always")
def _judged(ratio, load, known, threshold):
    """The ratio over the usual one; an error of the model adds to its noise as the load is another."""
    if not _was_seen(known, load):
        return np.nan
    less = load - known[LOAD]
    spread = np.sqrt(_noise(known) + SLOPE * SLOPE * less * less)
    return threshold * (ratio / np.exp(known[MEAN]) / threshold) ** (NOISE / spread)


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
