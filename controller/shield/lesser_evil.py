"""The lesser evil: overflow of compliant kernels is served where soft clauses are broken by little.

Works on one fleet, after ``controller.shield.capacity`` has filled the compliant kernels. For every row that
would be shed, two losses are compared in the contract's own weights: that of an answer on a cell with broken
soft clauses (``Facts.loss``, in answers; a *soft cell*), and that of no answer, which is 1. The row is served
where the first is less:

1. on compliant kernels, as before, up to their limit; a row leaves one only to make room for another row;
2. on its own soft cells with headroom, the least loss first, equal losses in proportion to their headroom;
3. in the place of rows of lower priority, the lowest first;
4. in the place of another row that has soft cells with headroom, if it has none itself.

At the end, weight on soft cells moves to compliant kernels that have headroom left (``comply``).
Hard clauses are not weighed: a cell that breaks one has no loss below 1.
"""

from __future__ import annotations

from contracts.jit import compiled
from controller.shield.capacity import EPSILON, SLACK, allocate_others, allocate_own, evict, reroute
from controller.shield.comfort import open_to_limit
from controller.shield.records import SOFT, Facts

#: Loss of an unanswered request, in answers: the largest possible. A kernel with this loss is not used.
WHOLE = 1.0


@compiled(forceinline=True)
def relent(facts, outcome, work):
    """Serve what ``fill`` has shed, by the rules of this module; returns facts with all cells then allowed.

    ``outcome.table``, ``work.headroom_rps`` and ``work.overflow`` are as ``fill`` left them.
    """
    slices, kernels = facts.allowed.shape
    for s in range(slices):
        for k in range(kernels):
            work.open_[s, k] = facts.allowed[s, k] or facts.loss[s, k] < WHOLE
    wide = _opened(facts, work.open_)
    open_to_limit(wide, outcome, work)
    for s in range(slices):
        if work.overflow[s] > 0.0:
            outcome.table[s, kernels] = outcome.target[s, kernels]
    for at in range(facts.order.shape[0]):
        _place(facts, wide, outcome, work, at)
    comply(facts, outcome.table, work.headroom_rps)
    return wide


@compiled
def comply(facts, table, headroom_rps):
    """Move weight of ``table`` [S, K + 1] on soft cells to allowed kernels of the row with headroom.

    ``headroom_rps`` [K] follows. What one row leaves may serve another, so the rows are gone through again.
    """
    for _ in range(facts.order.shape[0]):
        moved_rps = 0.0
        for at in range(facts.order.shape[0]):
            moved_rps += _comply_row(facts, table, headroom_rps, facts.order[at])
        if moved_rps <= EPSILON:
            return


@compiled(forceinline=True)
def _comply_row(facts, table, headroom_rps, s):
    """Empty soft cells of row ``s``, the greatest loss first, while there is headroom; returns RPS moved."""
    row, rate, allowed = table[s], facts.offered_rps[s], facts.allowed[s]
    moved_rps = 0.0
    for _ in range(allowed.shape[0]):
        worst, room_rps = -1, 0.0
        for k in range(allowed.shape[0]):
            if allowed[k]:
                room_rps += max(headroom_rps[k], 0.0)
            elif row[k] * rate > EPSILON and (worst < 0 or facts.loss[s, k] > facts.loss[s, worst]):
                worst = k
        if worst < 0 or room_rps <= EPSILON:
            return moved_rps
        part_rps = min(row[worst] * rate, room_rps)
        for k in range(allowed.shape[0]):
            if allowed[k]:
                share_rps = part_rps * max(headroom_rps[k], 0.0) / room_rps
                row[k] += share_rps / rate
                headroom_rps[k] -= share_rps
        row[worst] = max(row[worst] - part_rps / rate, 0.0)
        headroom_rps[worst] += part_rps
        moved_rps += part_rps
    return moved_rps


@compiled(forceinline=True)
def _place(facts, wide, outcome, work, at):
    """Place the overflow of the row at place ``at`` of the order; the rest is shed."""
    s, overflow = facts.order[at], work.overflow
    if overflow[s] > EPSILON:
        overflow[s] = allocate_own(facts, outcome, work, s)
    if overflow[s] > EPSILON:
        overflow[s] = allocate_others(facts, outcome, work, s)
    if overflow[s] > EPSILON:
        overflow[s] = _tolerate(facts, outcome, work, s)
    if overflow[s] > EPSILON:
        overflow[s] = evict(wide, outcome, work, at)
    if overflow[s] > EPSILON:
        overflow[s] = reroute(wide, outcome, work, at)
    if overflow[s] > 0.0:
        outcome.table[s, facts.allowed.shape[1]] += overflow[s]


@compiled(forceinline=True)
def has_soft_cells(facts):
    """Whether there is a soft cell: not allowed, and with a loss below one answer."""
    found = False
    for s in range(facts.allowed.shape[0]):
        for k in range(facts.allowed.shape[1]):
            found = found or (facts.loss[s, k] < WHOLE and not facts.allowed[s, k])
    return found


@compiled(forceinline=True)
def tolerated(facts, row, s):
    """The reason ``SOFT`` where ``row`` has weight on a soft cell, else 0."""
    found = 0
    for k in range(facts.allowed.shape[1]):
        if facts.loss[s, k] < WHOLE and not facts.allowed[s, k] and row[k] > SLACK:
            found = SOFT
    return found


@compiled(forceinline=True)
def _tolerate(facts, outcome, work, s):
    """Place the overflow of row ``s`` on its soft cells with headroom, least loss first; returns the rest."""
    row, loss, headroom_rps = outcome.table[s], facts.loss[s], work.headroom_rps
    rate, overflow = facts.offered_rps[s], work.overflow[s]
    kernels = headroom_rps.shape[0]
    for _ in range(kernels):
        least, total = _least_loss(facts, work, s)
        if least >= WHOLE:
            return overflow
        placed = overflow
        if placed * rate > total:
            placed = total / rate
        for k in range(kernels):
            if loss[k] == least and not facts.allowed[s, k] and headroom_rps[k] > EPSILON:
                part = placed * headroom_rps[k] / total
                row[k] += part
                headroom_rps[k] -= part * rate
        overflow -= placed
        if overflow <= EPSILON:
            return 0.0
    return overflow


@compiled(forceinline=True)
def _least_loss(facts, work, s):
    """Least loss of the soft cells of row ``s`` with headroom (1: no such cell), and their headroom."""
    least, total = WHOLE, 0.0
    for k in range(facts.allowed.shape[1]):
        if not facts.allowed[s, k] and work.headroom_rps[k] > EPSILON:
            if facts.loss[s, k] < least:
                least, total = facts.loss[s, k], 0.0
            if facts.loss[s, k] == least and least < WHOLE:
                total += work.headroom_rps[k]
    return least, total


@compiled(forceinline=True)
def _opened(facts, open_):
    """``facts`` with ``open_`` [S, K] for the cells that may carry weight."""
    return Facts(
        facts.proposed,
        facts.last,
        open_,
        facts.failover,
        facts.may_move,
        facts.offered_rps,
        facts.limit_rps,
        facts.capacity_rps,
        facts.comfort_rps,
        facts.loss,
        facts.canary,
        facts.order,
        facts.known_good,
        facts.least_canary,
        facts.most_canary,
        facts.most_shed,
        facts.most_moved,
    )
