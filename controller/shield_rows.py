"""Row by row: what hard clauses, pool and exploration make of a wish, and how far it may go in one tick.

Plain loops over arrays of one fleet, written so that they also run on symbolic numbers.
"""

from __future__ import annotations

from numba import njit

from controller.shield_capacity import CRUMB, SLACK

#: A slice whose certified kernels are all full still sends them so much: the pool is never empty, and
#: its evidence does not run dry.
TRICKLE = 0.01

HARD, POOL, DARK, CAPACITY, EXPLORATION, SLEW, DWELL = 1, 2, 4, 8, 16, 32, 64


@njit(cache=True, error_model="numpy")
def half_l1(left, right):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Share of traffic that differs between two rows."""
    total = 0.0
    for k in range(left.shape[0]):
        total += abs(left[k] - right[k])
    return 0.5 * total


@njit(cache=True, error_model="numpy")
def aim(goal, wish, last, ok, refuge, capacity, known_good, max_shed, size):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Write into ``goal`` the row ``wish`` [K + 1] as hard clauses and pool let it; reason bits.

    refuge: -1 where a certified kernel lives (``ok`` [K] marks them); else what the contract chose for the
    whole row, the number of a kernel, or K for shedding. size: [5], half L1 by stage, written into.
    """
    kernels = ok.shape[0]
    if refuge >= 0:
        for k in range(kernels + 1):
            goal[k] = 0.0
        goal[refuge] = 1.0
        moved = 1.0 - wish[refuge]
        size[0] = moved
        return DARK if moved > SLACK else 0
    kept, removed = 0.0, 0.0
    for k in range(kernels):
        goal[k] = 0.0
        if ok[k]:
            goal[k] = wish[k]
            kept += wish[k]
        else:
            removed += wish[k]
    goal[kernels] = wish[kernels]
    reason = 0
    if removed > 0.0:
        reason, size[0] = HARD, removed
    refill = wish[kernels] - max_shed
    if refill > SLACK:
        reason |= POOL
        size[1] = refill
        goal[kernels] = max_shed
        removed += refill
    if removed > 0.0:
        if kept > CRUMB:
            for k in range(kernels):
                goal[k] = goal[k] * ((kept + removed) / kept)
        else:
            _take_refuge(goal, last, ok, capacity, known_good, kept + removed)
            reason |= POOL
            size[1] = kept + removed
    return reason


@njit(cache=True, error_model="numpy")
def _take_refuge(goal, last, ok, capacity, known_good, weight):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Give ``weight`` to where the row was served last, else the known-good kernel, else all by capacity."""
    kernels = ok.shape[0]
    was, whole = 0.0, 0.0
    for k in range(kernels):
        if ok[k]:
            was += last[k]
            whole += capacity[k]
    for k in range(kernels):
        goal[k] = 0.0
        if ok[k]:
            if was > CRUMB:
                goal[k] = weight * (last[k] / was)
            elif not ok[known_good]:
                goal[k] = weight * (capacity[k] / whole)
    if was <= CRUMB and ok[known_good]:
        goal[known_good] = weight


@njit(cache=True, error_model="numpy")
def explore(goal, ok, canary, least, size):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Raise certified canaries of a row to ``least``, at the others' cost in proportion; reason bits."""
    kernels = ok.shape[0]
    lack, others = 0.0, 0.0
    for k in range(kernels):
        if canary[k] and ok[k]:
            if goal[k] < least - SLACK:
                lack += least - goal[k]
        else:
            others += goal[k]
    if lack <= 0.0 or others <= lack:
        return 0
    for k in range(kernels):
        if canary[k] and ok[k]:
            if goal[k] < least - SLACK:
                goal[k] = least
        else:
            goal[k] = goal[k] * ((others - lack) / others)
    size[3] += lack
    return EXPLORATION


@njit(cache=True, error_model="numpy")
def trickle(row, ok, capacity):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Serve at least ``TRICKLE`` of a row on its certified kernels, full or not; reason bits."""
    kernels = ok.shape[0]
    served, whole = 0.0, 0.0
    for k in range(kernels):
        served += row[k]
        if ok[k]:
            whole += capacity[k]
    if served >= TRICKLE - SLACK or whole <= 0.0:
        return 0
    for k in range(kernels):
        if ok[k]:
            row[k] += (TRICKLE - served) * (capacity[k] / whole)
    row[kernels] -= TRICKLE - served
    return POOL


@njit(cache=True, error_model="numpy")
def slow_down(row, goal, last, ok, may_move, max_move):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Write into ``row`` how far a row gets from ``last`` to ``goal`` in one tick; (reason bits, distance).

    Weight on kernels that are not ``ok``, and shed weight that ``goal`` serves, goes at once, to where
    ``goal`` has more than the row has. The rest, ``distance``, is what moves of the policy's own will: at
    most ``max_move`` of it, and nothing where the row may not move.
    """
    kernels = ok.shape[0]
    free, gains, distance = 1.0, 0.0, 0.0
    for k in range(kernels + 1):
        kept = _kept(last, goal, ok, k)
        free -= kept
        if goal[k] > kept:
            gains += goal[k] - kept
        else:
            distance += kept - goal[k]
    limit = max_move if may_move else 0.0
    if distance <= limit + SLACK or gains <= 0.0:
        for k in range(kernels + 1):
            row[k] = goal[k]
        return 0, distance
    go = limit / distance
    if free < 0.0:
        free = 0.0
    for k in range(kernels + 1):
        base = _kept(last, goal, ok, k)
        if goal[k] > base:
            base += free * (goal[k] - base) / gains
        row[k] = base + go * (goal[k] - base)
    return (SLEW if may_move else DWELL), distance


@njit(cache=True, error_model="numpy")
def _kept(last, goal, ok, k):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Weight of the last row that only the policy's own will moves."""
    if k < ok.shape[0]:
        return last[k] if ok[k] else 0.0
    return last[k] if last[k] < goal[k] else goal[k]


@njit(cache=True, error_model="numpy")
def keep_bounds(row, goal, ok, canary, least, most):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Move ``row`` on towards ``goal`` as far as the bounds of canaries ask, past slew and dwell."""
    kernels = ok.shape[0]
    on = 0.0
    for k in range(kernels):
        if canary[k] and ok[k]:
            low, high = min(least, goal[k]), max(most, goal[k])
            if row[k] < low - SLACK:
                on = max(on, (low - row[k]) / (goal[k] - row[k]))
            elif row[k] > high + SLACK:
                on = max(on, (row[k] - high) / (row[k] - goal[k]))
    if on > 0.0:
        for k in range(kernels + 1):
            row[k] += on * (goal[k] - row[k])
