"""Compiled comparison of probes with bounds learned in health.

Axes: B fleets, K kernels, R replicas, S slices, N places of prompts per slice, A clauses on probes, P probes.
Values are signed, so that larger is worse. Fleets are independent; probes are processed in order.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.jit import borrowed, compiled
from controller.detect.as_certified_pass import DIFFERS, MATCHES, UNKNOWN
from controller.detect.streams.protocol import Flags, Floats

#: Distance of a bound above its worst value, as a share of the margin between the mean of the worst values
#: and the limit.
ABOVE_WORST = 0.5
#: Resolution of remembered values: steps of at most 3 % of a value.
GRAIN = 64.0


class BoundsMemory(NamedTuple):
    """Values observed in health; changed in place."""

    prompts: NDArray[np.int64]  # [B, S, N], ids of the prompts in their places; -1: free
    worst: Floats  # [B, K, S, N, A], signed; NaN: never observed


class BoundsRules(NamedTuple):
    """Clauses on probes, signed."""

    owner: NDArray[np.int64]  # [R]
    column: NDArray[np.int64]  # [A], probe metric
    sense: Floats  # [A]
    limit: Floats  # [A], limit of the mean, or threshold of an observation of a rate clause
    clip: Floats  # [A], values are clipped here before they are signed
    is_rate: Flags  # [A], judged by the share of observations beyond the limit
    rate_limit: Floats  # [A], largest such share
    applies: Flags  # [S, A]


class BoundedProbes(NamedTuple):
    """One tick's probes, and the replicas whose values are learned."""

    received: Flags  # [B, P], probes that count
    replica: NDArray[np.int64]  # [B, P]
    slice: NDArray[np.int64]  # [B, P]
    prompt: NDArray[np.int64]  # [B, P], ids
    values: Floats  # [B, P, M]; NaN: not measured
    healthy: Flags  # [B, R], in rotation, and healthy like its kernel: its values are learned


@compiled
def bound(worst, place, limit, is_rate):
    """Bound of a probe of the prompt at ``place`` (-1: no place); ``worst`` [N] of one clause.

    A subject within the bounds on all prompts keeps the clause. Rate clause: the limit, or the worst value
    where that lies beyond it. Mean clause: the worst value plus its share of half of the margin between the
    mean of the worst values and the limit. A prompt never observed may therefore lie beyond the limit by half
    of that margin, as long as at most half of all prompts were never observed. -inf without any observation.
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
    """Number of values observed in ``worst`` [N], their mean, and the mean of their positive parts."""
    seen, total, above = 0, 0.0, 0.0
    for n in range(worst.shape[0]):
        if not np.isnan(worst[n]):
            seen, total, above = seen + 1, total + worst[n], above + max(worst[n], 0.0)
    return seen, total / max(seen, 1), above / max(seen, 1)


@compiled
def _keeps(worst, limit, is_rate, rate_limit):
    """Whether a subject that gives the ``worst`` value [N] on every prompt keeps the clause."""
    seen, total, beyond = 0, 0.0, 0
    for n in range(worst.shape[0]):
        if not np.isnan(worst[n]):
            seen, total, beyond = seen + 1, total + worst[n], beyond + (worst[n] > limit)
    return beyond <= rate_limit * seen if is_rate else total <= limit * seen


@compiled
def _learn(worst, place, value, rules, a, writes):
    """Raise the ``worst`` value [N] of clause ``a`` to ``value`` if the clause is still kept then.

    True if that changes it. Without ``writes`` the change is undone. Values are rounded up to steps of
    1 / ``GRAIN`` of a power of two, so that the memory settles and is short when stored.
    """
    before = worst[place]
    if value <= before:  # False for NaN: never observed
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
def compare_with_bounds(memory, outcome, probes, rules, writes):
    """Compare every received probe with its bounds, and learn in health.

    In health, values within the bounds move them. A prompt never observed is learned and is no evidence.

    memory: ``BoundsMemory``; outcome: int8 [B, P], filled with ``UNKNOWN``, ``MATCHES`` or ``DIFFERS`` of
    ``as_certified_pass``; probes: ``BoundedProbes``; rules: ``BoundsRules``. True if there is something to
    learn; it is learned only with ``writes``.
    """
    probes, rules = borrowed(BoundedProbes(*probes)), borrowed(BoundsRules(*rules))
    prompts, worst = borrowed(BoundsMemory(*memory))
    news = False
    for b in range(probes.received.shape[0]):
        for p in range(probes.received.shape[1]):
            outcome[b, p] = UNKNOWN
            if not probes.received[b, p]:
                continue
            r, s = probes.replica[b, p], probes.slice[b, p]
            place = _place_of(prompts[b, s], probes.prompt[b, p])
            learns, known = probes.healthy[b, r] and place >= 0, worst[b, rules.owner[r], s]
            for a in range(rules.column.shape[0]):
                value = probes.values[b, p, rules.column[a]]
                if np.isnan(value) or not rules.applies[s, a]:
                    continue
                value = rules.sense[a] * min(value, rules.clip[a])
                first = learns and np.isnan(known[place, a])
                beyond = value > bound(known[:, a], place, rules.limit[a], rules.is_rate[a])
                if np.isinf(value) or (beyond and not first):  # infinite: no number to remember
                    outcome[b, p] = DIFFERS
                    continue
                if not first:
                    outcome[b, p] = max(outcome[b, p], MATCHES)
                if learns and _learn(known[:, a], place, value, rules, a, writes):
                    news = True
                    if writes:
                        prompts[b, s, place] = probes.prompt[b, p]
    return news
