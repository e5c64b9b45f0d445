"""Compiled loop: evidence that one kernel fails more of its attempts than another. Fleets are independent."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.jit import borrowed, compiled
from controller.judge.replicas.attempts_pass import odds_ratio

#: Evidence from which a kernel is at fault. Chance alone reaches it once in this many ticks with failures:
#: twelve days at one tick per second.
AT_FAULT = 1e6
#: Evidence below which a kernel is no longer at fault.
SAME = 1e3
#: Upper bound of the evidence, so that it falls as soon as failure rates are equal again.
MOST = 20.0 * AT_FAULT
#: Upper bound of the e-value of one tick. Failures also come in bursts: all requests of a hung server fail at
#: once, and a whole queue is late at once. With this bound, three ticks never put a kernel at fault.
MOST_OF_A_TICK = 99.0
#: Assumed ticks per burst where failures come only in bursts. Ticks without failures lower the evidence by
#: what a burst adds on average.
BURST_TICKS = 500.0


class Sides(NamedTuple):
    """Attempts of each kernel in one tick."""

    ended: NDArray[np.float64]  # [B, K], ended attempts
    failed: NDArray[np.float64]  # [B, K], failed attempts among them
    able: NDArray[np.bool_]  # [B, K], the kernel could take traffic from another one


@compiled
def follow_evidence(more, sides):
    """Update ``more`` [B, K, K + 1] by one tick, in place.

    Column j compares with kernel j; the last column compares with all able kernels together.
    """
    sides = borrowed(Sides(*sides))
    ended, failed, able = sides.ended, sides.failed, sides.able
    fleets, kernels = ended.shape
    for b in range(fleets):
        if not failed[b].any() and not more[b].any():
            continue
        for k in range(kernels):
            all_ended, all_failed = 0.0, 0.0
            for j in range(kernels):
                if j != k and able[b, j]:
                    all_ended += ended[b, j]
                    all_failed += failed[b, j]
                    _add(more, b, k, j, ended[b, k], failed[b, k], ended[b, j], failed[b, j])
            _add(more, b, k, kernels, ended[b, k], failed[b, k], all_ended, all_failed)


@compiled
def _add(more, b, k, j, ended, failed, other_ended, other_failed):
    """Update one sum over start times of products of clipped e-values (Huber 1965).

    A tick without failures multiplies the evidence by less than 1: by so much that bursts once in
    ``BURST_TICKS`` ticks do not make it grow on average.
    """
    if ended == 0.0 or other_ended == 0.0 or failed + other_failed + more[b, k, j] == 0.0:
        return
    most = min(odds_ratio(ended, ended, other_ended, 0.0), MOST_OF_A_TICK)
    if failed + other_failed == 0.0:
        more[b, k, j] *= (BURST_TICKS - most) / (BURST_TICKS - 1.0)
        return
    e_value = min(odds_ratio(ended, failed, other_ended, other_failed), most)
    more[b, k, j] = min((more[b, k, j] + 1.0) * e_value, MOST)
