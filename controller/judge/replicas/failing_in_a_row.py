"""Consecutive failures of a replica, and whether the fleet's failure rate or its own explains them.

A gateway ejects a replica after a number of consecutive failures, because a healthy fleet has none. If every
replica fails a fifth of its attempts, five consecutive failures occur every few minutes; at nine tenths, runs
never end. Ejecting a replica then leaves the others more loaded and no healthier. So a run of failures counts
only if it is improbable for a replica that fails as much as all others together: their failure ratio to the
power of the run's length must be below ``CHANCE``. If no other replica fails, every run counts. The failure
ratio of the others is that of this tick or of the preceding seconds, whichever is larger, because a run grows
from its first failure on.

A replica that fails a share of its requests also has runs, and long ones in a burst, because failures return
at once while answers take time. But answers follow its failures again and again, and no answer follows those
of a crashed replica. So a replica whose recent failures before the run are at least as many as those in the
run is failing, not down. It is ejected like every replica with a high failure ratio: only while the fleet can
spare it (``judge.sparing``).

The first run of a burst has no failures before it, nor has a run right after a return to rotation. Then the
time after the run decides: a crashed replica answers no more. A replica that, out of rotation, still answers
a request that it holds is not down either. From then on its quarantine has the reason ``ERRORS``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from controller.cells import some_in
from controller.judge.replicas.departures import Case, Flags
from controller.judge.replicas.quarantine_pass import ERRORS, FAILING, Bench

#: Probability below which a run counts. It is that of a run as long from a given attempt on; a busy replica
#: has about a million attempts a day.
CHANCE = 1e-6
#: Prior answers of the others (a count, or per second), because few attempts are little evidence.
_PRIOR = 0.5


def consecutive_failures(case: Case) -> NDArray[np.int64]:
    """int64 [B, R], consecutive failures of each replica; 0 where a failure rate explains them.

    That is the failure ratio of the other replicas, or the replica's own recent failures.
    """
    runs = np.ascontiguousarray(case.telemetry.consecutive_failed)
    if not some_in(runs >= case.setup.options.failing_after):
        return runs
    return np.where(_explained_by_others(runs, case) | _explained_by_own_failures(runs, case), 0, runs)


def failing_between_answers(case: Case) -> Flags:
    """bool [B, R]: its run of failures exceeds what the others explain, but not its own recent failures."""
    runs = case.telemetry.consecutive_failed
    between = np.asarray(case.estimate.failing_now & (runs >= case.setup.options.failing_after))
    if some_in(between):
        between &= _explained_by_own_failures(runs, case) & ~_explained_by_others(runs, case)
    return between


def note_answers_after_leaving(bench: Bench, case: Case) -> Flags:
    """bool [B, R]: in quarantine for a run of failures, and has answered a request since.

    The reason of its quarantine becomes ``ERRORS``, in place. bench: of this tick. A replica quarantined in
    this tick is left out: it has had no time to answer.
    """
    state = case.estimate.state
    out = state.quarantined & (state.quarantine_reason == FAILING) & bench.quarantined
    answering = np.asarray(out & (case.telemetry.answered > 0))
    bench.reason[answering] = ERRORS
    return answering


def _explained_by_own_failures(runs: NDArray[np.int64], case: Case) -> Flags:
    """bool [B, R]: its recent failures before the run are at least as many as those in the run."""
    recent = case.estimate.state.failed_rps * case.setup.options.smoothing_s
    return np.asarray(np.maximum(recent, case.telemetry.failed) - runs >= np.maximum(runs, 1))


def _explained_by_others(runs: NDArray[np.int64], case: Case) -> Flags:
    """bool [B, R]: the run is no less probable than ``CHANCE`` at the failure ratio of all others."""
    state, telemetry = case.estimate.state, case.telemetry
    serving = case.ready & ~state.quarantined
    recent_ratio = _failed_ratio_of_others(state.failed_rps, state.answered_rps, serving)
    now_ratio = _failed_ratio_of_others(telemetry.failed, telemetry.answered, serving)
    return np.asarray(np.maximum(recent_ratio, now_ratio) ** np.maximum(runs, 1) >= CHANCE)


def _failed_ratio_of_others(
    failed: NDArray[np.floating | np.integer], answered: NDArray[np.floating | np.integer], serving: Flags
) -> NDArray[np.float64]:
    """float64 [B, R], failed share of the attempts of all other ``serving`` replicas, by rates or counts."""
    failed, ended = np.where(serving, failed, 0.0), np.where(serving, answered + failed, 0.0)
    others = ended.sum(axis=1, keepdims=True) - ended + _PRIOR
    return np.asarray(np.clip((failed.sum(axis=1, keepdims=True) - failed) / others, 0.0, 1.0))
