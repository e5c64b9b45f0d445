"""Compiled pass of the watch over our own moves: follow the table, judge at the end of every block, hold.

Fleets are independent and slices are processed in order, so no result depends on the batch. Records are
passed as plain tuples.
"""

from __future__ import annotations

import numpy as np

from contracts.jit import borrowed, compiled
from contracts.scoring.switch_law import SWITCH_DISTANCE, row_distance
from contracts.units import CLOCK_SLACK_S
from controller.cells import is_bad
from controller.supervise.own_moves_blocks import (
    add_recent,
    block_ends,
    chance_of,
    close_block,
    count_requests,
)
from controller.supervise.own_moves_records import Counted, Found, Law, MovesMemory, OwnMove, Standing
from controller.supervise.switch_counter import LEAST_MOVE

# Plain integers, because compiled code does not know the enumeration.
WATCHED, TAKEN_BACK, STOPPED = int(OwnMove.WATCHED), int(OwnMove.TAKEN_BACK), int(OwnMove.STOPPED)
KEPT, HELD = int(OwnMove.KEPT), int(OwnMove.HELD)

#: A kernel gains or loses a slice when its weight changes by more than this.
TOLERANCE = 0.01
#: Time without being taken back after which the hold time of a row is reset.
FORGIVE_S = 3600.0


@compiled
def watch(memory, counted, standing, law, found):
    """One tick: process ``counted`` and the table in force, and write taken-back and held rows to ``found``.

    Passing these records takes as long as the work on a fleet without moves. So code of every tick is
    inlined, and code of few ticks is called only after a check.
    """
    memory, counted = borrowed((MovesMemory(*memory), Counted(*counted)))
    standing, found = borrowed((Standing(*standing), Found(*found)))
    law = borrowed(Law(*law))
    slices, kernels = memory.ended.shape[1:]
    seen, row = np.zeros((slices + kernels, 2)), np.zeros(kernels + 1)
    for b in range(len(standing.now_s)):
        now_s = standing.now_s[b]
        count_requests(memory, counted, law, b)
        if not (memory.started[b] and _stands(memory, standing, b)):
            _follow(memory, standing, law, b)
        if np.isnan(memory.block_began_at_s[b]):
            memory.block_began_at_s[b] = now_s
        lasted_s = now_s - memory.block_began_at_s[b]
        long_s = lasted_s + CLOCK_SLACK_S
        if long_s >= law.block_s and block_ends(memory, counted, law, long_s, b):
            found.closed[b], found.lasted_s[b] = True, lasted_s
            close_block(memory, counted, standing, law, seen, b)
            for s in range(slices):
                if memory.watched[b, s] and standing.known[b]:
                    _count_since(memory, standing, law, seen, b, s)
                    found.action[b, s] = _judge(memory, standing, law, row, b, s)
            found.ended[b], found.bad[b] = memory.ended[b], memory.bad[b]
            memory.ended[b], memory.bad[b] = 0.0, 0.0
            memory.block_began_at_s[b] = now_s
        for s in range(slices):
            if standing.known[b] and now_s < memory.held_until_at_s[b, s]:
                _hold(memory, standing, found, row, b, s)


@compiled
def _follow(memory, standing, law, b):
    """Note the rows that moved in a changed table, and the kernels whose late answers this explains."""
    now_s, table, followed = standing.now_s[b], standing.table[b], memory.followed[b]
    if not memory.started[b]:
        memory.started[b] = True
        followed[:], memory.settled[b] = table, table
        return
    some = False
    for s in range(table.shape[0]):
        some = some or row_distance(table[s], followed[s]) > LEAST_MOVE
    if not some:
        return
    _explain(memory, standing, law, b)
    for s in range(table.shape[0]):
        if row_distance(table[s], followed[s]) > LEAST_MOVE:
            if memory.watched[b, s]:
                memory.changed_at_s[b, s] = now_s
                memory.for_capacity[b, s] &= memory.capacity_rows[b, s]
            elif (
                now_s >= memory.held_until_at_s[b, s]
                and row_distance(table[s], memory.settled[b, s]) > SWITCH_DISTANCE
            ):
                _begin(memory, now_s, b, s)
            followed[s] = table[s]


@compiled(inline="always")
def _stands(memory, standing, b):
    """Whether the table in force equals the last one bit for bit; without views, for speed."""
    alike = True
    for s in range(standing.table.shape[1]):
        for k in range(standing.table.shape[2]):
            alike &= standing.table[b, s, k] == memory.followed[b, s, k]
    return alike


@compiled
def _explain(memory, standing, law, b):
    """Late answers of kernels whose load this change raised are explained by it, unless they are slow."""
    table, offered_rps = standing.table[b], standing.offered_rps[b]
    for k in range(memory.explained_at_s.shape[1]):
        was_rps, load_rps = 0.0, 0.0
        for s in range(table.shape[0]):
            was_rps += memory.followed[b, s, k] * offered_rps[s]
            load_rps += table[s, k] * offered_rps[s]
        if load_rps - was_rps > law.gain_ratio * load_rps:
            _note_explained(memory, standing, law, b, k)


@compiled(inline="always")
def _note_explained(memory, standing, law, b, k):
    """Note that a move explains late answers of kernel ``k``, unless it is slow: then it would be late
    anyway.
    """
    if standing.replica_rps[b, k] >= law.slow_ratio * standing.healthy_rps[b, k]:
        memory.explained_at_s[b, k] = standing.now_s[b]


@compiled
def _begin(memory, now_s, b, s):
    """Start to watch the move of a row, and store the blocks before it."""
    slices, kernels = memory.ended.shape[1:]
    memory.watched[b, s], memory.changed_at_s[b, s] = True, now_s
    memory.for_capacity[b, s] = memory.capacity_rows[b, s]
    memory.chance[b, s], memory.subject[b, s] = np.nan, kernels
    memory.since[b, s], memory.recent[b, s] = 0.0, 0
    for place in range(kernels + 1):
        past = memory.past[b, s if place == kernels else slices + place]
        for i in range(2):
            memory.before[b, s, place, i] = past[0, i] + past[1, i]


@compiled
def _count_since(memory, standing, law, seen, b, s):
    """Add the ended block to those since the move: of kernels, and of the slice on kernels that gained."""
    slices, kernels = memory.ended.shape[1:]
    ended, bad = 0.0, 0.0
    for k in range(kernels):
        observed, wrong = seen[slices + k]
        add_recent(memory.recent[b, s, k], memory.since[b, s, k], observed, wrong)
        if standing.table[b, s, k] > memory.settled[b, s, k] + TOLERANCE:
            ended += memory.ended[b, s, k]
            bad += memory.bad[b, s, k]
    wrong = is_bad(ended, bad, law.limit[s] * ended)
    add_recent(memory.recent[b, s, kernels], memory.since[b, s, kernels], ended, wrong)


@compiled
def _judge(memory, standing, law, row, b, s):
    """The ``OwnMove`` of row ``s``: whether its slice, or a kernel that gained it, is worse than before.

    The error is divided over the subjects and the largest number of tests during a move (Bonferroni).
    """
    kernels, now_s = memory.ended.shape[2], standing.now_s[b]
    table, settled, before, since = (
        standing.table[b, s],
        memory.settled[b, s],
        memory.before[b, s],
        memory.since[b, s],
    )
    best, subject, subjects = chance_of(before[kernels], since[kernels]), kernels, 1
    memory.control[b, s] = before[kernels]
    left = np.zeros(2)
    for k in range(kernels):
        if table[k] < settled[k] - TOLERANCE:
            left += before[k]
    for k in range(kernels):
        if table[k] > settled[k] + TOLERANCE:
            subjects += 1
            chance = chance_of(before[k] + left, since[k])
            if chance < best:
                best, subject = chance, k
                memory.control[b, s] = before[k] + left
    if subjects == 1:  # the row came back by itself
        memory.watched[b, s] = row_distance(standing.table[b, s], memory.settled[b, s]) > SWITCH_DISTANCE
    memory.chance[b, s], memory.subject[b, s] = best, subject
    if best <= law.error / (subjects * law.most_looks):
        return _answer(memory, standing, law, row, b, s)
    if now_s - memory.changed_at_s[b, s] >= law.settle_s - CLOCK_SLACK_S:
        memory.watched[b, s] = False
        memory.settled[b, s] = standing.table[b, s]
        if now_s - memory.held_until_at_s[b, s] > FORGIVE_S:
            memory.taken[b, s] = 0
    return WATCHED


@compiled
def _answer(memory, standing, law, row, b, s):
    """Take the row back if that helps, else stop it; without a kernel to go back to, keep it as it is."""
    memory.watched[b, s] = False
    back = _way_back(memory, standing, row, b, s)
    if back <= TOLERANCE:
        memory.settled[b, s] = standing.table[b, s]
        return KEPT
    helps = _has_room(standing, row, b, s) and not _no_better(memory, standing, b, s)
    memory.stopped[b, s] = not helps
    memory.held_until_at_s[b, s] = standing.now_s[b] + law.hold_s * 2.0 ** min(
        memory.taken[b, s], law.doublings
    )
    memory.taken[b, s] += 1
    for k in range(standing.table.shape[2] - 1):
        moved = abs(standing.table[b, s, k] - memory.settled[b, s, k]) > TOLERANCE
        if moved and helps:  # queues take a while to drain
            _note_explained(memory, standing, law, b, k)
    if helps:
        memory.settled[b, s] = row
        return TAKEN_BACK
    memory.settled[b, s] = standing.table[b, s]
    return STOPPED


@compiled
def _way_back(memory, standing, row, b, s):
    """Write the row before the move into ``row``, as far as its cells are open; returns the returning weight.

    Weight that may not go back, or was shed, stays on its present kernels, in proportion.
    """
    settled, table, open_cells = memory.settled[b, s], standing.table[b, s], standing.open_cells[b, s]
    kept, here, back = 0.0, 0.0, 0.0
    for k in range(len(open_cells)):
        if open_cells[k]:
            kept += settled[k]
            here += table[k]
            if settled[k] > table[k] + TOLERANCE:
                back += settled[k] - table[k]
    if kept <= LEAST_MOVE:
        return 0.0
    row[:] = 0.0
    for k in range(len(open_cells)):
        if open_cells[k]:
            rest = table[k] / here if here > LEAST_MOVE else settled[k] / kept
            row[k] = settled[k] + (1.0 - kept) * rest
    return back


@compiled
def _has_room(standing, row, b, s):
    """Whether the kernels that would get the row back can carry it, by the best estimate of capacity."""
    table, offered_rps = standing.table[b], standing.offered_rps[b]
    for k in range(len(row) - 1):
        if row[k] > table[s, k] + TOLERANCE:
            load_rps = (row[k] - table[s, k]) * offered_rps[s]
            for other in range(table.shape[0]):
                load_rps += table[other, k] * offered_rps[other]
            if load_rps > standing.ready[b, k] * standing.replica_rps[b, k]:
                return False
    return True


@compiled
def _no_better(memory, standing, b, s):
    """Whether a kernel that would get weight back was no better since the move than those that have it now.

    Then the move is not the cause.
    """
    kernels, since = memory.ended.shape[2], memory.since[b, s]
    worst = since[kernels, 1] / max(since[kernels, 0], 1.0)
    for k in range(kernels):
        if standing.table[b, s, k] > memory.settled[b, s, k] + TOLERANCE and since[k, 0] > 0.0:
            worst = max(worst, since[k, 1] / since[k, 0])
    for k in range(kernels):
        lost = memory.settled[b, s, k] > standing.table[b, s, k] + TOLERANCE
        if lost and since[k, 0] > 0.0 and since[k, 1] / since[k, 0] >= worst:
            return True
    return False


@compiled
def _hold(memory, standing, found, row, b, s):
    """Replace the proposed row by the held one, unless a cell of it has closed since.

    Shed weight is not held, because the shield decides in every tick how much is shed. row: [K + 1], scratch.
    """
    held, proposed, kernels = memory.settled[b, s], found.table[b, s], memory.ended.shape[2]
    further, served = not memory.stopped[b, s], 1.0 - held[kernels]
    if served <= LEAST_MOVE:
        return
    row[:] = held * ((1.0 - proposed[kernels]) / served)
    row[kernels] = proposed[kernels]
    for k in range(kernels):
        if held[k] > TOLERANCE and not standing.open_cells[b, s, k]:
            memory.held_until_at_s[b, s] = -np.inf
            return
        further = further or (memory.since[b, s, k, 1] > 0.0 and proposed[k] > row[k] + LEAST_MOVE)
    if further and row_distance(row, proposed) > LEAST_MOVE:
        proposed[:] = row
        if found.action[b, s] != TAKEN_BACK and found.action[b, s] != STOPPED:
            found.action[b, s] = HELD
