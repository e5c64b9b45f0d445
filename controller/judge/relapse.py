"""Who dies again and again: trusted once it has stayed up longer than it lived before it last died.

A replica that dies after a long life comes back as soon as discovery finds it ready. One that lived for
minutes (a crash loop, a host that resets itself) takes requests down with it each time, so after its return
it stays out of rotation, running and probed, until its present life is ``TRUST`` times its last one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from contracts.telemetry import ReplicaState
from controller.judge.departures import Case, Flags
from controller.state import ControllerState

#: Present life over the last one from which a replica is trusted again.
TRUST = 1.5
#: A life longer than this is a long one: nobody waits for the next death.
LONG_S = 600.0
#: Not up: no life has begun.
NOT_UP_S = np.inf


def follow_lives(case: Case) -> dict[str, Any]:
    """``up_since_s`` and ``lived_s`` of the state after this tick; what ends by draining was no death.

    Replicas that are up when the controller starts have lived for ever.
    """
    state = case.estimate.state
    was_up, now_s = state.up_since_s < NOT_UP_S, state.now_s[:, None]
    changed = was_up != case.ready
    if not bool(changed.any()):
        return {}
    planned = np.isin(case.telemetry.replica_state, (int(ReplicaState.DRAINING), int(ReplicaState.ABSENT)))
    life_s = now_s - state.up_since_s
    died = was_up & ~case.ready & ~planned
    lived_s = np.where(died, np.where(life_s <= LONG_S, life_s, 0.0), state.lived_s)
    began = np.where(state.ticks[:, None] <= 1, -np.inf, now_s)
    up_since_s = np.where(case.ready, np.where(was_up, state.up_since_s, began), NOT_UP_S)
    return {"up_since_s": up_since_s, "lived_s": lived_s}


def relapsing(state: ControllerState) -> Flags | None:
    """bool [B, R]: up, but not yet for long enough after a short life; None: nobody ever had one."""
    if not bool(state.lived_s.any()):
        return None
    up_s = state.now_s[:, None] - state.up_since_s
    return np.asarray((up_s >= 0.0) & (up_s < TRUST * state.lived_s))
