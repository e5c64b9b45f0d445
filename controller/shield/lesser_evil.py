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

The steps start from the compliant part of the proposal. A table with soft cells, proposed again, would be
built anew from another start and creep on, round after round. So a proposal that keeps all rules stands
(``stands``), unless the steps find a table with less loss.

Hard clauses are not weighed: a cell that breaks one has no loss below 1.
"""

from __future__ import annotations

from contracts.jit import compiled
from controller.shield.capacity import (
    EPSILON,
    LEAST_SOLVED_RPS,
    LOAD_SLACK,
    SLACK,
    allocate_others,
    allocate_own,
    evict,
    load_of,
    reroute,
    spread,
)
from controller.shield.comfort import open_to_limit
from controller.shield.records import SOFT, Facts
from controller.shield.rows import MINIMUM_SHARE

#: Loss of an unanswered request, in answers: the largest possible. A kernel with this loss is not used.
WHOLE = 1.0
#: Share of the offered traffic by which losses must fall where a table that keeps all rules is replaced. All
#: losses together are at most the offered traffic, so there are at most ``1 / LEAST_GAIN`` such steps.
LEAST_GAIN = 0.01


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
    comply(facts, outcome.table, work.headroom_rps, outcome.bounded)
    return wide


@compiled
def comply(facts, table, headroom_rps, bounded):
    """Move weight of ``table`` [S, K + 1] on soft cells to allowed kernels of the row with headroom.

    ``headroom_rps`` [K] follows. What one row leaves may serve another, so the rows are gone through again.
    bounded: [K], as in ``Outcome``.
    """
    for _ in range(facts.order.shape[0]):
        moved_rps = 0.0
        for at in range(facts.order.shape[0]):
            moved_rps += _comply_row(facts, table, headroom_rps, bounded, facts.order[at])
        if moved_rps <= EPSILON:
            return


@compiled(forceinline=True)
def _comply_row(facts, table, headroom_rps, bounded, s):
    """Empty soft cells of row ``s``, the greatest loss first, while there is headroom; returns RPS moved."""
    row, rate, allowed = table[s], facts.offered_rps[s], facts.allowed[s]
    moved_rps = 0.0
    for _ in range(allowed.shape[0]):
        worst = -1
        for k in range(allowed.shape[0]):
            held = not allowed[k] and row[k] * rate > EPSILON
            if held and (worst < 0 or facts.loss[s, k] > facts.loss[s, worst]):
                worst = k
        if worst < 0:
            return moved_rps
        rest = max(spread(row, allowed, bounded, headroom_rps, rate, row[worst]), 0.0)
        part_rps = (row[worst] - rest) * rate
        row[worst] = rest
        headroom_rps[worst] += part_rps
        moved_rps += part_rps
        if rest > 0.0:
            return moved_rps
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
def stands(facts, outcome, work):
    """Whether the proposal keeps all rules, and ``outcome.table``, which has soft cells, is no better.

    ``work.headroom_rps`` is overwritten.
    """
    slices, shed = facts.allowed.shape
    proposed, table, some = facts.proposed, outcome.table, 0
    for s in range(slices):
        some |= tolerated(facts, table[s], s)
    if some == 0 or not _fits(facts) or not _complies(facts, work):
        return False
    gain_rps, offered_rps = 0.0, 0.0
    for s in range(slices):
        if proposed[s, shed] > table[s, shed] + LOAD_SLACK or _has_worthless(facts, s):
            return False
        offered_rps += facts.offered_rps[s]
        gain_rps += (_loss_of(facts, proposed, s) - _loss_of(facts, table, s)) * facts.offered_rps[s]
    return gain_rps <= LEAST_GAIN * offered_rps


@compiled(forceinline=True)
def _has_worthless(facts, s):
    """Whether the proposal has weight in row ``s`` on a cell that is neither allowed nor soft."""
    found = False
    for k in range(facts.allowed.shape[1]):
        worthless = not facts.allowed[s, k] and facts.loss[s, k] >= WHOLE
        found = found or (worthless and facts.proposed[s, k] != 0.0)
    return found


@compiled(forceinline=True)
def _loss_of(facts, table, s):
    """What row ``s`` of ``table`` loses on cells that are not allowed, in answers per request."""
    lost = 0.0
    for k in range(facts.allowed.shape[1]):
        if not facts.allowed[s, k]:
            lost += facts.loss[s, k] * table[s, k]
    return lost


@compiled(forceinline=True)
def _fits(facts):
    """Whether the proposal keeps all limits of load, minimum shares apart."""
    table, shed = facts.proposed, facts.allowed.shape[1]
    for k in range(shed):
        load_rps = 0.0
        for s in range(table.shape[0]):
            if 1.0 - table[s, shed] > MINIMUM_SHARE + SLACK:
                load_rps += table[s, k] * facts.offered_rps[s]
        if load_rps > facts.limit_rps[k] * (1.0 + LOAD_SLACK):
            return False
    return True


@compiled(forceinline=True)
def _complies(facts, work):
    """Whether no row of the proposal has weight on a soft cell while an allowed kernel has headroom."""
    slices, kernels = facts.allowed.shape
    for k in range(kernels):
        work.headroom_rps[k] = facts.limit_rps[k] - load_of(facts.proposed, facts.offered_rps, k)
    for s in range(slices):
        rate, soft, room = facts.offered_rps[s], False, False
        for k in range(kernels):
            if facts.allowed[s, k]:
                room = room or work.headroom_rps[k] > LEAST_SOLVED_RPS
            else:
                soft = soft or facts.proposed[s, k] * rate > LEAST_SOLVED_RPS
        if soft and room:
            return False
    return True


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
