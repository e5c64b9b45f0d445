"""Compiled comparison of probes with the bounds that follow from what was seen in health.

Axes: B fleets, K kernels, R replicas, S slices, N places of prompts per slice, A clauses on probes, P probes.
Values are signed, so that larger is worse; each fleet by itself, probes in their order.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.jit import borrowed, compiled
from controller.detect.as_certified_pass import DIFFERS, MATCHES, UNKNOWN
from controller.detect.streams.protocol import Flags, Floats

#: Part of what lies between the mean of the worst and the limit by which a bound lies above the worst.
ABOVE_WORST = 0.5
#: Steps of what is remembered: at most 3 % of a value each.
GRAIN = 64.0


class BoundsMemory(NamedTuple):
    """What was seen in health, changed in place."""

    prompts: NDArray[np.int64]  # [B, S, N], ids of the prompts in their places; -1: free
    worst: Floats  # [B, K, S, N, A], signed; NaN: never seen


class BoundsRules(NamedTuple):
    """Clauses on probes, signed."""

    owner: NDArray[np.int64]  # [R]
    column: NDArray[np.int64]  # [A], probe metric
    sense: Floats  # [A]
    limit: Floats  # [A], of the mean, or beyond which an observation counts
    clip: Floats  # [A], values are clipped here before they are signed
    is_rate: Flags  # [A], judged by the share of observations beyond the limit
    rate_limit: Floats  # [A], largest such share
    applies: Flags  # [S, A]


class SeenProbes(NamedTuple):
    """One tick's probes, and who may teach."""

    received: Flags  # [B, P], which of them count
    replica: NDArray[np.int64]  # [B, P]
    slice: NDArray[np.int64]  # [B, P]
    prompt: NDArray[np.int64]  # [B, P], ids
    values: Floats  # [B, P, M]; NaN: not measured
    teaches: Flags  # [B, R], in rotation, and nothing is said against it or its kernel


@compiled
def bound(worst, place, limit, is_rate):
    """What a probe of the prompt at ``place`` (-1: of none) may give; ``worst`` [N] of one clause.

    Whoever stays within the bounds on all prompts keeps the clause. Of a rate: the limit, or the worst where
    that lies beyond it. Of a mean: the worst, and its share of half of what the mean of the worst leaves up
    to the limit; so a prompt that was never seen may lie as far beyond the limit, as long as no more of them
    were never seen than were. -inf where nothing was seen.
    """
    own = worst[place] if place >= 0 else np.nan
    if is_rate:
        return limit if np.isnan(own) or own <= limit else own
    seen, mean, size = _means(worst)
    if seen == 0:
        return -np.inf
    if np.isnan(own):
        return limit + (1.0 - ABOVE_WORST) * (limit - mean)
    share = 1.0 if size == 0.0 else 0.5 + 0.5 * max(own, 0.0) / size
    return own + share * ABOVE_WORST * (limit - mean)


@compiled
def _means(worst):
    """How many of ``worst`` [N] were seen, their mean, and that of what is above 0."""
    seen, total, above = 0, 0.0, 0.0
    for n in range(worst.shape[0]):
        if not np.isnan(worst[n]):
            seen, total, above = seen + 1, total + worst[n], above + max(worst[n], 0.0)
    return seen, total / max(seen, 1), above / max(seen, 1)


@compiled
def _keeps(worst, limit, is_rate, rate_limit):
    """Whether who gives the ``worst`` [N] everywhere keeps the clause."""
    seen, total, beyond = 0, 0.0, 0
    for n in range(worst.shape[0]):
        if not np.isnan(worst[n]):
            seen, total, beyond = seen + 1, total + worst[n], beyond + (worst[n] > limit)
    return beyond <= rate_limit * seen if is_rate else total <= limit * seen


@compiled
def _learn(worst, place, value, rules, a, writes):
    """Take ``value`` into the ``worst`` [N] of clause ``a``, if the clause is kept with it as well; True if
    that changes it. Without ``writes`` it is as it was afterwards.

    Rounded up to ``GRAIN`` of a power of two: what is remembered rests, and is short where it is kept.
    """
    before = worst[place]
    if value <= before:  # never of one that was not seen
        return False
    mantissa, exponent = math.frexp(value)
    worst[place] = math.ldexp(np.ceil(mantissa * GRAIN) / GRAIN, exponent)
    kept = _keeps(worst, rules.limit[a], rules.is_rate[a], rules.rate_limit[a])
    if not (kept and writes):
        worst[place] = before
    return kept


@compiled
def _place_of(prompts, prompt):
    """Place of ``prompt`` among ``prompts`` [N], else the first free one; -1: there is none."""
    for n in range(prompts.shape[0]):
        if prompts[n] == prompt or prompts[n] < 0:
            return n
    return -1


@compiled
def compare_with_bounds(memory, told, probes, rules, writes):
    """Every received probe is compared with its bounds. In health what lies within them moves them, and a
    prompt that was never seen is learned and tells nothing.

    memory: ``BoundsMemory``; told: int8 [B, P], filled with what ``as_certified_pass`` calls it; probes:
    ``SeenProbes``; rules: ``BoundsRules``. True where there is something to learn, which is learned with
    ``writes`` alone.
    """
    probes, rules = borrowed(SeenProbes(*probes)), borrowed(BoundsRules(*rules))
    prompts, worst = borrowed(BoundsMemory(*memory))
    news = False
    for b in range(probes.received.shape[0]):
        for p in range(probes.received.shape[1]):
            told[b, p] = UNKNOWN
            if not probes.received[b, p]:
                continue
            r, s = probes.replica[b, p], probes.slice[b, p]
            place = _place_of(prompts[b, s], probes.prompt[b, p])
            teaches, seen = probes.teaches[b, r] and place >= 0, worst[b, rules.owner[r], s]
            for a in range(rules.column.shape[0]):
                value = probes.values[b, p, rules.column[a]]
                if np.isnan(value) or not rules.applies[s, a]:
                    continue
                value = rules.sense[a] * min(value, rules.clip[a])
                first = teaches and np.isnan(seen[place, a])
                beyond = value > bound(seen[:, a], place, rules.limit[a], rules.is_rate[a])
                if np.isinf(value) or (beyond and not first):  # infinite: no number to remember
                    told[b, p] = DIFFERS
                    continue
                if not first:
                    told[b, p] = max(told[b, p], MATCHES)
                if teaches and _learn(seen[:, a], place, value, rules, a, writes):
                    news = True
                    if writes:
                        prompts[b, s, place] = probes.prompt[b, p]
    return news
