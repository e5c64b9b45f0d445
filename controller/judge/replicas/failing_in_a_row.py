"""Failures in a row that chance explains: where most of the fleet fails, rows of failures are its luck.

A gateway takes a replica out after so many failures in a row, because a healthy fleet has none. Where every
replica fails a fifth of its attempts, five in a row come by once in minutes, and where it is nine tenths they
never end; who is taken out then leaves the others fuller and no better. So a row counts only if somebody who
fails no more than all others do, together, would hardly have it: their share to the power of its length is
below ``CHANCE``. Where nobody else fails every row counts, as ever. Their share is that of this tick or of
the seconds before, whichever is larger: a row grows from the first failure on.

Who fails a share of its requests has rows as well, long ones in a burst, because failures come at once and
answers take their time. But its failures were followed by answers again and again, and those of a replica
that died by none: where as many were of late as stand in the row, it fails and is not down. It goes like all
that fail a share, while the fleet can spare it (``judge.sparing``).

The first row of a burst has nothing before it, and neither has one right after a return, when nobody is at
work yet. Then what comes after it tells: a replica that died answers no more, and who answers one of the
requests that it still holds, out of rotation, is not down either. From then on it is away for its failures.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from controller.cells import some_in
from controller.judge.replicas.departures import Case, Flags
from controller.judge.replicas.quarantine_pass import ERRORS, FAILING, Bench

#: Of a row as long from a given attempt on: a busy replica begins one a million times a day.
CHANCE = 1e-6
#: Answers, or answers per second, that the others are taken to give beside what they did: few attempts say
#: little.
_PRIOR = 0.5


def telling_rows(case: Case) -> NDArray[np.int64]:
    """int64 [B, R], failures in a row of each replica; 0 where the others or its own before explain them."""
    rows = np.ascontiguousarray(case.telemetry.consecutive_failed)
    if not some_in(rows >= case.setup.options.failing_after):
        return rows
    return np.where(_by_others(rows, case) | _by_itself(rows, case), 0, rows)


def failing_between_answers(case: Case) -> Flags:
    """bool [B, R]: fails in a row, more than the others explain and no more than it fails anyway."""
    rows = case.telemetry.consecutive_failed
    found = np.asarray(case.estimate.failing_now & (rows >= case.setup.options.failing_after))
    if some_in(found):
        found &= _by_itself(rows, case) & ~_by_others(rows, case)
    return found


def note_answers_after(bench: Bench, case: Case) -> Flags:
    """bool [B, R]: went for a row of failures and has answered since; away for its failures from now on, in
    place.

    bench: of this tick; who went in this tick has had no time to answer.
    """
    state = case.estimate.state
    went = state.quarantined & (state.quarantine_reason == FAILING) & bench.quarantined
    answers = np.asarray(went & (case.telemetry.answered > 0))
    bench.reason[answers] = ERRORS
    return answers


def _by_itself(rows: NDArray[np.int64], case: Case) -> Flags:
    """bool [B, R]: as many of its failures of late were followed by an answer as stand in the row."""
    of_late = case.estimate.state.failed_rps * case.setup.options.smoothing_s
    return np.asarray(np.maximum(of_late, case.telemetry.failed) - rows >= np.maximum(rows, 1))


def _by_others(rows: NDArray[np.int64], case: Case) -> Flags:
    """bool [B, R]: chance explains the row of somebody who fails no more than all others do."""
    state, seen = case.estimate.state, case.telemetry
    serving = case.ready & ~state.quarantined
    of_late = _share_of_others(state.failed_rps, state.answered_rps, serving)
    now = _share_of_others(seen.failed, seen.answered, serving)
    return np.asarray(np.maximum(of_late, now) ** np.maximum(rows, 1) >= CHANCE)


def _share_of_others(
    failed: NDArray[np.floating | np.integer], answered: NDArray[np.floating | np.integer], serving: Flags
) -> NDArray[np.float64]:
    """float64 [B, R], share of the attempts of all ``serving`` others that failed, by rates or counts."""
    failed, ended = np.where(serving, failed, 0.0), np.where(serving, answered + failed, 0.0)
    others = ended.sum(axis=1, keepdims=True) - ended + _PRIOR
    return np.asarray(np.clip((failed.sum(axis=1, keepdims=True) - failed) / others, 0.0, 1.0))
