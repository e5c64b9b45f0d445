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
#: them did.
RUN, SEEN, DIFFERED = range(3)
RUN_COLUMNS = 3
#: The null of recovery: it differs at half of the share at which it did while ill ...
HALF = 0.5


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
                    _count(runs[b, u, s], differs, HALF, rules.returns)
                    _count(runs[b, u, slices], differs, rules.most_ratio, rules.returns)


@compiled
def _count(run, differs, most_ratio, returns):
    """One probe into one ``run`` [``RUN_COLUMNS``]. One that differs after a run that was believed begins an
    illness anew.
    """
    if not differs:
        run[RUN] += 1.0
        return
    if run[SEEN] == 0.0 or run[RUN] >= _enough(run, most_ratio, returns):
        run[SEEN], run[DIFFERED] = 1.0, 1.0
    else:
        run[SEEN] += run[RUN] + 1.0
        run[DIFFERED] += 1.0
    run[RUN] = 0.0


@compiled
def _enough(run, most_ratio, returns):
    """Matches in a row that speak against "it differs at half of the share at which it did"."""
    share = most_ratio
    if run[SEEN] > 0.0:
        share = min(most_ratio, HALF * run[DIFFERED] / run[SEEN])
    return returns / -math.log1p(-share)


@compiled
def find_again(again, runs, rules):
    """Into ``again`` bool [B, U, S]: as certified again, by all probes and by those of the slice."""
    rules = borrowed(RunRules(*rules))
    last = runs.shape[2] - 1
    for b in range(runs.shape[0]):
        for u in range(runs.shape[1]):
            whole = runs[b, u, last]
            back = whole[RUN] >= _enough(whole, rules.most_ratio, rules.returns)
            for s in range(last):
                own = runs[b, u, s]
                again[b, u, s] = back and own[RUN] >= _enough(own, HALF, rules.returns)
