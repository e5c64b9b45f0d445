"""When a kernel that failed or hung as a whole is down, and when it is up again.

A kernel is down while every replica in rotation fails or hangs, and ``readmit_after_s`` longer: without
traffic it has no failures, and its slices would come back at the next tick.

Where something is shed meanwhile, or rests on a kernel that is down, nobody is better off for the wait, nor
where a canary has more than its bound because nobody else was left: it is there to be tried with little. Then
the kernel is up as soon as those in rotation have answered as many attempts in a row, requests and probes, as
failures in a row take a replica out, and none of them hangs. Who goes down again within ``readmit_after_s``
of that has to answer twice as many the next time, up to ``DOUBLED_RETURNS`` times.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.telemetry import ProbeOutcome
from controller.cells import kernel_count, some_in
from controller.fleet import Stage
from controller.judge.kernels.judge_pass import Failing, note_down
from controller.judge.replicas.departures import Case, Flags
from controller.judge.replicas.failing_in_a_row import telling_rows
from controller.shield.capacity import SLACK
from controller.state import ControllerState

_ANSWERED = int(ProbeOutcome.ANSWERED)
#: Neither answered nor unanswered: nobody knows, or an answer that nobody can read.
_NONE, _UNREADABLE = int(ProbeOutcome.NONE), int(ProbeOutcome.UNREADABLE)

#: Early returns in vain that still double what has to be answered.
DOUBLED_RETURNS = 3


class Outages(NamedTuple):
    """Until when kernels are down, and what their return stands on."""

    down_until_at_s: NDArray[np.float64]  # [B, K]
    answers_in_a_row: NDArray[np.int64]  # [B, K], of attempts since the last sign of failure, while down
    early_returns: NDArray[np.int64]  # [B, K], in a row, each soon followed by the next outage


def follow_outages(state: ControllerState, down: Flags, case: Case) -> Outages:
    """What this tick says of ``state`` after quarantine; ``down``: bool [B, R], failing or hung right now."""
    before = Outages(state.down_until_at_s, state.answers_in_a_row, state.early_returns)
    out = before.down_until_at_s > state.now_s[:, None]
    if not (some_in(down) or some_in(out) or some_in(before.answers_in_a_row)):
        return before
    failing = Failing(
        replica_state=np.ascontiguousarray(case.telemetry.replica_state),
        quarantined=state.quarantined,
        down=down,
        consecutive_failed=telling_rows(case),
    )
    return _up_by_answers(_down(before, failing, case), state, case)


def _down(before: Outages, failing: Failing, case: Case) -> Outages:
    """Who goes down in this tick, or stays so, counted from now."""
    options, now_s = case.setup.options, case.estimate.state.now_s
    until_at_s, early = before.down_until_at_s.copy(), before.early_returns.copy()
    after_s = options.readmit_after_s
    note_down(until_at_s, now_s, failing, options.failing_after, after_s, case.owner)
    forgotten = (until_at_s > now_s[:, None]) & (now_s[:, None] - before.down_until_at_s > after_s)
    early[forgotten] = 0
    answers = _in_a_row(before.answers_in_a_row, failing, case)
    return Outages(until_at_s, np.where(until_at_s > now_s[:, None], answers, 0), early)


def _up_by_answers(found: Outages, state: ControllerState, case: Case) -> Outages:
    """``found`` with those up that answered enough, where somebody needs them; in place."""
    now_s = state.now_s[:, None]
    out = found.down_until_at_s > now_s
    least = case.setup.options.failing_after * 2 ** np.minimum(found.early_returns, DOUBLED_RETURNS)
    back = out & (found.answers_in_a_row >= least) & _missed(state.table, out, case)
    found.down_until_at_s[back] = np.broadcast_to(now_s, back.shape)[back]
    found.early_returns[back] += 1
    return found


def _missed(table: NDArray[np.float64], out: Flags, case: Case) -> Flags:
    """bool [B, 1]: something of ``table`` [B, S, K + 1] is shed, sent to who is ``out`` [B, K], or more of it
    to a canary than its bound.
    """
    served, stage = table[:, :, :-1], case.setup.fleet.stage
    canary = False if stage is None else stage == int(Stage.CANARY)
    most = np.where(canary, case.setup.options.limits.canary_most_ratio + SLACK, np.inf)
    badly = ((served > 0.0) & out[:, None]) | (served > most)
    return np.asarray((table[:, :, -1] > 0.0).any(axis=1) | badly.any(axis=(1, 2)))[:, None]


def _in_a_row(so_far: NDArray[np.int64], failing: Failing, case: Case) -> NDArray[np.int64]:
    """int64 [B, K]: answered attempts of those in rotation, after ``so_far``; 0 after one that was not, and
    while somebody hangs.
    """
    serving, probes = case.ready & ~failing.quarantined, case.telemetry.probes
    answers, unanswered = np.zeros((2, *serving.shape), dtype=np.int64)
    fleet, slot = np.nonzero((probes.outcome != _NONE) & (probes.outcome != _UNREADABLE))
    answered = probes.outcome[fleet, slot] == _ANSWERED
    at = fleet, probes.replica[fleet, slot]
    np.add.at(answers, at, answered)
    np.add.at(unanswered, at, ~answered)
    bad = serving & (failing.down | (case.telemetry.failed > 0) | (unanswered > 0))
    whole = so_far + _by_kernel(np.where(serving, answers + case.telemetry.answered, 0), case)
    return np.where(kernel_count(bad, case.owner, case.kernels) > 0, 0, whole)


def _by_kernel(counts: NDArray[np.int64], case: Case) -> NDArray[np.int64]:
    """int64 [B, K]: the sum of ``counts`` [B, R] over the replicas of each kernel."""
    found = np.zeros((case.kernels, len(counts)), dtype=np.int64)
    np.add.at(found, case.owner, counts.T)
    return found.T
