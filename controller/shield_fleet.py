"""The shield over one fleet, in two passes; between them the exact solver may place what filling cannot."""

from __future__ import annotations

from numba import njit

from controller.shield_capacity import CRUMB, LEAST_RPS, SLACK, fill, overloaded, rerouting_helps
from controller.shield_rows import (
    CAPACITY,
    DWELL,
    EXPLORATION,
    SLEW,
    aim,
    explore,
    half_l1,
    keep_bounds,
    slow_down,
    trickle,
)


@njit(cache=True, error_model="numpy")
def plan_fleet(  # type: ignore[no-untyped-def]  # pragma: no cover
    table, goal, wish, last, ok, refuge, canary, rate, capacity, order, known_good, least, most, max_shed,
    reason, size, room, spill, seen, queue, bounded,
):  # fmt: skip
    """First pass: hard clauses, pool, exploration, capacity. True where only the exact solver can tell.

    table, goal: [S, K + 1], written: the rows that fit, and the rows before capacity. bounded: bool [K],
    written: the canaries whose bounds hold; none where they would cost traffic. room [K], spill [S], seen,
    queue [K]: to compute in.
    """
    slices, kernels = ok.shape
    some = False
    for k in range(kernels):
        bounded[k] = canary[k]
        some = some or canary[k]
    short = _fit(
        table, goal, wish, last, ok, refuge, bounded, rate, capacity, order, known_good, least, most,
        max_shed, reason, size, room, spill,
    )  # fmt: skip
    if short and some:
        for k in range(kernels):
            bounded[k] = False
        short = _fit(
            table, goal, wish, last, ok, refuge, bounded, rate, capacity, order, known_good, least, most,
            max_shed, reason, size, room, spill,
        )  # fmt: skip
    if short:
        for at in range(slices):
            lost = spill[order[at]] * rate[order[at]] > LEAST_RPS
            if lost and rerouting_helps(table, ok, rate, room, order, at, seen, queue):
                return True
    return False


@njit(cache=True, error_model="numpy")
def _fit(  # type: ignore[no-untyped-def]  # pragma: no cover
    table, goal, wish, last, ok, refuge, bounded, rate, capacity, order, known_good, least, most, max_shed,
    reason, size, room, spill,
):  # fmt: skip
    """Aim and fill under the bounds of ``bounded`` [K]; whether something found no place."""
    slices, kernels = ok.shape
    for s in range(slices):
        spill[s] = 0.0
        for stage in range(size.shape[1]):
            size[s, stage] = 0.0
        reason[s] = aim(goal[s], wish[s], last[s], ok[s], refuge[s], capacity, known_good, max_shed, size[s])
        if refuge[s] < 0:
            reason[s] |= explore(goal[s], ok[s], bounded, least, size[s])
        for k in range(kernels + 1):
            table[s, k] = goal[s, k]
    if not overloaded(table, bounded, rate, capacity, most):
        return False
    for k in range(kernels):
        room[k] = capacity[k]
    fill(table, goal, ok, bounded, rate, room, order, most, spill)
    short = False
    for s in range(slices):
        if spill[s] > SLACK:
            short = True
    return short


@njit(cache=True, error_model="numpy")
def settle_fleet(  # type: ignore[no-untyped-def]  # pragma: no cover
    table, goal, wish, last, ok, refuge, canary, rate, capacity, least, most, may_move, max_move,
    reason, size, voluntary, slowed, room,
):  # fmt: skip
    """Second pass: never an empty row, slew and dwell; ``table`` [S, K + 1] becomes the allowed one. True
    where a row was served beyond capacity so as not to be empty while another is on its way.

    slowed [S, K + 1] and room [K]: to compute in; ``room`` becomes what each kernel may carry.
    """
    slices, kernels = ok.shape
    trickled = False
    for k in range(kernels):
        room[k] = capacity[k] * (1.0 + SLACK) + CRUMB
    for s in range(slices):
        emptied = trickle(table[s], ok[s], capacity)
        reason[s] |= emptied | _count_spill(table[s], goal[s], canary, most, size[s])
        if _alike(table[s], wish[s]) and not _strays(wish[s], ok[s]):
            _copy(table[s], wish[s])
        slowing, distance = slow_down(slowed[s], table[s], last[s], ok[s], may_move[s], max_move)
        if slowing != 0:
            keep_bounds(slowed[s], table[s], ok[s], canary, least, most)
        if emptied != 0 or refuge[s] >= 0 or _alike(slowed[s], table[s]):
            slowing = 0
            _copy(slowed[s], table[s])
        if emptied != 0:
            trickled = True
            for k in range(kernels):
                room[k] += table[s, k] * rate[s]
        reason[s] |= slowing
        voluntary[s] = may_move[s] and distance > SLACK and _leaves(wish[s], last[s], ok[s])
    _yield_to_capacity(slowed, table, rate, room, reason, voluntary)
    slowly = 0
    for s in range(slices):
        slowly |= reason[s] & (SLEW | DWELL)
        _finish(table[s], slowed[s], wish[s], reason, size[s], s)
    return trickled and slowly != 0


@njit(cache=True, error_model="numpy")
def _finish(row, slowed, wish, reason, size, s):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Put the slowed row in force; a row that is as proposed has no reasons."""
    size[4] = half_l1(slowed, row)
    _copy(row, slowed)
    same = True
    for k in range(row.shape[0]):
        same = same and row[k] == wish[k]
    if same:
        reason[s] = 0
        for stage in range(size.shape[0]):
            size[stage] = 0.0


@njit(cache=True, error_model="numpy")
def _copy(row, other):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Write ``other`` into ``row``."""
    for k in range(row.shape[0]):
        row[k] = other[k]


@njit(cache=True, error_model="numpy")
def _yield_to_capacity(slowed, table, rate, room, reason, voluntary):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Where slowed rows overload a kernel, those that were to leave it go all the way, until none is."""
    slices, columns = slowed.shape
    going = True
    while going:
        going = False
        for k in range(columns - 1):
            load = 0.0
            for s in range(slices):
                load += slowed[s, k] * rate[s]
            if load <= room[k]:
                continue
            for s in range(slices):
                if slowed[s, k] > table[s, k]:
                    for column in range(columns):
                        slowed[s, column] = table[s, column]
                    reason[s] = (reason[s] & (CAPACITY - 1 | EXPLORATION)) | CAPACITY
                    voluntary[s] = False
                    going = True


@njit(cache=True, error_model="numpy")
def _count_spill(row, goal, canary, most, size):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Book what the first pass spilled: above a canary's bound to exploration, the rest to capacity."""
    kernels = canary.shape[0]
    bounded = 0.0
    for k in range(kernels):
        if canary[k] and goal[k] > most and row[k] < goal[k]:
            bounded += goal[k] - max(row[k], most)
    reason = 0
    if bounded > SLACK:
        size[3] += bounded
        reason = EXPLORATION
    spilled = half_l1(row, goal) - bounded
    if spilled > SLACK:
        size[2] = spilled
        reason |= CAPACITY
    return reason


@njit(cache=True, error_model="numpy")
def _leaves(wish, last, ok):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Whether the policy itself takes weight off a kernel that may keep it."""
    found = False
    for k in range(ok.shape[0]):
        found = found or (ok[k] and wish[k] < last[k] - SLACK)
    return found


@njit(cache=True, error_model="numpy")
def _strays(row, ok):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Whether some weight, however small, lies where none may."""
    found = False
    for k in range(ok.shape[0]):
        found = found or (row[k] != 0.0 and not ok[k])
    return found


@njit(cache=True, error_model="numpy")
def _alike(row, other):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Equal up to rounding."""
    found = False
    for k in range(row.shape[0]):
        found = found or abs(row[k] - other[k]) > SLACK
    return not found
