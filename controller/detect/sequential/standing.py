"""Persistent gross lateness: the second way in which latency on a kernel raises an alarm.

A flush of the gateway is one observation whatever its size. A long queue gives many bad flushes in a row.
So the calibrated threshold of a latency stream is hundreds of nats, and a kernel with only late answers
reaches it after minutes. But if much is late for long, and neither load, nor a burst, nor one of our own
moves explains it (``perceive`` drops observations that these explain), then no queue explains it either. Late
answers of replicas in quarantine, or of needed ones, do not count for their kernel. The clause is broken if
every flush for ``STANDING_WINDOWS`` of the contract's window has ``GROSS`` times the share over the objective
that the clause allows, and the decaying sums have so too. The windows of the fallback policy require less:
one times the limit, in one window.

With rare traffic, three flushes may be three requests, and on a slice with a few requests a minute three late
ones in a row come by chance once a day. So the requests must be evidence as well: with n requests, k of them
late, ``n KL(k / n || limit)`` has to reach ``STANDING_NATS``. If requests are late independently and no more
often than the limit allows, this happens from any one request on with a probability of at most
``exp(-STANDING_NATS)`` (Chernoff).
"""

from __future__ import annotations

import math

import numpy as np

from contracts.compiled.contract import CompiledContract
from contracts.jit import compiled
from contracts.telemetry import Source
from controller.detect.streams.protocol import Floats
from controller.detect.sums import COUNT, OVER

#: Share over the objective that counts as gross, in limits.
GROSS = 3.0
#: Time during which every flush must be gross, in windows of the contract.
STANDING_WINDOWS = 0.75
#: Required evidence of the requests in that time; at limit 5 %, six late ones in a row reach it.
STANDING_NATS = 15.0
#: Longest gap between two flushes, in windows; a longer gap restarts the time.
MOST_GAP_WINDOWS = 0.5


def standing_after_s(contract: CompiledContract, pooled: bool) -> Floats:
    """float64 [C]: how long gross lateness must last for an alarm; inf except on latencies of kernels."""
    judged = (contract.source == Source.LATENCY) & contract.is_rate & pooled
    return np.where(judged, STANDING_WINDOWS * contract.window_s, np.inf)


@compiled(inline="always")
def note_standing(subject, sums, news, since_s, blurred, levels, plan):
    """Update how long gross lateness lasts on each stream of a subject, by a tick's ``sums`` [S, C, 4].

    subject: ``Streams`` of the subject, with ``silent_s`` of the last tick; news: bool [S]. Lateness does not
    count while the subject is ``blurred``.
    """
    for s in range(sums.shape[0]):
        for c in range(sums.shape[1] if news[s] else 0):
            if levels.standing_after_s[c] == np.inf or sums[s, c, COUNT] <= 0.0:
                continue
            gross = GROSS * plan.clauses[c].null_mean
            gap_s = subject.silent_s[s, c] + since_s
            passes = sums[s, c, OVER] < gross * sums[s, c, COUNT] or gap_s > levels.most_gap_s
            if passes or blurred:
                subject.standing_s[s, c] = 0.0
                subject.standing_counts[s, c, :] = 0.0
            else:
                subject.standing_s[s, c] += gap_s
                subject.standing_counts[s, c, 0] += sums[s, c, COUNT]
                subject.standing_counts[s, c, 1] += sums[s, c, OVER]


@compiled
def stands(subject, s, c, levels, plan):
    """Whether gross lateness has lasted long enough, over enough requests, and the decaying sums show it."""
    recent, gross = subject.recent[s, c], GROSS * plan.clauses[c].null_mean
    if subject.standing_s[s, c] < levels.standing_after_s[c] or recent[OVER] < gross * recent[COUNT]:
        return False
    count, late = subject.standing_counts[s, c, 0], subject.standing_counts[s, c, 1]
    return standing_nats(count, late, plan.clauses[c].null_mean) >= STANDING_NATS


@compiled
def standing_nats(count, late, limit):
    """Evidence of ``late`` requests of ``count`` against the ``limit``, in nats; 0 where it is kept."""
    if not (count > 0.0 and limit > 0.0 and late > limit * count):
        return 0.0
    nats, in_time = late * math.log(late / (limit * count)), count - late
    if in_time > 0.0:
        nats += in_time * math.log(in_time / ((1.0 - limit) * count))
    return nats
