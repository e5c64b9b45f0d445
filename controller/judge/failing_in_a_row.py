"""Failures in a row that chance explains: where most of the fleet fails, rows of failures are its luck.

A gateway takes a replica out after so many failures in a row, because a healthy fleet has none. Where every
replica fails a fifth of its attempts, five in a row come by once in minutes, and where it is nine tenths they
never end; who is taken out then leaves the others fuller and no better. So a row counts only if somebody who
fails no more than all others do, together, would hardly have it: their share to the power of its length is
below ``CHANCE``. Where nobody else fails every row counts, as ever.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from controller.judge.departures import Case

#: Of a row as long from a given attempt on: a busy replica begins one a million times a day.
CHANCE = 1e-6
#: Answers per second that the others are taken to give beside what they did: few attempts say little.
_PRIOR_RPS = 0.5


def telling_rows(case: Case) -> NDArray[np.int64]:
    """int64 [B, R], failures in a row of each replica; 0 where chance explains them."""
    state, rows = case.estimate.state, np.ascontiguousarray(case.telemetry.consecutive_failed)
    if not bool((rows >= case.setup.options.failing_after).any()):
        return rows
    serving = case.ready & ~state.quarantined
    failed_rps = np.where(serving, state.failed_rps, 0.0)
    ended_rps = np.where(serving, state.answered_rps, 0.0) + failed_rps
    others_rps = ended_rps.sum(axis=1, keepdims=True) - ended_rps + _PRIOR_RPS
    share = np.clip((failed_rps.sum(axis=1, keepdims=True) - failed_rps) / others_rps, 0.0, 1.0)
    return np.where(share ** np.maximum(rows, 1) < CHANCE, rows, 0)
