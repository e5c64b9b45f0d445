"""Compiled loops of the window detector. Cells are independent, so no result depends on the batch.

Axes: B fleets, U subjects, S slices, C clauses.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.jit import borrowed, compiled
from controller.detect.streams.protocol import Flags, Floats
from controller.detect.sums import COUNT, OVER, excess_of_cell


class WindowMemory(NamedTuple):
    """Memory of a ``WindowDetector``."""

    alarm: NDArray[Any]  # bool [B, U, S, C]
    excess: NDArray[Any]  # float64 [B, U, S, C]
    inside: NDArray[Any]  # bool [B, U, S, C]
    carried: NDArray[Any]  # float64 [B, U, S, C, 4], sums of windows with too few observations to be judged
    carried_windows: NDArray[Any]  # int64 [B, U, S, C], number of these windows
    judged: NDArray[Any]  # float64 [B, U, S, C, 4], sums last judged
    since_alarm: NDArray[Any]  # float64 [B, U, S, C, 4], sums since the last alarm
    silent_windows: NDArray[Any]  # int64 [B, U, S, C], windows without an observation, in a row


class WindowMarks(NamedTuple):
    """Cells marked when a window closes, bool [B, U, S, C]."""

    fresh: Flags  # [B, U, S, C], judged in this tick
    beyond: Flags  # [B, U, S, C], to be tested: the estimate lies beyond the limit
    hopeful: Flags  # [B, U, S, C], to be tested for recovery: sums since the last alarm are inside the limit


class WindowRules(NamedTuple):
    """Constants of a contract and a ``WindowDetector``."""

    applies: Flags  # [S, C]
    needs_traffic: Flags  # [C]
    is_rate: Flags  # [C]
    rate_limit: Floats  # [C]
    threshold: Floats  # [C], in the metric's unit
    sense: Floats  # [C]
    min_samples: int  # fewer observations are carried
    carry_windows: int
    expiry_windows: int


@compiled
def find_at_once(fresh, sums, places, online, alarm, excess, inside, since, judged):
    """Mark in ``fresh`` where a clause of ``places`` has an observation over the threshold.

    Returns whether any other array changes, and whether ``alarm`` or ``excess`` do. Arrays are passed one by
    one: unpacking a record would cost more than this loop, which runs every tick.
    """
    news, raises = False, False
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
                    raises |= not alarm[b, u, s, c] or rate > excess[b, u, s, c]
                    news |= inside[b, u, s, c]
                    for i in range(4):
                        news |= since[b, u, s, c, i] != 0.0 or judged[b, u, s, c, i] != sums[b, u, s, c, i]
    return news or raises, raises


@compiled
def alarm_at_once(fresh, sums, places, alarm, excess, inside, since, judged):
    """Raise the alarms that ``find_at_once`` marked; the excess is the largest rate observed."""
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


@compiled
def close_windows(memory, marks, sums, closed, rules):
    """Close the windows of the ``closed`` [B] fleets, except for the statistical tests.

    Marks the cells to be tested. Where an estimate lies beyond the limit, the alarm is set as if it were
    significant. sums: [B, U, S, C, 4], of the windows that end.
    """
    memory, marks, rules = borrowed((memory, marks, rules))
    total = np.zeros(4)
    for b in np.flatnonzero(closed):
        for u in range(sums.shape[1]):
            for s in range(sums.shape[2]):
                for c in range(sums.shape[3]):
                    at = (b, u, s, c)
                    for i in range(4):
                        total[i] = memory.carried[b, u, s, c, i] + sums[b, u, s, c, i]
                    silent = 0 if sums[b, u, s, c, COUNT] > 0.0 else memory.silent_windows[at] + 1
                    memory.silent_windows[at] = silent
                    if total[COUNT] >= rules.min_samples and rules.applies[s, c]:
                        _judge(memory, marks, at, total, rules)
                    else:
                        _carry(memory, marks, at, total, rules)


@compiled(inline="always")
def _judge(memory, marks, at, total, rules):
    """The window of cell ``at`` is complete: mark the tests of its sums ``total`` [4]."""
    c = at[3]
    is_rate, rate_limit = rules.is_rate[c], rules.rate_limit[c]
    threshold, sense = rules.threshold[c], rules.sense[c]
    excess = excess_of_cell(total, is_rate, rate_limit, threshold, sense)
    beyond = excess > 0.0
    marks.beyond[at] = memory.alarm[at] = beyond
    memory.excess[at] = excess if beyond else 0.0
    memory.inside[at], marks.fresh[at] = False, True
    since, judged, carried = memory.since_alarm[at], memory.judged[at], memory.carried[at]
    for i in range(4):
        since[i] = 0.0 if beyond else since[i] + total[i]
        judged[i], carried[i] = total[i], 0.0
    kept = excess_of_cell(since, is_rate, rate_limit, threshold, sense)
    marks.hopeful[at] = kept <= 0.0 and since[COUNT] >= rules.min_samples
    memory.carried_windows[at] = 0


@compiled(inline="always")
def _carry(memory, marks, at, total, rules):
    """Too few observations: carry ``total`` [4] on, or drop it; without traffic an alarm on traffic ends."""
    b, u, s, c = at
    silent = memory.silent_windows[at] >= rules.expiry_windows
    if silent and rules.needs_traffic[c] and memory.alarm[at]:
        memory.alarm[at], memory.inside[at], marks.fresh[at] = False, True, True
    memory.excess[at] = memory.excess[at] if memory.alarm[at] else 0.0
    keep = memory.carried_windows[at] + 1 < rules.carry_windows and total[COUNT] > 0.0
    memory.carried_windows[at] = memory.carried_windows[at] + 1 if keep else 0
    for i in range(4):
        memory.carried[b, u, s, c, i] = total[i] if keep else 0.0
