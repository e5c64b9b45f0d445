"""Who falls ill again and again: trusted once it has been well for longer than it was before.

A replica that dies or is quarantined after a long time comes back as soon as it is up and healthy. One that
was well for minutes only (a crash loop, a host that hangs or throttles now and then) takes requests down with
it each time, so it stays out of rotation, running and probed, until it has been well for ``TRUST`` times as
long as the last time. Well is who is up and, while in quarantine, shows none of what it went for. So a fault
that comes and goes at a steady pace is seen to come again before its replica is back, if anything shows it
there; otherwise each stay is longer than the last.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from contracts.telemetry import ReplicaState
from controller.judge.departures import Case, Flags
from controller.state import ControllerState

#: Present time of being well over the last one from which a replica is trusted again.
TRUST = 1.5
#: A time longer than this is a long one: nobody waits for the next illness.
LONG_S = 600.0
#: Not well.
NOT_WELL_S = np.inf


def follow_health(ill: Flags, case: Case) -> dict[str, Any]:
    """``well_since_at_s`` and ``was_well_s`` of the state after this tick; what ends by draining was no
    illness.

    ill: bool [B, R], in quarantine and shows what it went for. Replicas that are up when the controller
    starts have been well for ever.
    """
    state = case.estimate.state
    was_well, well, now_s = state.well_since_at_s < NOT_WELL_S, case.ready & ~ill, state.now_s[:, None]
    if not bool((was_well != well).any()):
        return {}
    planned = np.isin(case.telemetry.replica_state, (int(ReplicaState.DRAINING), int(ReplicaState.ABSENT)))
    time_s = now_s - state.well_since_at_s
    fell_ill = was_well & ~well & ~planned
    was_well_s = np.where(fell_ill, np.where(time_s <= LONG_S, time_s, 0.0), state.was_well_s)
    began = np.where(state.ticks[:, None] <= 1, -np.inf, now_s)
    well_since_at_s = np.where(well, np.where(was_well, state.well_since_at_s, began), NOT_WELL_S)
    return {"well_since_at_s": well_since_at_s, "was_well_s": was_well_s}


def relapsing(state: ControllerState) -> Flags | None:
    """bool [B, R]: well, but not yet for long enough after a short time; None: nobody ever had one."""
    if not bool(state.was_well_s.any()):
        return None
    well_s = state.now_s[:, None] - state.well_since_at_s
    return np.asarray((well_s >= 0.0) & (well_s < TRUST * state.was_well_s))
