"""Gross lateness that stands: the second way in which latency on a kernel raises an alarm.

A flush of the gateway is one observation whatever it holds, and a long queue is many bad ones in a row, so
the calibrated threshold of a latency stream is hundreds of nats: a kernel all of whose answers are late
reaches it after minutes. But where much is late for long, and neither load, nor a burst, nor a move of ours
explains it (what they explain is no observation: ``perceive``), no queue does; and what a replica in
quarantine, or a needed one, ends late is not its kernel's. Where every flush for
``STANDING_WINDOWS`` of the contract's window has ``GROSS`` times the share over the objective that the clause
allows, and so have the sums that fade, the clause is broken. The windows of the fallback policy ask for less:
once the limit, in one window.
"""

from __future__ import annotations

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
            else:
                one.standing_s[s, c] += gap_s


@compiled
def stands(one, s, c, levels, plan):
    """Lateness has stood for long, and what faded of the time before does not make it less than gross."""
    recent, gross = one.recent[s, c], GROSS * plan.clauses[c].null_mean
    return one.standing_s[s, c] >= levels.standing_after_s[c] and recent[OVER] >= gross * recent[COUNT]
