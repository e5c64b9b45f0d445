"""Until when kernels are down, kernel by kernel, by the text of ``controller.judge.kernels.outage``."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contracts.telemetry import FleetTelemetry, ProbeOutcome, ReplicaState
from controller.fleet import Stage
from controller.options import ControllerSetup
from controller.state import ControllerState

Flags = NDArray[np.bool_]


def plain_outages(
    after: ControllerState, down: Flags, failing: Flags, seen: FleetTelemetry, setup: ControllerSetup
) -> NDArray[np.float64]:
    """``down_until_at_s`` [B, K]; ``down`` and ``failing``: bool [B, R], right now and in a row."""
    until_at_s, early = after.down_until_at_s.copy(), after.early_returns.copy()
    answered: dict[tuple[int, int], int] = {}
    wait_s = setup.options.readmit_after_s
    for b, k in np.ndindex(until_at_s.shape):
        now_s = after.now_s[b]
        serving = (seen.replica_state[b] == ReplicaState.READY) & ~after.quarantined[b]
        mine = np.flatnonzero(serving & (setup.layout.replica_kernel == k))
        if down[b, mine].any() and (down | failing)[b, mine].all():
            if until_at_s[b, k] + wait_s < now_s:
                early[b, k] = 0
            until_at_s[b, k] = now_s + wait_s
        answers, bad = _attempts(b, mine, seen)
        answered[b, k] = 0 if bad or down[b, mine].any() else int(after.answers_in_a_row[b, k]) + answers
    still = until_at_s > after.now_s[:, None]
    for b, k in np.argwhere(still):
        least = setup.options.failing_after * 2 ** min(int(early[b, k]), 3)
        missed = after.table[b, :, -1].any() or after.table[b, :, :-1][:, still[b]].any()
        stages, most = setup.fleet.stage, setup.options.limits.canary_most_ratio
        if stages is not None:
            for other in np.flatnonzero(stages == Stage.CANARY):
                missed |= (after.table[b, :, other] > most + 1e-9).any()
        if missed and answered[b, k] >= least:
            until_at_s[b, k] = after.now_s[b]
    return until_at_s


def _attempts(b: int, mine: NDArray[np.int64], seen: FleetTelemetry) -> tuple[int, bool]:
    """How many attempts of these replicas were answered, and whether one was not."""
    outcome = seen.probes.outcome[b, np.isin(seen.probes.replica[b], mine)]
    answers = int(seen.answered[b, mine].sum() + (outcome == ProbeOutcome.ANSWERED).sum())
    known = ~np.isin(outcome, (ProbeOutcome.NONE, ProbeOutcome.UNREADABLE))
    refused = known & (outcome != ProbeOutcome.ANSWERED)
    return answers, bool(refused.any() or seen.failed[b, mine].any())
