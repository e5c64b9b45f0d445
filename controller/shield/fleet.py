"""The shield over one fleet, in two passes; between them the exact solver may place what filling cannot."""

from __future__ import annotations

from contracts.jit import compiled
from contracts.scoring.switch_law import row_distance
from controller.shield.capacity import (
    EPSILON,
    LEAST_SOLVED_RPS,
    SLACK,
    beyond_limits,
    fill,
    load_of,
    rerouting_helps,
)
from controller.shield.comfort import STEPS, fill_up_to, has_comfort, open_to_limit, open_unwanted
from controller.shield.lesser_evil import has_soft_cells, relent, stands, tolerated
from controller.shield.records import (
    CAPACITY,
    CAPACITY_SIZE,
    DWELL,
    EXPLORATION,
    EXPLORATION_SIZE,
    SLEW,
    SLEW_SIZE,
)
from controller.shield.rows import aim, explore, keep_bounds, keep_minimum_share, slow_down


@compiled(forceinline=True)
def plan_fleet(facts, outcome, work):
    """First pass: hard clauses, pool, exploration, capacity, and soft cells where capacity is short.

    True if the exact solver is needed. ``outcome.table`` becomes the rows that fit in ``outcome.most_rps``:
    the comfortable load of the kernels, and their limit where that is not enough.
    """
    some = False
    for k in range(facts.canary.shape[0]):
        outcome.bounded[k] = facts.canary[k]
        outcome.most_rps[k] = facts.limit_rps[k]
        some = some or facts.canary[k]
    _aim_all(facts, outcome)
    if has_comfort(facts):
        for step in range(STEPS):
            fill_up_to(facts, outcome, step)
            if not _fill_all(facts, outcome, work):
                open_unwanted(facts, outcome)
                return False
        open_to_limit(facts, outcome, work)
    while True:
        short = _fill_all(facts, outcome, work)
        if not (short and some):
            break
        some = False
        for k in range(facts.canary.shape[0]):
            outcome.bounded[k] = False
        _aim_all(facts, outcome)
    if not short:
        return False
    if _moving_helps(facts, outcome, work):
        return True
    return has_soft_cells(facts) and _moving_helps(relent(facts, outcome, work), outcome, work)


@compiled(forceinline=True)
def _moving_helps(facts, outcome, work):
    """Whether a row that sheds could be served by a chain of moves that only the exact solver finds."""
    for at in range(facts.order.shape[0]):
        s = facts.order[at]
        lost = work.overflow[s] * facts.offered_rps[s] > LEAST_SOLVED_RPS
        if lost and rerouting_helps(facts, outcome, work, at):
            return True
    return False


@compiled(forceinline=True)
def _aim_all(facts, outcome):
    """Set the target of every row under the bounds of ``outcome.bounded``."""
    for s in range(facts.allowed.shape[0]):
        for stage in range(outcome.size.shape[1]):
            outcome.size[s, stage] = 0.0
        outcome.reason[s] = aim(facts, outcome, s)
        if facts.failover[s] < 0:
            outcome.reason[s] |= explore(facts, outcome, s)


@compiled(forceinline=True)
def _fill_all(facts, outcome, work):
    """Fill kernels up to ``outcome.most_rps``; returns whether there is overflow."""
    slices, kernels = facts.allowed.shape
    for s in range(slices):
        work.overflow[s] = 0.0
        for k in range(kernels + 1):
            outcome.table[s, k] = outcome.target[s, k]
    if not beyond_limits(facts, outcome):
        return False
    for k in range(kernels):
        work.headroom_rps[k] = outcome.most_rps[k]
    fill(facts, outcome, work)
    short = False
    for s in range(slices):
        if work.overflow[s] > SLACK:
            short = True
    return short


@compiled(forceinline=True)
def settle_fleet(facts, outcome, work):
    """Second pass: minimum share, slew and dwell; ``outcome.table`` becomes the allowed table.

    True if a row was served beyond capacity, because it would have been empty while another row is still
    moving.
    """
    slices, kernels = facts.allowed.shape
    served_beyond = False
    if stands(facts, outcome, work):
        for s in range(slices):
            _copy(outcome.table[s], facts.proposed[s])
    for k in range(kernels):
        work.headroom_rps[k] = outcome.most_rps[k] * (1.0 + SLACK) + EPSILON
    for s in range(slices):
        emptied = _settle_row(facts, outcome, work, s)
        if emptied != 0:
            served_beyond = True
            for k in range(kernels):
                work.headroom_rps[k] += outcome.table[s, k] * facts.offered_rps[s]
    _yield_to_capacity(facts, outcome, work)
    slowly = 0
    for s in range(slices):
        slowly |= outcome.reason[s] & (SLEW | DWELL)
        _finish(facts.proposed[s], outcome, work.slowed[s], s)
    return served_beyond and slowly != 0


@compiled(forceinline=True)
def _settle_row(facts, outcome, work, s):
    """Write row ``s`` after slew and dwell into ``work.slowed``; not 0 if it would have been empty."""
    row, slowed, proposed = outcome.table[s], work.slowed[s], facts.proposed[s]
    last, allowed = facts.last[s], facts.allowed[s]
    emptied = keep_minimum_share(row, allowed, facts.limit_rps)
    outcome.reason[s] |= emptied | _count_overflow(facts, outcome, s) | tolerated(facts, row, s)
    if _alike(row, proposed) and not _strays(proposed, allowed, row):
        _copy(row, proposed)
    slowing, distance = slow_down(facts, slowed, row, s)
    if slowing != 0:
        keep_bounds(facts, outcome, slowed, s)
    if emptied != 0 or facts.failover[s] >= 0 or _alike(slowed, row):
        slowing = 0
        _copy(slowed, row)
    outcome.reason[s] |= slowing
    outcome.voluntary[s] = facts.may_move[s] and distance > SLACK and _leaves(proposed, last, allowed)
    return emptied


@compiled(forceinline=True)
def _finish(proposed, outcome, slowed, s):
    """Write the slowed row into the outcome; a row equal to the proposed one has no reasons."""
    row, size = outcome.table[s], outcome.size[s]
    size[SLEW_SIZE] = row_distance(slowed, row)
    _copy(row, slowed)
    same = True
    for k in range(row.shape[0]):
        same = same and row[k] == proposed[k]
    if same:
        outcome.reason[s] = 0
        for stage in range(size.shape[0]):
            size[stage] = 0.0


@compiled(forceinline=True)
def _copy(row, other):
    """Write ``other`` into ``row``."""
    for k in range(row.shape[0]):
        row[k] = other[k]


@compiled(forceinline=True)
def _yield_to_capacity(facts, outcome, work):
    """Where slowed rows overload a kernel, complete the moves away from it, until no kernel is overloaded."""
    slowed, table, reason = work.slowed, outcome.table, outcome.reason
    slices, columns = slowed.shape
    going = True
    while going:
        going = False
        for k in range(columns - 1):
            if load_of(slowed, facts.offered_rps, k) <= work.headroom_rps[k]:
                continue
            for s in range(slices):
                if slowed[s, k] > table[s, k]:
                    _copy(slowed[s], table[s])
                    reason[s] = (reason[s] & (CAPACITY - 1 | EXPLORATION)) | CAPACITY
                    outcome.voluntary[s] = False
                    going = True


@compiled(forceinline=True)
def _count_overflow(facts, outcome, s):
    """Record overflow of the first pass: above a canary's bound as exploration, the rest as capacity."""
    row, target, size = outcome.table[s], outcome.target[s], outcome.size[s]
    most = facts.most_canary
    beyond = 0.0
    for k in range(outcome.bounded.shape[0]):
        if outcome.bounded[k] and target[k] > most and row[k] < target[k]:
            beyond += target[k] - max(row[k], most)
    reason = 0
    if beyond > SLACK:
        size[EXPLORATION_SIZE] += beyond
        reason = EXPLORATION
    moved_on = row_distance(row, target) - beyond
    if moved_on > SLACK:
        size[CAPACITY_SIZE] = moved_on
        reason |= CAPACITY
    return reason


@compiled(forceinline=True)
def _leaves(proposed, last, allowed):
    """Whether the policy itself takes weight off a kernel that may keep it."""
    found = False
    for k in range(allowed.shape[0]):
        found = found or (allowed[k] and proposed[k] < last[k] - SLACK)
    return found


@compiled(forceinline=True)
def _strays(proposed, allowed, row):
    """Whether the proposal has any weight, however small, on a cell that is not allowed, unlike ``row``."""
    found = False
    for k in range(allowed.shape[0]):
        found = found or (proposed[k] != 0.0 and not allowed[k] and row[k] == 0.0)
    return found


@compiled(forceinline=True)
def _alike(row, other):
    """Equal up to rounding."""
    found = False
    for k in range(row.shape[0]):
        found = found or abs(row[k] - other[k]) > SLACK
    return not found
