"""Failures in a row that chance explains: where most of the fleet fails, rows of failures are its luck.

A gateway takes a replica out after so many failures in a row, because a healthy fleet has none. Where every
replica fails a fifth of its attempts, five in a row come by once in minutes, and where it is nine tenths they
never end; who is taken out then leaves the others fuller and no better. So a row counts only if somebody who
fails no more than all others do, together, would hardly have it: their share to the power of its length is
below ``CHANCE``. Where nobody else fails every row counts, as ever. Their share is that of this tick or of
the seconds before, whichever is larger: a row grows from the first failure on.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from controller.judge.departures import Case, Flags

#: Of a row as long from a given attempt on: a busy replica begins one a million times a day.
CHANCE = 1e-6
#: Answers, or answers per second, that the others are taken to give beside what they did: few attempts say
#: little.
_PRIOR = 0.5


def telling_rows(case: Case) -> NDArray[np.int64]:
    """int64 [B, R], failures in a row of each replica; 0 where chance explains them."""
    state, rows = case.estimate.state, np.ascontiguousarray(case.telemetry.consecutive_failed)
    if not bool((rows >= case.setup.options.failing_after).any()):
        return rows
    serving = case.ready & ~state.quarantined
    of_late = _share_of_others(state.failed_rps, state.answered_rps, serving)
    now = _share_of_others(case.telemetry.failed, case.telemetry.answered, serving)
    return np.where(np.maximum(of_late, now) ** np.maximum(rows, 1) < CHANCE, rows, 0)


def _share_of_others(
    failed: NDArray[np.floating | np.integer], answered: NDArray[np.floating | np.integer], serving: Flags
) -> NDArray[np.float64]:
    """float64 [B, R], share of the attempts of all ``serving`` others that failed, by rates or counts."""
    failed, ended = np.where(serving, failed, 0.0), np.where(serving, answered + failed, 0.0)
    others = ended.sum(axis=1, keepdims=True) - ended + _PRIOR
    return np.asarray(np.clip((failed.sum(axis=1, keepdims=True) - failed) / others, 0.0, 1.0))
