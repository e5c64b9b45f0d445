"""Capacity by water-filling: no kernel above its limit, the least possible moved, lowest priority shed first.

Works on one fleet. Rows have a strict order, highest priority first (equal priorities in the order of the
contract). There are three passes over the rows in that order:

1. Every row claims its own weights as far as the kernels have headroom.
2. Overflow is allocated to the row's own kernels in proportion to their weights, then to the other allowed
   kernels in proportion to their headroom.
3. Remaining overflow evicts rows of lower priority, the lowest first, whose weight is then allocated in turn;
   or other rows are rerouted to make room; otherwise it is shed.

Without evictions, the requests per second that leave their kernel are the fewest possible, and a single row
is nearest to the target in the norm ``sum_k (w_k - t_k)**2 / t_k``. Ties between kernels are shared in
proportion, so the result does not depend on the order of kernels. The code consists of plain loops over the
arrays of ``controller.shield.records``: the same functions run on symbolic numbers in the proof of the
hard-clause property.
"""

from __future__ import annotations

from contracts.jit import compiled

#: Weights below this are rounding errors.
EPSILON = 1e-12
#: Shares that differ by less are equal.
SLACK = 1e-9
#: Relative excess of a load up to which it is a rounding error.
LOAD_SLACK = 1e-7
#: Requests per second below which the exact solver is not used: one request in twelve days.
LEAST_SOLVED_RPS = 1e-6


@compiled(forceinline=True)
def load_of(table, offered_rps, k):
    """Requests per second that ``table`` [S, K + 1] sends to kernel ``k``."""
    load = 0.0
    for s in range(offered_rps.shape[0]):
        load += table[s, k] * offered_rps[s]
    return load


@compiled(forceinline=True)
def overloaded(table, offered_rps, capacity_rps, ratio):
    """Whether a kernel carries more than ``ratio`` times its ``capacity_rps`` [K]."""
    found = False
    for k in range(capacity_rps.shape[0]):
        found = found or load_of(table, offered_rps, k) > capacity_rps[k] * ratio
    return found


@compiled(forceinline=True)
def beyond_limits(facts, outcome):
    """Whether a kernel carries more than its limit, or a bounded canary more of a row than allowed."""
    table = outcome.table
    for k in range(outcome.bounded.shape[0]):
        if outcome.bounded[k]:
            for s in range(table.shape[0]):
                if table[s, k] > facts.most_canary + SLACK:
                    return True
    return overloaded(table, facts.offered_rps, outcome.most_rps, 1.0 + LOAD_SLACK)


@compiled(forceinline=True)
def fill(facts, outcome, work):
    """Write into ``outcome.table`` the rows near ``outcome.target`` that fit ``work.headroom_rps``.

    ``work.headroom_rps`` is reduced by the load placed; ``work.overflow`` becomes the weight shed for
    capacity.
    """
    overflow, kernels = work.overflow, facts.allowed.shape[1]
    for at in range(facts.order.shape[0]):
        s = facts.order[at]
        overflow[s] = _claim(facts, outcome, work, s)
    for at in range(facts.order.shape[0]):
        s = facts.order[at]
        if overflow[s] > EPSILON:
            overflow[s] = allocate_own(facts, outcome, work, s)
        if overflow[s] > EPSILON:
            overflow[s] = allocate_others(facts, outcome, work, s)
        if overflow[s] > EPSILON:
            overflow[s] = evict(facts, outcome, work, at)
        if overflow[s] > EPSILON:
            overflow[s] = reroute(facts, outcome, work, at)
        if overflow[s] > 0.0:
            outcome.table[s, kernels] += overflow[s]


@compiled(forceinline=True)
def _claim(facts, outcome, work, s):
    """Place the weights of row ``s`` of the target as far as there is headroom; returns the overflow."""
    row, target, headroom_rps = outcome.table[s], outcome.target[s], work.headroom_rps
    rate, kernels = facts.offered_rps[s], headroom_rps.shape[0]
    overflow = 0.0
    for k in range(kernels):
        weight = target[k]
        if weight > 0.0:
            if outcome.bounded[k] and weight > facts.most_canary:
                weight = facts.most_canary
            if rate > 0.0 and weight * rate > headroom_rps[k]:
                weight = max(headroom_rps[k], 0.0) / rate
            headroom_rps[k] -= weight * rate
            overflow += target[k] - weight
            row[k] = weight
        else:
            row[k] = 0.0
    row[kernels] = target[kernels]
    return overflow


@compiled(forceinline=True)
def allocate_own(facts, outcome, work, s):
    """Raise the row's own kernels in proportion to place its overflow; returns the remaining overflow."""
    row, target, headroom_rps = outcome.table[s], outcome.target[s], work.headroom_rps
    rate, overflow = facts.offered_rps[s], work.overflow[s]
    kernels = headroom_rps.shape[0]
    for _ in range(kernels):
        step = _step(target, outcome.bounded, rate, headroom_rps, overflow)
        if step <= 0.0:
            return overflow
        for k in range(kernels):
            if target[k] > EPSILON and not outcome.bounded[k] and headroom_rps[k] > EPSILON:
                row[k] += step * target[k]
                headroom_rps[k] -= step * target[k] * rate
                overflow -= step * target[k]
        if overflow <= EPSILON:
            return 0.0
    return overflow


@compiled(forceinline=True)
def _step(target, bounded, rate, headroom_rps, overflow):
    """Factor of ``target`` by which open kernels rise until ``overflow`` is placed or the first is full."""
    total, step = 0.0, -1.0
    for k in range(headroom_rps.shape[0]):
        if target[k] > EPSILON and not bounded[k] and headroom_rps[k] > EPSILON:
            total += target[k]
            if rate > 0.0 and (step < 0.0 or headroom_rps[k] < step * rate * target[k]):
                step = headroom_rps[k] / (rate * target[k])
    if total > 0.0 and (step < 0.0 or step * total >= overflow):
        step = overflow / total
    return step


@compiled(forceinline=True)
def allocate_others(facts, outcome, work, s):
    """Allocate overflow to allowed kernels, bounded canaries apart; returns the remaining overflow."""
    row, rate = outcome.table[s], facts.offered_rps[s]
    return spread(row, facts.allowed[s], outcome.bounded, work.headroom_rps, rate, work.overflow[s])


@compiled(forceinline=True)
def spread(row, allowed, bounded, headroom_rps, rate, weight):
    """Add ``weight`` to kernels that are open, in proportion to headroom; returns what finds none."""
    kernels, total = headroom_rps.shape[0], 0.0
    for k in range(kernels):
        if allowed[k] and not bounded[k] and headroom_rps[k] > EPSILON:
            total += headroom_rps[k]
    if total <= 0.0:
        return weight
    placed = weight
    if placed * rate > total:
        placed = total / rate
    for k in range(kernels):
        if allowed[k] and not bounded[k] and headroom_rps[k] > EPSILON:
            part = placed * headroom_rps[k] / total
            row[k] += part
            headroom_rps[k] -= part * rate
    return weight - placed


@compiled
def evict(facts, outcome, work, at):
    """Evict rows of lower priority, the lowest first; returns the remaining overflow.

    Weight on canaries is not evicted, because their share of a row is bounded.
    """
    order, rate, table = facts.order, facts.offered_rps, outcome.table
    s = order[at]
    need = work.overflow[s] * rate[s]
    if need <= EPSILON:
        return work.overflow[s]
    kernels = facts.allowed.shape[1]
    for back in range(order.shape[0] - 1 - at):
        other = order[order.shape[0] - 1 - back]
        held = 0.0
        for k in range(kernels):
            if facts.allowed[s, k] and not outcome.bounded[k]:
                held += table[other, k] * rate[other]
        if held <= EPSILON:
            continue
        share = 1.0
        if held > need:
            share = need / held
        for k in range(kernels):
            if facts.allowed[s, k] and not outcome.bounded[k] and table[other, k] > 0.0:
                part = table[other, k] * share
                table[s, k] += part * rate[other] / rate[s]
                table[other, k] -= part
                work.overflow[other] += part
        need -= held * share
        if need <= EPSILON:
            return 0.0
    return need / rate[s]


@compiled
def reroute(facts, outcome, work, at):
    """Reroute other rows, the lowest first, and take their place; returns the remaining overflow.

    They move to kernels with headroom, or evict rows of lower priority. Only chains of one step are tried;
    longer ones are left to the exact solver.
    """
    order, rate = facts.order, facts.offered_rps
    s, rows = order[at], order.shape[0]
    need = work.overflow[s] * rate[s]
    if need <= EPSILON:
        return work.overflow[s]
    for back in range(rows):
        other = order[rows - 1 - back]
        if other == s or rate[other] <= 0.0:
            continue
        need -= _swap(facts, outcome, work, s, other, s, need)
        for further in range(rows - 1 - at):
            lower = order[rows - 1 - further]
            if need > EPSILON and lower != other and rate[lower] > 0.0:
                need -= _swap(facts, outcome, work, s, other, lower, need)
        if need <= EPSILON:
            return 0.0
    return need / rate[s]


@compiled
def _swap(facts, outcome, work, s, other, lower, need):
    """Row ``s`` takes the place of weight that row ``other`` can move elsewhere; returns requests per second.

    ``other`` moves to headroom, or, if ``lower`` is not ``s``, to the place of row ``lower``. Weight on
    canaries stays. All shares are in proportion.
    """
    table, allowed, bounded = outcome.table, facts.allowed, outcome.bounded
    rate, headroom_rps = facts.offered_rps, work.headroom_rps
    held, found = 0.0, 0.0
    kernels = headroom_rps.shape[0]
    for k in range(kernels):
        if allowed[s, k] and not bounded[k]:
            held += table[other, k] * rate[other]
        elif allowed[other, k] and not bounded[k]:
            found += max(headroom_rps[k], 0.0) if lower == s else table[lower, k] * rate[lower]
    take = min(need, held, found)
    if take <= EPSILON:
        return 0.0
    for k in range(kernels):
        if allowed[s, k] and not bounded[k]:
            part = table[other, k] * (take / held)
            table[other, k] -= part
            table[s, k] += part * rate[other] / rate[s]
        elif allowed[other, k] and not bounded[k]:
            if lower == s:
                part = max(headroom_rps[k], 0.0) * (take / found)
                headroom_rps[k] -= part
            else:
                part = table[lower, k] * rate[lower] * (take / found)
                table[lower, k] -= part / rate[lower]
                work.overflow[lower] += part / rate[lower]
            table[other, k] += part / rate[other]
    return take


@compiled
def rerouting_helps(facts, outcome, work, at):
    """Whether the row at place ``at`` of the order, which sheds, could be served if other rows moved.

    Breadth-first search over kernels: from those that the row may use, over rows with weight there, to the
    other kernels of these rows. Rerouting helps if the search finds a kernel with headroom, or one that a row
    of lower priority uses. The answer does not depend on the order of kernels.
    """
    allowed, order, seen, queue = facts.allowed, facts.order, work.seen, work.queue
    kernels = allowed.shape[1]
    head, tail = 0, 0
    for k in range(kernels):
        seen[k] = allowed[order[at], k]
        if seen[k]:
            queue[tail] = k
            tail += 1
    while head < tail:
        k = queue[head]
        head += 1
        if work.headroom_rps[k] > LEAST_SOLVED_RPS:
            return True
        for place in range(order.shape[0]):
            s = order[place]
            if outcome.table[s, k] * facts.offered_rps[s] <= LEAST_SOLVED_RPS:
                continue
            if place > at:
                return True
            for other in range(kernels):
                if allowed[s, other] and not seen[other]:
                    seen[other] = True
                    queue[tail] = other
                    tail += 1
    return False
