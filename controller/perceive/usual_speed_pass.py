"""Compiled: usual step times of a replica, as mean and variance of a log ratio and of the log of the load.

A step-time model measured elsewhere may be wrong in how steps grow with load, so the usual ratio at night
need not hold at noon. So a load above those observed gives no evidence, and one far below the mean gives
little. A regression over the load would hide slowness: with a fixed number of users, a slow replica has less
load.
"""

from __future__ import annotations

import numpy as np

from contracts.jit import compiled
from controller.detect.step_time import NOISE
from controller.perceive.queue_pass import insert, middle_of

#: Columns of a replica's memory: number of scrapes, mean and variance of the log of the ratio, mean and
#: variance of the log of the load.
SCRAPES, MEAN, VARIANCE, LOAD, LOADS = range(5)
COLUMNS = 5
#: Scrapes after which the usual step time is known.
LEAST_SCRAPES = 60.0
#: Scrapes in memory: the usual step time may change over an hour, and a fault does not become usual.
MEMORY_SCRAPES = 3600.0
#: A scrape does not update the memory if its ratio exceeds the usual one by this factor and one standard
#: deviation.
MOST_RATIO = 1.4
#: Largest standard deviation of the log of the ratio with which a replica is judged.
MOST_SPREAD = 0.5
#: Standard deviation of the growth of the log of the ratio with that of the load: at ten times the load the
#: ratio changes by a factor of 1.4, up or down.
SLOPE = 0.15
#: A load above the observed mean by this many standard deviations plus the margin (both of the log) was not
#: observed yet.
LOAD_SIGMAS, LOAD_MARGIN = 2.0, 0.25


@compiled
def follow(usual, ratio, load, healthy):
    """Add the scrapes of ``healthy`` replicas [B, R] to ``usual`` [B, R, COLUMNS].

    ratio: [B, R], of step times, NaN: none; load: [B, R], tokens per second.
    """
    for b in range(ratio.shape[0]):
        for r in range(ratio.shape[1]):
            if healthy[b, r] and _is_complete(ratio[b, r], load[b, r]):
                _add(usual[b, r], np.log(load[b, r]), np.log(ratio[b, r]))


@compiled(inline="always")
def _is_complete(ratio, load):
    """Whether a scrape has both a ratio and a load."""
    return 0.0 < ratio < np.inf and 0.0 < load < np.inf


@compiled(inline="always")
def _add(known, load, value):
    """Add a scrape to the memory, unless it is slow compared with the usual."""
    most = known[MEAN] + np.log(MOST_RATIO) + np.sqrt(_noise(known))
    if not (_is_usual(known) and _was_observed(known, load) and value > most):
        known[SCRAPES] = min(known[SCRAPES] + 1.0, MEMORY_SCRAPES)
        _update_moments(known[MEAN : VARIANCE + 1], value, 1.0 / known[SCRAPES])
        _update_moments(known[LOAD : LOADS + 1], load, 1.0 / known[SCRAPES])


@compiled(inline="always")
def _update_moments(moments, value, weight):
    """Welford's recursion on a mean and a variance; the weight falls to that of the full memory."""
    error = value - moments[0]
    moments[0] += weight * error
    moments[1] = (1.0 - weight) * (moments[1] + weight * error * error)


@compiled(inline="always")
def _is_usual(known):
    """Whether the usual ratio is known: enough scrapes, and little variation between them."""
    return known[SCRAPES] >= LEAST_SCRAPES and known[VARIANCE] <= MOST_SPREAD**2


@compiled(inline="always")
def _was_observed(known, load):
    """Whether a load as high as ``load`` (its log) was observed before.

    A slow server generates no more than usual, so slowness never looks like a new load.
    """
    return load <= known[LOAD] + LOAD_SIGMAS * np.sqrt(known[LOADS]) + LOAD_MARGIN


@compiled(inline="always")
def _noise(known):
    """Variance of the log of the ratio between scrapes, at least that of ``NOISE``."""
    return max(known[VARIANCE], NOISE * NOISE)


@compiled
def usual_ratio(filled, usual):
    """Fill the usual ratio of every replica into ``filled`` [B, R]; NaN: unknown."""
    for b in range(filled.shape[0]):
        for r in range(filled.shape[1]):
            filled[b, r] = np.exp(usual[b, r, MEAN]) if _is_usual(usual[b, r]) else np.nan


@compiled
def divide(filled, ratio, load, usual, threshold):
    """Fill ``ratio`` [B, R] over the usual ratio at that ``load`` into ``filled``; NaN: unknown.

    The detector assumes that the log of the result over ``threshold`` has a standard deviation of ``NOISE``.
    A larger deviation is shrunk to it.
    """
    for b in range(ratio.shape[0]):
        for r in range(ratio.shape[1]):
            filled[b, r] = np.nan
            if _is_usual(usual[b, r]) and _is_complete(ratio[b, r], load[b, r]):
                filled[b, r] = _judged(ratio[b, r], np.log(load[b, r]), usual[b, r], threshold)


@compiled(inline="always")
def _judged(ratio, load, known, threshold):
    """The ratio over the usual one; the model error grows the noise with the distance to the usual load."""
    if not _was_observed(known, load):
        return np.nan
    distance = load - known[LOAD]
    spread = np.sqrt(_noise(known) + SLOPE * SLOPE * distance * distance)
    return threshold * (ratio / np.exp(known[MEAN]) / threshold) ** (NOISE / spread)


@compiled
def of_kernels(filled, usual, owner):
    """Fill the usual log ratio of every kernel's median replica into ``filled`` [B, K].

    A kernel of unknown ratio gets the median of the known kernels, at least 0.
    """
    kernels = filled.shape[1]
    of_replicas, known_ratios = np.zeros(len(owner)), np.zeros(kernels)
    for b in range(filled.shape[0]):
        known = 0
        for k in range(kernels):
            count = _collect_known(of_replicas, usual, owner, b, k)
            filled[b, k] = np.nan
            if count > 0:
                filled[b, k] = middle_of(of_replicas, count)
                insert(known_ratios, known, filled[b, k])
                known += 1
        others = max(middle_of(known_ratios, known), 0.0) if known > 0 else 0.0
        for k in range(kernels):
            if np.isnan(filled[b, k]):
                filled[b, k] = others


@compiled(inline="always")
def _collect_known(values, usual, owner, b, k):
    """Sort the usual log ratios of a kernel's replicas into ``values``; returns how many are known."""
    count = 0
    for r in range(len(owner)):
        if owner[r] == k and usual[b, r, SCRAPES] >= LEAST_SCRAPES:
            insert(values, count, usual[b, r, MEAN])
            count += 1
    return count
