"""Compiled loop of the evidence that one kernel fails more than another; every fleet by itself."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.jit import borrowed, compiled
from controller.judge.replicas.attempts_pass import odds_ratio

#: Evidence from which a kernel is at fault: by chance alone once in so many ticks with failures, twelve days.
AT_FAULT = 1e6
#: Evidence below which it is not any more.
SAME = 1e3
#: Evidence is kept up to here, so that it falls as soon as failures are the same.
MOST = 20.0 * AT_FAULT
#: Failures come in bursts as well: what a hung server held fails at once, a queue is late as a whole. So the
#: evidence of one tick is taken up to here: three ticks put nobody at fault, whatever they bring.
MOST_OF_A_TICK = 99.0
#: One tick in so many is such a burst, where nothing fails but in bursts; the clean ones pay for it.
BURST_TICKS = 500.0


class Sides(NamedTuple):
    """What a tick brought of each kernel."""

    ended: NDArray[np.float64]  # [B, K], attempts
    failed: NDArray[np.float64]  # [B, K], of these
    able: NDArray[np.bool_]  # [B, K], it could take traffic of others


@compiled
def follow_evidence(more, sides):
    """Add a tick to ``more`` [B, K, K + 1]: against each other kernel, and last against all able ones."""
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
    """The sum over starts of products of clipped e-values (Huber 1965). Without failures a tick takes back
    what bursts add on average: so much that evidence does not grow by them.
    """
    if ended == 0.0 or other_ended == 0.0 or failed + other_failed + more[b, k, j] == 0.0:
        return
    most = min(odds_ratio(ended, ended, other_ended, 0.0), MOST_OF_A_TICK)
    if failed + other_failed == 0.0:
        more[b, k, j] *= (BURST_TICKS - most) / (BURST_TICKS - 1.0)
        return
    e_value = min(odds_ratio(ended, failed, other_ended, other_failed), most)
    more[b, k, j] = min((more[b, k, j] + 1.0) * e_value, MOST)
