"""Compiled loops of what is no evidence against a kernel: what it does late while it has too much to do."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.jit import compiled


class Overload(NamedTuple):
    """Whose late answers are no evidence."""

    overloaded_at_s: NDArray[np.float64]  # [B, K], last overloaded, or brought more traffic by a move of ours
    now_s: NDArray[np.float64]  # [B]
    owner: NDArray[np.int64]  # [R], kernel of each replica
    window_s: float  # for so long after an overload


@compiled
def counting_shares(attempts_failed, attempts_late, overload):
    """Of each kernel's failed attempts [B, K] the share that is evidence: all, but what an overloaded one did
    not answer in time. Both counts: int64 [B, S, K].
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
    """Drop ``latency`` clauses of subjects whose kernel ``owner`` [U] is, or within ``window_s`` was,
    overloaded.
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
    """Nobody of ``failing_now`` [B, R] fails whose kernel is overloaded and only late: a row of answers that
    did not come in time says how much there is to do. Both counts: int64 [B, S, K].
    """
    overload = Overload(*overload)
    counting = counting_shares(attempts_failed, attempts_late, overload)
    for b in range(failing_now.shape[0]):
        for r in range(failing_now.shape[1]):
            failing_now[b, r] &= counting[b, overload.owner[r]] > 0.0
