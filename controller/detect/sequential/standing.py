"""Gross lateness that stands: the second way in which latency on a kernel raises an alarm.

A flush of the gateway is one observation whatever it holds, and a long queue is many bad ones in a row, so
the calibrated threshold of a latency stream is hundreds of nats: a kernel all of whose answers are late
reaches it after minutes. But where much is late for long, and neither load, nor a burst, nor a move of ours
explains it (what they explain is no observation: ``perceive``), no queue does; and what a replica in
quarantine, or a needed one, ends late is not its kernel's. Where every flush for
``STANDING_WINDOWS`` of the contract's window has ``GROSS`` times the share over the objective that the clause
allows, and so have the sums that fade, the clause is broken. The windows of the fallback policy ask for less:
once the limit, in one window.

Of rare traffic three flushes may be three requests, and of a slice with some requests a minute three late
ones in a row come by chance once a day. So what stands has to be evidence by its requests as well: with n of
them, k late, ``n KL(k / n || limit)`` has to reach ``STANDING_NATS``. Were requests late independently of
each other and no more than the limit allows, so many would stand with a chance of ``exp(-STANDING_NATS)`` at
most from any one request on (Chernoff).
"""

from __future__ import annotations

import math

import numpy as np

from contracts.compiled.contract import CompiledContract
from contracts.jit import compiled
from contracts.telemetry import Source
from controller.detect.streams.protocol import Floats
from controller.detect.sums import COUNT, OVER

#: Share over the objective, in limits, that is gross.
GROSS = 3.0
#: In windows of the contract: for so long without a flush that is not gross.
STANDING_WINDOWS = 0.75
#: Evidence of the requests that came while it stood: at limit 5 % six late ones in a row have it.
STANDING_NATS = 15.0
#: In windows: a longer silence between two flushes ends what stood.
MOST_GAP_WINDOWS = 0.5


def standing_after_s(contract: CompiledContract, pooled: bool) -> Floats:
    """float64 [C]: how long it has to stand for an alarm; inf: never, but on latencies of kernels."""
    judged = (contract.source == Source.LATENCY) & contract.is_rate & pooled
    return np.where(judged, STANDING_WINDOWS * contract.window_s, np.inf)


@compiled(inline="always")
def note_standing(one, sums, news, since_s, blurred, levels, plan):
    """For how long lateness stands on each stream of a subject, after a tick's ``sums`` [S, C, 4].

    one: ``Streams`` of the subject, whose ``silent_s`` is that of the tick before; news: bool [S]. Nothing
    stands while it is ``blurred``.
    """
    for s in range(sums.shape[0]):
        for c in range(sums.shape[1] if news[s] else 0):
            if levels.standing_after_s[c] == np.inf or sums[s, c, COUNT] <= 0.0:
                continue
            gross = GROSS * plan.clauses[c].null_mean
            gap_s = one.silent_s[s, c] + since_s
            passes = sums[s, c, OVER] < gross * sums[s, c, COUNT] or gap_s > levels.most_gap_s
            if passes or blurred:
                one.standing_s[s, c] = 0.0
                one.standing_counts[s, c, :] = 0.0
            else:
                one.standing_s[s, c] += gap_s
                one.standing_counts[s, c, 0] += sums[s, c, COUNT]
                one.standing_counts[s, c, 1] += sums[s, c, OVER]


@compiled
def stands(one, s, c, levels, plan):
    """Lateness has stood for long and of enough requests, and what faded of the time before does not make it
    less than gross.
    """
    recent, gross = one.recent[s, c], GROSS * plan.clauses[c].null_mean
    if one.standing_s[s, c] < levels.standing_after_s[c] or recent[OVER] < gross * recent[COUNT]:
        return False
    count, late = one.standing_counts[s, c, 0], one.standing_counts[s, c, 1]
    return standing_nats(count, late, plan.clauses[c].null_mean) >= STANDING_NATS


@compiled
def standing_nats(count, late, limit):
    """Evidence of ``late`` requests of ``count`` against the ``limit``, in nats; 0 where it is kept."""
    if not (count > 0.0 and limit > 0.0 and late > limit * count):
        return 0.0
    found, rest = late * math.log(late / (limit * count)), count - late
    if rest > 0.0:
        found += rest * math.log(rest / ((1.0 - limit) * count))
    return found
