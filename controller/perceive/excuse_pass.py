"""Compiled loops that remove late answers of overloaded kernels from the evidence."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.jit import compiled


class Overload(NamedTuple):
    """Kernels whose late answers are no evidence against them."""

    overloaded_at_s: NDArray[np.float64]  # [B, K], last overload, or last of our moves that added traffic
    now_s: NDArray[np.float64]  # [B]
    owner: NDArray[np.int64]  # [R], kernel of each replica
    window_s: float  # time after an overload during which late answers are excused


@compiled
def counting_shares(attempts_failed, attempts_late, overload):
    """Share of each kernel's failed attempts that is evidence, float64 [B, K].

    It is 1, but timeouts of an overloaded kernel do not count. Both counts: int64 [B, S, K].
    """
    counting = np.ones(overload.overloaded_at_s.shape)
    for b in range(counting.shape[0]):
        for k in range(counting.shape[1]):
            if overload.now_s[b] - overload.overloaded_at_s[b, k] < overload.window_s:
                failed, late = attempts_failed[b, :, k].sum(), attempts_late[b, :, k].sum()
                counting[b, k] = 1.0 - late / failed if failed > 0 else 1.0
    return counting


@compiled
def excuse_overloaded(sums, overload, owner, latency):
    """Clear the ``latency`` clauses in ``sums`` [B, U, S, C, 4] of subjects with an overloaded kernel.

    owner: int64 [U], kernel of each subject. An overload within the last ``window_s`` counts too.
    """
    now_s = overload.now_s
    for b in range(sums.shape[0]):
        for u in range(len(owner)):
            if now_s[b] - overload.overloaded_at_s[b, owner[u]] < overload.window_s:
                for s in range(sums.shape[2]):
                    for c in latency:
                        for x in range(sums.shape[4]):
                            sums[b, u, s, c, x] = 0.0


@compiled
def excuse_failing(failing_now, attempts_failed, attempts_late, overload):
    """Clear ``failing_now`` [B, R] where the kernel is overloaded and all of its failures are timeouts.

    A run of timeouts then shows load, not a faulty replica. Both counts: int64 [B, S, K].
    """
    overload = Overload(*overload)
    counting = counting_shares(attempts_failed, attempts_late, overload)
    for b in range(failing_now.shape[0]):
        for r in range(failing_now.shape[1]):
            failing_now[b, r] &= counting[b, overload.owner[r]] > 0.0
