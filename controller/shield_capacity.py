"""Capacity by water-filling: no kernel above its limit, moved as little as can be, shed the lowest first.

Works on one fleet. Rows stand in a strict order, highest priority first (equal priorities in the order of
the contract). Three passes over the rows in that order:

1. every row claims its own weights as far as the kernels have room;
2. what found no room is poured: into the row's own kernels in proportion to their weights, then into the
   other allowed kernels in proportion to their room;
3. what is left takes the place of rows further down, the last first, which pour in their turn;
   or others make way for it; else it is shed.

Where nothing is evicted, the requests per second that leave their place are the fewest possible, and a row
alone is the nearest to the wish in the norm ``sum_k (w_k - t_k)**2 / t_k``. Ties between kernels are shared
in proportion, so nothing depends on the numbers of kernels. Plain loops over arrays that the caller
provides: the same functions run on symbolic numbers in the proof of the hard-clause property.
"""

from __future__ import annotations

from numba import njit

#: Weights below this are rounding.
CRUMB = 1e-12
#: Shares that differ by less are the same.
SLACK = 1e-9
#: Relative excess of a load that is rounding.
LOAD_SLACK = 1e-7
#: Requests per second that are not worth asking the exact solver for: one in twelve days.
LEAST_RPS = 1e-6


@njit(cache=True, error_model="numpy")
def overloaded(table, canary, rate, capacity, most):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Whether a kernel carries more than ``capacity`` [K], or a canary more of a row than ``most``."""
    slices = table.shape[0]
    for k in range(capacity.shape[0]):
        load = 0.0
        for s in range(slices):
            load += table[s, k] * rate[s]
            if canary[k] and table[s, k] > most + SLACK:
                return True
        if load > capacity[k] * (1.0 + LOAD_SLACK):
            return True
    return False


@njit(cache=True, error_model="numpy")
def fill(table, goal, ok, canary, rate, room, order, most, spill):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Write into ``table`` the rows near ``goal`` [S, K + 1] that fit ``room`` [K]; both are used up.

    ok: bool [S, K]; canary: bool [K]; rate: requests per second [S]; order: int [S], highest first;
    most: a canary's largest weight; spill: [S], room to compute in; on return what was shed for capacity.
    """
    slices, kernels = ok.shape
    for at in range(slices):
        s = order[at]
        spill[s] = _claim(table[s], goal[s], canary, rate[s], room, most)
    for at in range(slices):
        s = order[at]
        if spill[s] > CRUMB:
            spill[s] = _pour_own(table[s], goal[s], canary, rate[s], room, spill[s])
        if spill[s] > CRUMB:
            spill[s] = _pour_others(table[s], ok[s], canary, rate[s], room, spill[s])
        if spill[s] > CRUMB:
            spill[s] = _evict(table, ok[s], canary, rate, order, at, spill)
        if spill[s] > CRUMB:
            spill[s] = _reroute(table, ok, canary, rate, room, order, at, spill)
        if spill[s] > 0.0:
            table[s, kernels] += spill[s]


@njit(cache=True, error_model="numpy")
def _claim(row, goal, canary, rate, room, most):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Take what ``goal`` asks as far as there is room; the weight that found none."""
    spill = 0.0
    kernels = room.shape[0]
    for k in range(kernels):
        weight = goal[k]
        if weight > 0.0:
            if canary[k] and weight > most:
                weight = most
            if rate > 0.0 and weight * rate > room[k]:
                weight = max(room[k], 0.0) / rate
            room[k] -= weight * rate
            spill += goal[k] - weight
            row[k] = weight
        else:
            row[k] = 0.0
    row[kernels] = goal[kernels]
    return spill


@njit(cache=True, error_model="numpy")
def _pour_own(row, goal, canary, rate, room, spill):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Raise the row's own kernels in proportion until ``spill`` is placed or they are full; the rest."""
    kernels = room.shape[0]
    for _ in range(kernels):
        step = _step(goal, canary, rate, room, spill)
        if step <= 0.0:
            return spill
        for k in range(kernels):
            if goal[k] > CRUMB and not canary[k] and room[k] > CRUMB:
                row[k] += step * goal[k]
                room[k] -= step * goal[k] * rate
                spill -= step * goal[k]
        if spill <= CRUMB:
            return 0.0
    return spill


@njit(cache=True, error_model="numpy")
def _step(goal, canary, rate, room, spill):  # type: ignore[no-untyped-def]  # pragma: no cover
    """By which factor of ``goal`` the open kernels rise until ``spill`` is placed or the first is full."""
    total, step = 0.0, -1.0
    for k in range(room.shape[0]):
        if goal[k] > CRUMB and not canary[k] and room[k] > CRUMB:
            total += goal[k]
            if rate > 0.0 and (step < 0.0 or room[k] < step * rate * goal[k]):
                step = room[k] / (rate * goal[k])
    if total > 0.0 and (step < 0.0 or step * total >= spill):
        step = spill / total
    return step


@njit(cache=True, error_model="numpy")
def _pour_others(row, ok, canary, rate, room, spill):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Pour into allowed kernels that are no canaries, in proportion to their room; what fits nowhere."""
    kernels = room.shape[0]
    total = 0.0
    for k in range(kernels):
        if ok[k] and not canary[k] and room[k] > CRUMB:
            total += room[k]
    if total <= 0.0:
        return spill
    placed = spill
    if placed * rate > total:
        placed = total / rate
    for k in range(kernels):
        if ok[k] and not canary[k] and room[k] > CRUMB:
            part = placed * room[k] / total
            row[k] += part
            room[k] -= part * rate
    return spill - placed


@njit(cache=True, error_model="numpy")
def _evict(table, ok, canary, rate, order, at, spill):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Take the places of rows further down, the last first, but for those on canaries, whose share of a row
    is bounded; what still has none.
    """
    s = order[at]
    need = spill[s] * rate[s]
    if need <= CRUMB:
        return spill[s]
    kernels = ok.shape[0]
    for back in range(order.shape[0] - 1 - at):
        other = order[order.shape[0] - 1 - back]
        held = 0.0
        for k in range(kernels):
            if ok[k] and not canary[k]:
                held += table[other, k] * rate[other]
        if held <= CRUMB:
            continue
        share = 1.0
        if held > need:
            share = need / held
        for k in range(kernels):
            if ok[k] and not canary[k] and table[other, k] > 0.0:
                part = table[other, k] * share
                table[s, k] += part * rate[other] / rate[s]
                table[other, k] -= part
                spill[other] += part
        need -= held * share
        if need <= CRUMB:
            return 0.0
    return need / rate[s]


@njit(cache=True, error_model="numpy")
def _reroute(table, ok, canary, rate, room, order, at, spill):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Let other rows, the last first, move over to kernels with room, or to the places of rows further
    down, and take theirs; what still has none. One step deep: longer chains are the exact solver's.
    """
    s = order[at]
    need = spill[s] * rate[s]
    rows = order.shape[0]
    if need <= CRUMB:
        return spill[s]
    for back in range(rows):
        other = order[rows - 1 - back]
        if other == s or rate[other] <= 0.0:
            continue
        need -= _swap(table, s, other, s, ok, canary, rate, room, spill, need)
        for further in range(rows - 1 - at):
            lower = order[rows - 1 - further]
            if need > CRUMB and lower != other and rate[lower] > 0.0:
                need -= _swap(table, s, other, lower, ok, canary, rate, room, spill, need)
        if need <= CRUMB:
            return 0.0
    return need / rate[s]


@njit(cache=True, error_model="numpy")
def _swap(table, s, other, lower, ok, canary, rate, room, spill, need):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Row ``s`` takes from ``other`` what that finds elsewhere, in requests per second: room, or where
    ``lower`` is not ``s`` the weight of row ``lower``; places on canaries stay. All shares are in proportion.
    """
    held, found = 0.0, 0.0
    kernels = room.shape[0]
    for k in range(kernels):
        if ok[s, k] and not canary[k]:
            held += table[other, k] * rate[other]
        elif ok[other, k] and not canary[k]:
            found += max(room[k], 0.0) if lower == s else table[lower, k] * rate[lower]
    take = min(need, held, found)
    if take <= CRUMB:
        return 0.0
    for k in range(kernels):
        if ok[s, k] and not canary[k]:
            part = table[other, k] * (take / held)
            table[other, k] -= part
            table[s, k] += part * rate[other] / rate[s]
        elif ok[other, k] and not canary[k]:
            if lower == s:
                part = max(room[k], 0.0) * (take / found)
                room[k] -= part
            else:
                part = table[lower, k] * rate[lower] * (take / found)
                table[lower, k] -= part / rate[lower]
                spill[lower] += part / rate[lower]
            table[other, k] += part / rate[other]
    return take


@njit(cache=True, error_model="numpy")
def rerouting_helps(table, ok, rate, room, order, at, seen, queue):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Whether the row at place ``at`` of ``order``, which sheds, could be served if others moved.

    Breadth first over kernels: from those that the row may use, over rows with weight there, to the other
    kernels of these rows. It helps where a kernel with room, or one that a row further down uses, is found.
    seen: bool [K] and queue: int [K], to compute in. The answer does not depend on the order of kernels.
    """
    kernels = ok.shape[1]
    head, tail = 0, 0
    for k in range(kernels):
        seen[k] = ok[order[at], k]
        if seen[k]:
            queue[tail] = k
            tail += 1
    while head < tail:
        k = queue[head]
        head += 1
        if room[k] > LEAST_RPS:
            return True
        for place in range(order.shape[0]):
            s = order[place]
            if table[s, k] * rate[s] <= LEAST_RPS:
                continue
            if place > at:
                return True
            for other in range(kernels):
                if ok[s, other] and not seen[other]:
                    seen[other] = True
                    queue[tail] = other
                    tail += 1
    return False
