"""Compiled loops of the window detector; every cell by itself, so no result depends on the batch."""

from __future__ import annotations

import numpy as np
from numba import njit

from controller.flags_compiled import by_cell, some_of

# Places on the last axis of sums; ``controller.detectors`` names them.
COUNT, TOTAL, OVER = 0, 1, 3


@njit(cache=True, error_model="numpy")
def relative_excess_of(cell, is_rate, rate_limit, threshold, sense):  # type: ignore[no-untyped-def]  # pragma: no cover
    """``controller.detectors.relative_excess`` of one cell of sums."""
    count = max(cell[COUNT], 1.0)
    if is_rate:
        distance, limit = cell[OVER] / count - rate_limit, rate_limit
    else:
        distance, limit = sense * (cell[TOTAL] / count - threshold), abs(threshold)
    return distance / (limit if limit > 0.0 else 1.0)


@njit(cache=True, error_model="numpy")
def find_at_once(fresh, sums, places, online, alarm, excess, inside, since, judged):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Mark in ``fresh`` where a clause of ``places`` has a unit over.

    Tells whether that changes anything of the rest, and whether it changes ``alarm`` or ``excess``.
    """
    news, louder = False, False
    for b in range(sums.shape[0]):
        for u in range(sums.shape[1]):
            for s in range(sums.shape[2]):
                for c in places:
                    # A view of the cell would cost two atomic reference counts.
                    over = sums[b, u, s, c, OVER]
                    if not (online[s, c] and over > 0.0):
                        continue
                    fresh[b, u, s, c] = True
                    rate = over / max(sums[b, u, s, c, COUNT], 1.0)
                    louder |= not alarm[b, u, s, c] or rate > excess[b, u, s, c]
                    news |= inside[b, u, s, c]
                    for i in range(4):
                        news |= since[b, u, s, c, i] != 0.0 or judged[b, u, s, c, i] != sums[b, u, s, c, i]
    return news or louder, louder


@njit(cache=True, error_model="numpy")
def alarm_at_once(fresh, sums, places, alarm, excess, inside, since, judged):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Raise what ``find_at_once`` marked; the excess is the largest rate seen."""
    for b in range(sums.shape[0]):
        for u in range(sums.shape[1]):
            for s in range(sums.shape[2]):
                for c in places:
                    if not fresh[b, u, s, c]:
                        continue
                    rate = sums[b, u, s, c, OVER] / max(sums[b, u, s, c, COUNT], 1.0)
                    alarm[b, u, s, c], inside[b, u, s, c] = True, False
                    excess[b, u, s, c] = max(rate, excess[b, u, s, c])
                    for i in range(4):
                        since[b, u, s, c, i] = 0.0
                        judged[b, u, s, c, i] = sums[b, u, s, c, i]


@njit(cache=True, error_model="numpy")
def close_windows(  # type: ignore[no-untyped-def]  # pragma: no cover
    alarm, excess, inside, carried, carried_windows, judged, since, silent_windows, fresh, speaks, hopeful,
    sums, closed, online, from_traffic, is_rate, rate_limit, threshold, sense, least, carry, expiry,
):  # fmt: skip
    """End the windows of the ``closed`` fleets, all but what takes a statistical test.

    Marks what is to be tested: ``speaks``, estimates beyond the limit, already in alarm as if they were
    significant; ``hopeful``, sums since the last alarm that lie inside it.
    """
    total = np.zeros(4)
    for b in np.flatnonzero(closed):
        for u in range(sums.shape[1]):
            for s in range(sums.shape[2]):
                for c in range(sums.shape[3]):
                    at = (b, u, s, c)
                    for i in range(4):
                        total[i] = carried[b, u, s, c, i] + sums[b, u, s, c, i]
                    silent_windows[at] = 0 if sums[b, u, s, c, COUNT] > 0.0 else silent_windows[at] + 1
                    if total[COUNT] >= least and online[s, c]:
                        beyond = relative_excess_of(total, is_rate[c], rate_limit[c], threshold[c], sense[c])
                        speaks[at] = alarm[at] = beyond > 0.0
                        excess[at] = beyond if beyond > 0.0 else 0.0
                        inside[at], fresh[at] = False, True
                        _since(since[b, u, s, c], total, speaks[at])
                        kept = relative_excess_of(
                            since[b, u, s, c], is_rate[c], rate_limit[c], threshold[c], sense[c]
                        )
                        hopeful[at] = kept <= 0.0 and since[b, u, s, c, COUNT] >= least
                        judged[b, u, s, c], carried[b, u, s, c] = total, 0.0
                        carried_windows[at] = 0
                        continue
                    if silent_windows[at] >= expiry and from_traffic[c] and alarm[at]:
                        alarm[at], inside[at], fresh[at] = False, True, True
                    excess[at] = excess[at] if alarm[at] else 0.0
                    keep = carried_windows[at] + 1 < carry and total[COUNT] > 0.0
                    carried_windows[at] = carried_windows[at] + 1 if keep else 0
                    for i in range(4):
                        carried[b, u, s, c, i] = total[i] if keep else 0.0


@njit(cache=True, error_model="numpy")
def _since(since, total, speaks):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Sums since the last alarm; a window that speaks against the clause starts them anew."""
    for i in range(4):
        since[i] = 0.0 if speaks else since[i] + total[i]


@njit(cache=True, error_model="numpy")
def latch(ratio, alarm, moves):  # type: ignore[no-untyped-def]  # pragma: no cover
    """1 in ``ratio`` [B, U, S] where a clause of ``moves`` [C] is in alarm."""
    cells = by_cell(alarm)
    for b in range(alarm.shape[0]):
        for u in range(alarm.shape[1]):
            if not some_of(cells, b, u):
                continue
            for s in range(alarm.shape[2]):
                for c in range(alarm.shape[3]):
                    if alarm[b, u, s, c] and moves[c]:
                        ratio[b, u, s] = 1.0
