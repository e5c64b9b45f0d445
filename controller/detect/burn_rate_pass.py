"""Compiled loops of the burn-rate alerts: bins that end, and burn over windows. Streams are independent.

Sums over bins are added in the order of the bins, so that results equal those of
``tests.reference.plain_burn`` to the last bit.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.jit import borrowed, compiled
from controller.detect.clauses import Kind
from controller.detect.sums import COUNT, OVER, TOTAL

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

#: A plain integer, because compiled code does not know the enumeration.
AT_ONCE = int(Kind.AT_ONCE)
#: Burn of a zero-tolerance clause with any violation.
CERTAIN = 1e9


class Tier(NamedTuple):
    """One tier of all streams; written to."""

    bins: Floats  # [B, U, S, C, N, 4], oldest first
    running: Floats  # [B, U, S, C, T, 4], open bin of every tier
    age_s: Floats  # [B, U, S, C, T], age of the open bins
    burning: Floats  # [B, U, S, C, T], burn of the tier where it alerts, else 0
    ended: Flags  # [B, U, S, C], set where a bin ends


class Budgets(NamedTuple):
    """How the clauses spend their budgets."""

    kind: NDArray[np.int64]  # [C], a ``Kind``
    is_rate: Flags  # [C]
    mirrored: Flags  # [C]
    upper: Floats  # [C]
    null_mean: Floats  # [C]
    applies: Flags  # [S, C]


@compiled(inline="always")
def _spent_ratio(cell, budgets, c):
    """Spent over allowed budget, by the sums ``cell`` [4] of clause ``c``; 0 without observations."""
    count = cell[COUNT]
    if budgets.is_rate[c]:
        spent = cell[OVER]
    else:
        spent = budgets.upper[c] * count - cell[TOTAL] if budgets.mirrored[c] else cell[TOTAL]
    share = max(spent, 0.0) / max(count, 1.0)
    if budgets.kind[c] == AT_ONCE:
        return CERTAIN if share > 0.0 else 0.0
    return share / budgets.null_mean[c]


@compiled
def end_bins(packed_tier, packed_budgets, place, bin_s, factor, least_observations):
    """Close the bins of the tier at ``place`` that are ``bin_s`` old, and judge them.

    A tier alerts where its long window and its newest bin both burn at ``factor`` or more.
    """
    tier, budgets = borrowed((Tier(*packed_tier), Budgets(*packed_budgets)))
    batch, subjects, slices, clauses = tier.ended.shape
    long = np.zeros(4)
    for b in range(batch):
        for u in range(subjects):
            for s in range(slices):
                for c in range(clauses):
                    if tier.age_s[b, u, s, c, place] >= bin_s:
                        tier.ended[b, u, s, c] = True
                        tier.age_s[b, u, s, c, place] = 0.0
                        bins = tier.bins[b, u, s, c]
                        _push(bins, tier.running[b, u, s, c, place])
                        _add_bins(long, bins)
                        burn = _spent_ratio(long, budgets, c)
                        newest = _spent_ratio(bins[bins.shape[0] - 1], budgets, c)
                        known = long[COUNT] >= least_observations or budgets.kind[c] == AT_ONCE
                        over = known and burn >= factor and newest >= factor and budgets.applies[s, c]
                        tier.burning[b, u, s, c, place] = burn if over else 0.0


@compiled(inline="always")
def _push(bins, running):
    """Make ``running`` [4] the newest of ``bins`` [N, 4], drop the oldest, and clear ``running``."""
    last = bins.shape[0] - 1
    for n in range(last):
        for i in range(4):
            bins[n, i] = bins[n + 1, i]
    for i in range(4):
        bins[last, i] = running[i]
        running[i] = 0.0


@compiled(inline="always")
def _add_bins(total, bins):
    """Into ``total`` [4]: the sum of ``bins`` [N, 4], in their order."""
    for i in range(4):
        total[i] = bins[0, i]
    for n in range(1, bins.shape[0]):
        for i in range(4):
            total[i] += bins[n, i]


@compiled
def sum_up(recent, bins):
    """Into ``recent`` [B, U, S, C, 4]: sums over the bins [B, U, S, C, N, 4]."""
    recent, bins = borrowed((recent, bins))
    batch, subjects, slices, clauses, _ = recent.shape
    for b in range(batch):
        for u in range(subjects):
            for s in range(slices):
                for c in range(clauses):
                    _add_bins(recent[b, u, s, c], bins[b, u, s, c])


@compiled
def add_to_open_bins(running, age_s, sums, since_s):
    """Add a tick's ``sums`` [B, U, S, C, 4] and its length ``since_s`` [B] to every open bin."""
    running, age_s, sums = borrowed((running, age_s, sums))
    batch, subjects, slices, clauses, tiers = age_s.shape
    for b in range(batch):
        for u in range(subjects):
            for s in range(slices):
                for c in range(clauses):
                    for t in range(tiers):
                        age_s[b, u, s, c, t] += since_s[b]
                        for i in range(4):
                            running[b, u, s, c, t, i] += sums[b, u, s, c, i]


@compiled
def find_kept(kept, packed_budgets, recent, traffic, least_observations):
    """Into ``kept`` bool [B, U, S, C]: ``recent`` burns below 1, or a clause on ``traffic`` has none."""
    kept, recent, budgets = borrowed((kept, recent, Budgets(*packed_budgets)))
    batch, subjects, slices, clauses = kept.shape
    for b in range(batch):
        for u in range(subjects):
            for s in range(slices):
                for c in range(clauses):
                    count = recent[b, u, s, c, COUNT]
                    no_traffic = count <= 0.0 and traffic[c]
                    low = count >= least_observations and _spent_ratio(recent[b, u, s, c], budgets, c) < 1.0
                    kept[b, u, s, c] = no_traffic or low
