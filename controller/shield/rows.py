"""Rules on single rows: hard clauses, pool, exploration, and slew and dwell.

Policies may propose any table: ``normalise`` makes every row sum to 1. The other functions are plain loops
over the arrays of one fleet, written so that they also run on symbolic numbers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contracts.jit import compiled
from controller.shield.capacity import EPSILON, SLACK
from controller.shield.records import (
    DWELL,
    EXPLORATION,
    EXPLORATION_SIZE,
    HARD,
    HARD_SIZE,
    NO_TARGET,
    POOL,
    POOL_SIZE,
    SLEW,
)

#: float64 [B, S, K + 1], share of each slice on each kernel; the last column is shed.
Table = NDArray[np.float64]

#: Rows whose weights sum to 1 within this tolerance stay unchanged.
_SUM_SLACK = 1e-9
#: Share that a slice still sends to its certified kernels when all of them are full: the pool is never empty,
#: and there is still evidence.
MINIMUM_SHARE = 0.01


def normalise(table: Table, last: Table) -> Table:
    """``table`` with rows that sum to 1; an unusable row (NaN, negative or no weight) becomes ``last``'s."""
    if _is_normal(np.ascontiguousarray(table, dtype=np.float64)):
        return table
    total = table.sum(axis=2)
    usable = np.isfinite(table).all(axis=2) & (table >= 0.0).all(axis=2) & (total > 0.0)
    exact = np.abs(total - 1.0) <= _SUM_SLACK
    scaled = table / np.where(usable, total, 1.0)[:, :, None]
    kept = np.where(exact[:, :, None], table, scaled)
    return np.where(usable[:, :, None], kept, last)


@compiled
def _is_normal(table):
    """Whether all rows are usable and sum to 1."""
    for b in range(table.shape[0]):
        for s in range(table.shape[1]):
            total = 0.0
            for k in range(table.shape[2]):
                if not table[b, s, k] >= 0.0:
                    return False
                total += table[b, s, k]
            if not abs(total - 1.0) <= _SUM_SLACK:
                return False
    return True


@compiled(forceinline=True)
def aim(facts, outcome, s):
    """Write row ``s`` of the proposal under hard clauses and pool into ``outcome.target``; reason bits."""
    target, proposed, allowed = outcome.target[s], facts.proposed[s], facts.allowed[s]
    size, failover = outcome.size[s], facts.failover[s]
    kernels = allowed.shape[0]
    if failover >= 0:
        for k in range(kernels + 1):
            target[k] = 0.0
        target[failover] = 1.0
        moved = 1.0 - proposed[failover]
        size[HARD_SIZE] = moved
        return NO_TARGET if moved > SLACK else 0
    kept, removed = 0.0, 0.0
    for k in range(kernels):
        target[k] = 0.0
        if allowed[k]:
            target[k] = proposed[k]
            kept += proposed[k]
        else:
            removed += proposed[k]
    target[kernels] = proposed[kernels]
    reason = 0
    if removed > 0.0:
        reason, size[HARD_SIZE] = HARD, removed
    refill = proposed[kernels] - facts.most_shed
    if refill > SLACK:
        reason |= POOL
        size[POOL_SIZE] = refill
        target[kernels] = facts.most_shed
        removed += refill
    if removed > 0.0:
        if kept > EPSILON:
            for k in range(kernels):
                target[k] = target[k] * ((kept + removed) / kept)
        else:
            _fail_over(facts, target, s, kept + removed)
            reason |= POOL
            size[POOL_SIZE] = kept + removed
    return reason


@compiled(forceinline=True)
def _fail_over(facts, target, s, weight):
    """Give ``weight`` to the kernels that last served the row, else the known-good one, else by capacity."""
    last, allowed, limit_rps = facts.last[s], facts.allowed[s], facts.limit_rps
    kernels, known_good = allowed.shape[0], facts.known_good
    was, whole = 0.0, 0.0
    for k in range(kernels):
        if allowed[k]:
            was += last[k]
            whole += limit_rps[k]
    for k in range(kernels):
        target[k] = 0.0
        if allowed[k]:
            if was > EPSILON:
                target[k] = weight * (last[k] / was)
            elif not allowed[known_good]:
                target[k] = weight * (limit_rps[k] / whole)
    if was <= EPSILON and allowed[known_good]:
        target[known_good] = weight


@compiled(forceinline=True)
def explore(facts, outcome, s):
    """Raise certified canaries of a row to their least, at the others' cost in proportion; reason bits."""
    target, allowed, bounded = outcome.target[s], facts.allowed[s], outcome.bounded
    kernels, least = allowed.shape[0], facts.least_canary
    lack, others = 0.0, 0.0
    for k in range(kernels):
        if bounded[k] and allowed[k]:
            if target[k] < least - SLACK:
                lack += least - target[k]
        else:
            others += target[k]
    if lack <= 0.0 or others <= lack:
        return 0
    for k in range(kernels):
        if bounded[k] and allowed[k]:
            if target[k] < least - SLACK:
                target[k] = least
        else:
            target[k] = target[k] * ((others - lack) / others)
    outcome.size[s, EXPLORATION_SIZE] += lack
    return EXPLORATION


@compiled(forceinline=True)
def keep_minimum_share(row, allowed, limit_rps):
    """Serve at least ``MINIMUM_SHARE`` of a row on its certified kernels, full or not; reason bits."""
    kernels = allowed.shape[0]
    served, whole = 0.0, 0.0
    for k in range(kernels):
        served += row[k]
        if allowed[k]:
            whole += limit_rps[k]
    if served >= MINIMUM_SHARE - SLACK or whole <= 0.0:
        return 0
    for k in range(kernels):
        if allowed[k]:
            row[k] += (MINIMUM_SHARE - served) * (limit_rps[k] / whole)
    row[kernels] -= MINIMUM_SHARE - served
    return POOL


@compiled(forceinline=True)
def slow_down(facts, row, target, s):
    """Write into ``row`` the row ``s`` one tick closer to ``target``; returns (reason bits, distance).

    Weight on kernels that are not allowed, and shed weight that ``target`` serves, moves at once to kernels
    where ``target`` has more than the row. The rest, ``distance``, is the voluntary move: at most
    ``most_moved`` of it moves, and nothing while the row may not move.
    """
    last, allowed, may_move = facts.last[s], facts.allowed[s], facts.may_move[s]
    kernels = allowed.shape[0]
    free, gains, distance = 1.0, 0.0, 0.0
    for k in range(kernels + 1):
        kept = _kept(last, target, allowed, k)
        free -= kept
        if target[k] > kept:
            gains += target[k] - kept
        else:
            distance += kept - target[k]
    limit = facts.most_moved if may_move else 0.0
    if distance <= limit + SLACK or gains <= 0.0:
        for k in range(kernels + 1):
            row[k] = target[k]
        return 0, distance
    go = limit / distance
    if free < 0.0:
        free = 0.0
    for k in range(kernels + 1):
        base = _kept(last, target, allowed, k)
        if target[k] > base:
            base += free * (target[k] - base) / gains
        row[k] = base + go * (target[k] - base)
    return (SLEW if may_move else DWELL), distance


@compiled(forceinline=True)
def _kept(last, target, allowed, k):
    """Weight of the last row that only a voluntary move changes."""
    if k < allowed.shape[0]:
        return last[k] if allowed[k] else 0.0
    return last[k] if last[k] < target[k] else target[k]


@compiled(forceinline=True)
def keep_bounds(facts, outcome, row, s):
    """Move ``row`` towards row ``s`` of the table as far as canaries' bounds require, past slew and dwell."""
    target, allowed = outcome.table[s], facts.allowed[s]
    kernels = allowed.shape[0]
    on = 0.0
    for k in range(kernels):
        if outcome.bounded[k] and allowed[k]:
            low, high = min(facts.least_canary, target[k]), max(facts.most_canary, target[k])
            if row[k] < low - SLACK:
                on = max(on, (low - row[k]) / (target[k] - row[k]))
            elif row[k] > high + SLACK:
                on = max(on, (row[k] - high) / (row[k] - target[k]))
    if on > 0.0:
        for k in range(kernels + 1):
            row[k] += on * (target[k] - row[k])
