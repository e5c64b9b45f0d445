"""Compiled fold of a tick's units into evidence; each fleet by itself, units in their order of arrival."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from contracts.compiled import Source
from contracts.detect.clauses import Kind
from contracts.detect.compiled import CEILING, FLOOR
from contracts.detect.recovery import SHARES

PROBE = int(Source.PROBE)
AT_ONCE, BETTING = int(Kind.AT_ONCE), int(Kind.BETTING)
#: Log-evidence of an alarm without an ARL0: above every threshold.
CERTAIN = math.log(CEILING)
#: Shares of the largest admissible bet on health.
HEALTH_SHARES = np.array(SHARES)


@njit(cache=True)
def unit_value(value, threshold, sense, is_rate, mirrored, upper, clip):  # type: ignore[no-untyped-def]  # pragma: no cover
    """What a clause bets on: the indicator, or the clipped (mirrored) value, never below 0."""
    if is_rate:
        return 1.0 if sense * (value - threshold) > 0.0 else 0.0
    if mirrored:
        return max(upper - value, 0.0)
    return max(min(value, clip), 0.0)


@njit(cache=True)
def take(evidence, statistic, since, y, kind, null_mean, bets, weights):  # type: ignore[no-untyped-def]  # pragma: no cover
    """One unit ``y`` into one stream: evidence [G], statistic [1], since [2]; returns nothing.

    ``since`` counts units and values from where the evidence was last below 1 unit of evidence, which is
    where the change most likely began.
    """
    if kind == AT_ONCE:
        since[0] += 1.0
        since[1] += y
        if y > 0.0:
            statistic[0] = CERTAIN
        return
    if statistic[0] < 0.0:
        since[0], since[1] = 0.0, 0.0
    since[0] += 1.0
    since[1] += y
    excess = y / null_mean - 1.0
    total = 0.0
    for g in range(bets.shape[0]):
        grown = min((evidence[g] + 1.0) * (1.0 + bets[g] * excess), CEILING)
        evidence[g] = grown
        total += weights[g] * grown
    statistic[0] = math.log(min(max(total, FLOOR), CEILING))


@njit(cache=True)
def heal(health, statistic, y, null, upper):  # type: ignore[no-untyped-def]  # pragma: no cover
    """One unit into the evidence of health [H], best start; the null is "mean >= null" on [0, upper]."""
    most = null / (upper - null)
    short = 1.0 - min(y, upper) / null
    total = 0.0
    for h in range(health.shape[0]):
        grown = min(max(health[h], 1.0) * (1.0 + HEALTH_SHARES[h] * most * short), CEILING)
        health[h] = grown
        total += grown
    statistic[0] = math.log(max(total / health.shape[0], FLOOR))


@njit(cache=True)
def fold_probe_list(  # type: ignore[no-untyped-def]  # pragma: no cover
    evidence, statistic, since, health, healthy, unit_of, heard, replica, slice_, values, source, column,
    threshold, sense, applies, kind, is_rate, mirrored, upper, clip, null_mean, bets, weights, health_null,
    health_upper,
):  # fmt: skip
    """Each heard probe is one unit of every probe clause of its slice, in the stream of its unit."""
    for b in range(heard.shape[0]):
        for p in range(heard.shape[1]):
            if not heard[b, p]:
                continue
            u, s = unit_of[replica[b, p]], slice_[b, p]
            for c in range(source.shape[0]):
                if source[c] != PROBE or kind[c] == 0 or not applies[c, s]:
                    continue
                value = values[b, p, column[c]]
                if np.isnan(value):
                    continue
                y = unit_value(value, threshold[c], sense[c], is_rate[c], mirrored[c], upper[c], clip[c])
                take(
                    evidence[b, u, s, c], statistic[b, u, s, c : c + 1], since[b, u, s, c], y, kind[c],
                    null_mean[c], bets[c], weights[c],
                )  # fmt: skip
                heal(health[b, u, s, c], healthy[b, u, s, c : c + 1], y, health_null[c], health_upper[c])


@njit(cache=True)
def fold_one_each(  # type: ignore[no-untyped-def]  # pragma: no cover
    evidence,
    statistic,
    since,
    health,
    healthy,
    values,
    present,
    applies,
    kind,
    null_mean,
    bets,
    weights,
    health_null,
    health_upper,
):
    """One unit per stream where ``present``: values [B, U, S, C] are what the clauses bet on."""
    for b in range(present.shape[0]):
        for u in range(present.shape[1]):
            for s in range(present.shape[2]):
                for c in range(present.shape[3]):
                    if not present[b, u, s, c] or kind[c] == 0 or not applies[c, s]:
                        continue
                    take(
                        evidence[b, u, s, c], statistic[b, u, s, c : c + 1], since[b, u, s, c],
                        values[b, u, s, c], kind[c], null_mean[c], bets[c], weights[c],
                    )  # fmt: skip
                    heal(
                        health[b, u, s, c], healthy[b, u, s, c : c + 1], values[b, u, s, c], health_null[c],
                        health_upper[c],
                    )  # fmt: skip
