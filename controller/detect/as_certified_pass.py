"""Compiled runs of probes that equal their certified values; each fleet by itself, probes in their order.

Axes: B fleets, U subjects (the replicas, then the kernels that pool theirs in rotation), S slices and one
place more for all of them, P probes.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.jit import borrowed, compiled
from controller.detect.streams.protocol import Flags

#: What a comparison says of a probe.
UNKNOWN, MATCHES, DIFFERS = range(3)
#: Columns of ``runs``: matches in a row; probes of this illness up to the last that differed, and how many of
#: them did; how often it was believed to be over and was not.
RUN, SEEN, DIFFERED, RELAPSES = range(4)
RUN_COLUMNS = 4
#: The null of recovery: it differs at half of the share at which it did while ill ...
RECOVERED_RATIO = 0.5
#: After so many matches that no more than this share differs, relapses are forgotten.
FORGOTTEN_RATIO = 0.01


class Told(NamedTuple):
    """One tick's probes."""

    told: NDArray[np.int8]  # [B, P], ``UNKNOWN``, ``MATCHES`` or ``DIFFERS``
    replica: NDArray[np.int64]  # [B, P]
    slice: NDArray[np.int64]  # [B, P]
    pooled: Flags  # [B, P], of a replica in rotation


class RunRules(NamedTuple):
    """When a run of matches is believed."""

    owner: NDArray[np.int64]  # [R], kernel of each replica
    most_ratio: float  # ... and at no more than this share of all its probes
    returns: float  # log-evidence from which it is not as ill as it was


class AwaitedReturns(NamedTuple):
    """Where an end of an illness is waited for. R replicas."""

    short: Flags  # [B, S], slices of which something is shed
    in_rotation: Flags  # [B, R], who the kernels pool


@compiled
def follow_runs(runs, told, rules):
    """Every compared probe lengthens or ends the runs of its replica and of its kernel, on its slice and on
    all. ``runs``: float64 [B, U, S + 1, ``RUN_COLUMNS``], written to.
    """
    told, rules = borrowed(Told(*told)), borrowed(RunRules(*rules))
    replicas, slices = rules.owner.shape[0], runs.shape[2] - 1
    for b in range(told.told.shape[0]):
        for p in range(told.told.shape[1]):
            if told.told[b, p] == UNKNOWN:
                continue
            r, s, differs = told.replica[b, p], told.slice[b, p], told.told[b, p] == DIFFERS
            for u in (r, replicas + rules.owner[r]):
                if u == r or told.pooled[b, p]:
                    if _count(runs[b, u, slices], differs, rules.most_ratio, rules.returns):
                        runs[b, u, :slices, SEEN : DIFFERED + 1] = 0.0
                    _count(runs[b, u, s], differs, RECOVERED_RATIO, rules.returns)


@compiled
def _count(run, differs, most_ratio, returns):
    """One probe into one ``run`` [``RUN_COLUMNS``]; True where an illness begins anew: it differs after a run
    that was believed.
    """
    if not differs:
        run[RUN] += 1.0
        return False
    anew = run[SEEN] == 0.0 or run[RUN] >= _enough(run, most_ratio, returns) or _is_over(run, returns)
    if anew:
        known = run[SEEN] > 0.0 and run[RUN] * FORGOTTEN_RATIO < returns
        run[RELAPSES] = run[RELAPSES] + 1.0 if known else 0.0
        run[SEEN], run[DIFFERED] = 1.0, 1.0
    else:
        run[SEEN] += run[RUN] + 1.0
        run[DIFFERED] += 1.0
    run[RUN] = 0.0
    return anew


@compiled
def _enough(run, most_ratio, returns):
    """Matches in a row that speak against "it differs at half of the share at which it did"."""
    share = most_ratio
    if run[SEEN] > 0.0:
        share = min(most_ratio, RECOVERED_RATIO * run[DIFFERED] / run[SEEN])
    return returns / -math.log1p(-share)


@compiled
def _is_over(run, returns):
    """Whether the run says, however often it is asked, that the illness is not as it was.

    An illness whose probes differ at one share, whatever it is, ever gets here with a probability of at most
    ``exp(-returns)``, relapses included: the likelihood of "none any more after so many that differed", with
    the estimate of Krichevsky and Trofimov before, over the most that one share can have is at most an
    e-process. The first probe that differed chose the moment, so it does not count. Nor may it be as ill at
    half of the share.
    """
    seen, differed, after = run[SEEN] - 1.0, run[DIFFERED] - 1.0, run[RUN]
    if differed < 1.0 or after < returns / -math.log1p(-RECOVERED_RATIO * differed / seen):
        return False
    price = math.log((differed + 1.0) * (differed + 2.0)) + 0.5 * math.log(4.0 * seen)
    price += math.log((run[RELAPSES] + 1.0) * (run[RELAPSES] + 2.0))
    return _log_likelihood(differed, seen) - _log_likelihood(differed, seen + after) >= returns + price


@compiled
def _log_likelihood(differed, seen):
    """The most that a constant share gives ``differed`` > 0 of ``seen``."""
    share = differed / seen
    same = seen - differed
    return differed * math.log(share) + (same * math.log1p(-share) if same > 0.0 else 0.0)


@compiled
def _is_over_there(own, whole, returns):
    """Whether the matches of ``own``, a slice's run, are too many to come last by chance among the probes of
    an illness that showed there at least as often as everywhere (Fisher's exact test).
    """
    if own[SEEN] == 0.0 or own[DIFFERED] * whole[SEEN] < whole[DIFFERED] * own[SEEN]:
        return False
    seen, chance = whole[SEEN] - 1.0, 0.0
    same = whole[SEEN] - whole[DIFFERED]
    for i in range(int(own[RUN])):
        chance += math.log((same + i + 1.0) / (seen + i + 1.0))
        if -chance >= returns:
            return True
    return False


@compiled
def find_again(again, runs, awaited, rules):
    """Into ``again`` bool [B, U, S]: as certified again, by all probes and by those of the slice.

    awaited: ``AwaitedReturns``. What is short of it does not wait for proof that nothing rarer is left.
    """
    awaited, rules = borrowed(AwaitedReturns(*awaited)), borrowed(RunRules(*rules))
    last = runs.shape[2] - 1
    for b in range(runs.shape[0]):
        for u in range(runs.shape[1]):
            whole = runs[b, u, last]
            back = whole[RUN] >= _enough(whole, rules.most_ratio, rules.returns)
            over = _is_over(whole, rules.returns) and _all_match(b, u, runs, awaited.in_rotation, rules.owner)
            for s in range(last):
                own = runs[b, u, s]
                there = own[RUN] >= _enough(own, RECOVERED_RATIO, rules.returns)
                sooner = over and awaited.short[b, s]
                again[b, u, s] = (back and there) or (
                    sooner and (there or _is_over_there(own, whole, rules.returns))
                )


@compiled
def _all_match(b, u, runs, in_rotation, owner):
    """Whether the last probe of each replica that kernel ``u`` pools matched; of a replica always."""
    replicas = owner.shape[0]
    for r in range(replicas):
        if replicas + owner[r] == u and in_rotation[b, r] and runs[b, r, -1, RUN] < 1.0:
            return False
    return True
