"""Compiled loops of the detectors: each stream by itself, in a fixed order, so no result depends on N.

Evidence is kept as plain numbers up to ``CEILING`` and reported as its logarithm. That is exact for every
threshold in use (ARL0 of 1e9 is 1e9, the ceiling 1e250), needs no exponential per bet, and cannot
overflow; what underflows to 0 is a stream without evidence, where the next observation starts anew anyway.
"""

from __future__ import annotations

import math

from contracts.jit import compiled
from contracts.seed_hashing import hashed_uniform

CEILING = 1e250
FLOOR = 1e-300


@compiled
def bet(memory, statistic, ratio, present, bets, weights, start):
    """Evidence per bet times ``1 + bet * (ratio - 1)``, ratio = value over its null mean, read from 0 up.

    start 0: sum over starts (Shiryaev-Roberts); 1: best start (CUSUM); 2: one start (e-process).
    """
    for n in range(memory.shape[0]):
        if not present[n]:
            continue
        excess = max(ratio[n], 0.0) - 1.0
        total = 0.0
        for g in range(bets.shape[0]):
            old = memory[n, g]
            grown = old + 1.0 if start == 0 else max(old, 1.0) if start == 1 else old
            grown = min(grown * (1.0 + bets[g] * excess), CEILING)
            memory[n, g] = grown
            total += weights[g] * grown
        statistic[n] = math.log(min(max(total, FLOOR), CEILING))


@compiled
def tilt(memory, statistic, score, present, shifts, weights, start):
    """Evidence per shift a times ``exp(a z - a a / 2)``: mean 1 when z is standard normal."""
    for n in range(memory.shape[0]):
        if not present[n]:
            continue
        z = score[n]
        total = 0.0
        for g in range(shifts.shape[0]):
            old = memory[n, g]
            grown = old + 1.0 if start == 0 else max(old, 1.0) if start == 1 else old
            a = shifts[g]
            grown = min(grown * math.exp(min(a * z - 0.5 * a * a, 600.0)), CEILING)
            memory[n, g] = grown
            total += weights[g] * grown
        statistic[n] = math.log(min(max(total, FLOOR), CEILING))


@compiled
def slide(memory, statistic, value, present, length, tumbling):
    """Mean of the last ``length`` observations; columns: place, sum, then they. Says nothing until full."""
    for n in range(memory.shape[0]):
        if not present[n]:
            continue
        place = int(memory[n, 0])
        slot = 2 + place % length
        memory[n, 1] += value[n] - memory[n, slot]
        memory[n, slot] = value[n]
        memory[n, 0] = place + 1
        if place + 1 >= length and (not tumbling or (place + 1) % length == 0):
            total = 0.0  # summed anew: differences would drift
            for k in range(length):
                total += memory[n, 2 + k]
            memory[n, 1] = total
            statistic[n] = total / length


@compiled
def smooth(memory, statistic, value, present, gain):
    """Exponentially weighted mean."""
    for n in range(memory.shape[0]):
        if present[n]:
            memory[n, 0] += gain * (value[n] - memory[n, 0])
            statistic[n] = memory[n, 0]


@compiled
def cumulate(memory, statistic, value, present, slope, intercept):
    """CUSUM: ``max(0, S) + slope * value + intercept``."""
    for n in range(memory.shape[0]):
        if present[n]:
            memory[n, 0] = max(memory[n, 0], 0.0) + slope * value[n] + intercept
            statistic[n] = memory[n, 0]


@compiled
def page_hinkley(memory, statistic, value, present, slack, keep, least):
    """Page's test against the running mean; columns: observations, mean, sum, smallest sum."""
    for n in range(memory.shape[0]):
        if not present[n]:
            continue
        memory[n, 0] += 1.0
        memory[n, 1] += (value[n] - memory[n, 1]) / memory[n, 0]
        memory[n, 2] = keep * memory[n, 2] + value[n] - memory[n, 1] - slack
        memory[n, 3] = min(memory[n, 3], memory[n, 2])
        if memory[n, 0] >= least:
            statistic[n] = memory[n, 2] - memory[n, 3]


@compiled
def rank(memory, upper, bin_, present, first, seed, joins):
    """Share of the reference sample above each observation, ties at random, into ``upper`` [N], in (0, 1).

    memory columns from ``first`` on: stream key, observations seen, observations in the reference sample,
    then observations per bin. With ``joins`` the observation is added to its bin after it was ranked.
    """
    bins = memory.shape[1] - first - 3
    for n in range(memory.shape[0]):
        if not present[n]:
            continue
        row = memory[n, first:]
        above = 0.0
        for k in range(bin_[n] + 1, bins):
            above += row[3 + k]
        u = hashed_uniform(seed, int(row[0]), int(row[1]))
        upper[n] = (above + u * (row[3 + bin_[n]] + 1.0)) / (row[2] + 1.0)
        row[1] += 1.0
        if joins:
            row[2] += 1.0
            row[3 + bin_[n]] += 1.0


@compiled
def first_crossings(next_level, levels, statistic, gain, hazard):
    """Where a run first reaches a level, add ``gain * exp(-statistic)`` to that level's hazard."""
    for n in range(statistic.shape[0]):
        while next_level[n] < levels.shape[0] and statistic[n] >= levels[next_level[n]]:
            hazard[next_level[n]] += gain * math.exp(-statistic[n])
            next_level[n] += 1
