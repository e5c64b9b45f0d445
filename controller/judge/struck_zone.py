"""Kernels of which nothing is known, in a zone that fails: they are presumed to fail as the others in it do.

Where replicas of two kernels in one zone are out because they fail, and of no other zone
(``whose_failures.struck_zones``), whoever looks for a place for their traffic finds idle kernels clean:
nobody has asked them for anything. If enough of an idle kernel stands in that zone to break a clause on
failures at the rate of those that are out, the kernel breaks it, wherever the gateway has counted too little
to know better. That holds while they are out, and what the kernel's replicas have shown goes first.
"""

from __future__ import annotations

import numpy as np

from controller.cells import kernel_count
from controller.detect.clauses import applies, failing_clauses
from controller.detect.sums import COUNT, OVER, Sums, excess_of_sums
from controller.judge.capped import Capped
from controller.judge.departures import Case, Flags
from controller.judge.quarantine_pass import ERRORS
from controller.judge.whose_failures import struck_zones
from controller.state import ControllerState, speaks_for_nobody


def presumed_failing(state: ControllerState, counted: Sums, case: Case) -> Capped | None:
    """Of ``state`` after quarantine; counted: [B, K, S, C, 4], what the gateway knows; None: nobody."""
    out = state.quarantined & (state.quarantine_reason == ERRORS)
    if not bool(out.any()):
        return None
    zone = struck_zones(out, case)
    serving = zone & case.ready & ~speaks_for_nobody(state)
    if not bool(serving.any()):
        return None
    contract = case.setup.contract
    excess = np.zeros((*counted.shape[:2], 1, counted.shape[3]))
    places = failing_clauses(contract)
    excess[..., 0, places] = excess_of_sums(_as_the_others(out & zone, serving, state, case), contract)[
        ..., places
    ]
    told = counted[..., COUNT] < contract.min_samples
    alarm = (excess > 0.0) & told & applies(contract)
    return Capped(alarm, np.broadcast_to(excess, alarm.shape)) if bool(alarm.any()) else None


def _as_the_others(out: Flags, serving: Flags, state: ControllerState, case: Case) -> Sums:
    """[B, K, C, 4], one observation of every replica in rotation: of those ``serving`` [B, R] in the zone who
    have shown too little the share that failed of those ``out`` [B, R], of all others none.
    """
    shown = case.verdicts.replicas.judged.sum(axis=2)
    those = np.where(out[:, :, None, None], shown, 0.0).sum(axis=1)
    share = those[..., OVER] / np.maximum(those[..., COUNT], 1.0)
    unknown = serving[:, :, None] & (shown[..., COUNT] < case.setup.contract.min_samples)
    rotation = case.ready & ~speaks_for_nobody(state)
    sums = np.zeros((len(out), case.kernels, shown.shape[2], 4))
    sums[..., COUNT] = kernel_count(rotation, case.owner, case.kernels)[:, :, None]
    sums[..., 1:] = (kernel_count(unknown, case.owner, case.kernels) * share[:, None])[..., None]
    return sums
