"""Outages of whole kernels: when a kernel is down, and when it is up again.

A kernel is down while every replica in rotation fails or hangs, and for ``readmit_after_s`` after that.
Without traffic it has no failures, so without this wait its slices would return at the next tick.

The wait helps no user while traffic is shed or still goes to a kernel that is down. The same holds while a
canary carries more than its bound because no other kernel was left: a canary is meant for little traffic. In
these cases the kernel may return early. It is up as soon as its replicas in rotation have answered
``failing_after`` attempts in a row (requests and probes) and none of them hangs. A kernel that goes down
again within ``readmit_after_s`` has to answer twice as many attempts the next time; this doubles up to
``DOUBLED_RETURNS`` times.
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
from controller.judge.replicas.failing_in_a_row import consecutive_failures
from controller.shield.capacity import SLACK
from controller.state import ControllerState

_ANSWERED = int(ProbeOutcome.ANSWERED)
#: Neither answered nor unanswered: no probe, or an answer that cannot be read.
_NONE, _UNREADABLE = int(ProbeOutcome.NONE), int(ProbeOutcome.UNREADABLE)

#: Failed early returns after which the required number of answers stops doubling.
DOUBLED_RETURNS = 3


class Outages(NamedTuple):
    """Kernels that are down, until when, and the progress of their early return."""

    down_until_at_s: NDArray[np.float64]  # [B, K]
    answers_in_a_row: NDArray[np.int64]  # [B, K], answered attempts since the last failure, while down
    early_returns: NDArray[np.int64]  # [B, K], consecutive early returns that a new outage soon followed


def follow_outages(state: ControllerState, down: Flags, case: Case) -> Outages:
    """Outages after this tick; ``state``: after quarantine; ``down``: bool [B, R], failing or hung now."""
    before = Outages(state.down_until_at_s, state.answers_in_a_row, state.early_returns)
    out = before.down_until_at_s > state.now_s[:, None]
    if not (some_in(down) or some_in(out) or some_in(before.answers_in_a_row)):
        return before
    failing = Failing(
        replica_state=np.ascontiguousarray(case.telemetry.replica_state),
        quarantined=state.quarantined,
        down=down,
        consecutive_failed=consecutive_failures(case),
    )
    return _up_by_answers(_down(before, failing, case), state, case)


def _down(before: Outages, failing: Failing, case: Case) -> Outages:
    """Outages with the kernels that go down or stay down in this tick; the wait counts from now."""
    options, now_s = case.setup.options, case.estimate.state.now_s
    until_at_s, early = before.down_until_at_s.copy(), before.early_returns.copy()
    after_s = options.readmit_after_s
    note_down(until_at_s, now_s, failing, options.failing_after, after_s, case.owner)
    forgotten = (until_at_s > now_s[:, None]) & (now_s[:, None] - before.down_until_at_s > after_s)
    early[forgotten] = 0
    answers = _in_a_row(before.answers_in_a_row, failing, case)
    return Outages(until_at_s, np.where(until_at_s > now_s[:, None], answers, 0), early)


def _up_by_answers(outages: Outages, state: ControllerState, case: Case) -> Outages:
    """``outages`` without the kernels that answered enough and whose capacity is needed; in place."""
    now_s = state.now_s[:, None]
    out = outages.down_until_at_s > now_s
    least = case.setup.options.failing_after * 2 ** np.minimum(outages.early_returns, DOUBLED_RETURNS)
    back = out & (outages.answers_in_a_row >= least) & _capacity_needed(state.table, out, case)
    outages.down_until_at_s[back] = np.broadcast_to(now_s, back.shape)[back]
    outages.early_returns[back] += 1
    return outages


def _capacity_needed(table: NDArray[np.float64], out: Flags, case: Case) -> Flags:
    """bool [B, 1]: the fleet needs the capacity of a kernel that is down.

    ``table`` [B, S, K + 1] sheds traffic, sends some to a kernel that is ``out`` [B, K], or sends a canary
    more than its bound.
    """
    served, stage = table[:, :, :-1], case.setup.fleet.stage
    canary = False if stage is None else stage == int(Stage.CANARY)
    most = np.where(canary, case.setup.options.limits.canary_most_ratio + SLACK, np.inf)
    misplaced = ((served > 0.0) & out[:, None]) | (served > most)
    return np.asarray((table[:, :, -1] > 0.0).any(axis=1) | misplaced.any(axis=(1, 2)))[:, None]


def _in_a_row(so_far: NDArray[np.int64], failing: Failing, case: Case) -> NDArray[np.int64]:
    """int64 [B, K]: attempts in a row that replicas in rotation answered, continued from ``so_far``.

    0 after an unanswered attempt, and while a replica hangs.
    """
    serving, probes = case.ready & ~failing.quarantined, case.telemetry.probes
    answers, unanswered = np.zeros((2, *serving.shape), dtype=np.int64)
    fleet, slot = np.nonzero((probes.outcome != _NONE) & (probes.outcome != _UNREADABLE))
    answered = probes.outcome[fleet, slot] == _ANSWERED
    at = fleet, probes.replica[fleet, slot]
    np.add.at(answers, at, answered)
    np.add.at(unanswered, at, ~answered)
    bad = serving & (failing.down | (case.telemetry.failed > 0) | (unanswered > 0))
    total = so_far + _by_kernel(np.where(serving, answers + case.telemetry.answered, 0), case)
    return np.where(kernel_count(bad, case.owner, case.kernels) > 0, 0, total)


def _by_kernel(counts: NDArray[np.int64], case: Case) -> NDArray[np.int64]:
    """int64 [B, K]: the sum of ``counts`` [B, R] over the replicas of each kernel."""
    totals = np.zeros((case.kernels, len(counts)), dtype=np.int64)
    np.add.at(totals, case.owner, counts.T)
    return totals.T
