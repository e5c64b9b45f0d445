"""Compiled runs of probes that equal their certified values. Fleets are independent.

Axes: B fleets, U subjects (the replicas, then the kernels that pool their replicas in rotation), S slices and
one more place for all slices together, P probes in their order.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.jit import borrowed, compiled
from controller.detect.streams.protocol import Flags

#: Outcomes of the comparison of a probe.
UNKNOWN, MATCHES, DIFFERS = range(3)
#: Columns of ``runs``: consecutive matches; probes of this fault up to the last that differed; number of them
#: that differed; number of recoveries that turned out to be false.
RUN, SEEN, DIFFERED, RELAPSES = range(4)
RUN_COLUMNS = 4
#: Null hypothesis of recovery: probes differ at half of the share at which they did during the fault ...
RECOVERED_RATIO = 0.5
#: Relapses are forgotten once consecutive matches show that at most this share of the probes differs.
FORGOTTEN_RATIO = 0.01


class ProbeComparisons(NamedTuple):
    """Compared probes of one tick."""

    outcome: NDArray[np.int8]  # [B, P], ``UNKNOWN``, ``MATCHES`` or ``DIFFERS``
    replica: NDArray[np.int64]  # [B, P]
    slice: NDArray[np.int64]  # [B, P]
    pooled: Flags  # [B, P], of a replica in rotation


class RunRules(NamedTuple):
    """When a run of matches shows recovery."""

    owner: NDArray[np.int64]  # [R], kernel of each replica
    most_ratio: float  # ... and at no more than this share of all its probes
    returns: float  # log-evidence that rejects the null hypothesis


class AwaitedReturns(NamedTuple):
    """Slices that wait for a recovery, and pooled replicas. R replicas."""

    short: Flags  # [B, S], slices of which traffic is shed
    in_rotation: Flags  # [B, R], replicas that kernels pool


@compiled
def follow_runs(runs, probes, rules):
    """Every compared probe extends or ends the runs of its replica and its kernel, by slice and over all.

    runs: float64 [B, U, S + 1, ``RUN_COLUMNS``], written to; probes: ``ProbeComparisons``.
    """
    probes, rules = borrowed(ProbeComparisons(*probes)), borrowed(RunRules(*rules))
    replicas, slices = rules.owner.shape[0], runs.shape[2] - 1
    for b in range(probes.outcome.shape[0]):
        for p in range(probes.outcome.shape[1]):
            if probes.outcome[b, p] == UNKNOWN:
                continue
            r, s, differs = probes.replica[b, p], probes.slice[b, p], probes.outcome[b, p] == DIFFERS
            for u in (r, replicas + rules.owner[r]):
                if u == r or probes.pooled[b, p]:
                    if _count(runs[b, u, slices], differs, rules.most_ratio, rules.returns):
                        runs[b, u, :slices, SEEN : DIFFERED + 1] = 0.0
                    _count(runs[b, u, s], differs, RECOVERED_RATIO, rules.returns)


@compiled
def _count(run, differs, most_ratio, returns):
    """Add one probe to one ``run`` [``RUN_COLUMNS``].

    True where a new fault begins: the probe differs after a run that had shown recovery.
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
    """Consecutive matches that reject "probes differ at half of the share at which they did"."""
    share = most_ratio
    if run[SEEN] > 0.0:
        share = min(most_ratio, RECOVERED_RATIO * run[DIFFERED] / run[SEEN])
    return returns / -math.log1p(-share)


@compiled
def _is_over(run, returns):
    """Whether the run shows that the fault is no longer as it was; valid at any time (anytime test).

    A fault whose probes differ at a constant share, whatever it is, ever passes with a probability of at most
    ``exp(-returns)``, relapses included. The test statistic is at most an e-process: the likelihood of "none
    differs any more after those that did", with the estimate of Krichevsky and Trofimov before, over the
    maximum likelihood of one constant share. The first differing probe chose the start and does not count.
    Half of the share must be rejected as well.
    """
    seen, differed, after = run[SEEN] - 1.0, run[DIFFERED] - 1.0, run[RUN]
    if differed < 1.0 or after < returns / -math.log1p(-RECOVERED_RATIO * differed / seen):
        return False
    price = math.log((differed + 1.0) * (differed + 2.0)) + 0.5 * math.log(4.0 * seen)
    price += math.log((run[RELAPSES] + 1.0) * (run[RELAPSES] + 2.0))
    return _log_likelihood(differed, seen) - _log_likelihood(differed, seen + after) >= returns + price


@compiled
def _log_likelihood(differed, seen):
    """Maximum log-likelihood of ``differed`` > 0 of ``seen`` probes under a constant share."""
    share = differed / seen
    same = seen - differed
    return differed * math.log(share) + (same * math.log1p(-share) if same > 0.0 else 0.0)


@compiled
def _is_over_there(own, whole, returns):
    """Whether the matches of a slice's run, ``own``, are too many to come last by chance.

    Fisher's exact test, among the probes of a fault that showed on this slice at least as often as overall.
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
    """Into ``again`` bool [B, U, S]: recovered, by all probes and by those of the slice.

    awaited: ``AwaitedReturns``. A slice that is short does not wait for proof against rarer faults.
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
    """Whether the last probe of each replica that kernel ``u`` pools matched; True for a replica ``u``."""
    replicas = owner.shape[0]
    for r in range(replicas):
        if replicas + owner[r] == u and in_rotation[b, r] and runs[b, r, -1, RUN] < 1.0:
            return False
    return True
