"""When a replica may come back: after repeated faults, and after slowness.

*Repeated faults.* A fault that went away by itself often comes again (a crash loop, a host that hangs or
throttles now and then, a memory cell that fails when it is warm), and fails requests each time. So a replica
that died or was quarantined stays out of rotation, running and probed, until it has been healthy for
``CAUTION`` windows, and after a short healthy time for ``TRUST`` times as long as that was. Healthy means:
up, and without the symptom for which it was removed. A fault that comes and goes at a steady pace is
therefore seen again before its replica is back, if probes show it; otherwise each stay is longer than the
last. Such a replica is *relapsed*. It comes back at once when the others are short (``sparing``), when an
unhealthy one needs its place in quarantine, or when no replica of its kernel is trusted, because a fault that
struck all replicas says nothing about one of them.

*Slow replicas.* A replica out of rotation shows no clock, so each return is a trial. A trial costs requests,
so a slow replica waits longer than others before it, and longer each time. The replicas of a slow zone would
all be slow again at once: one of them comes back first, and the others once a replica of the zone has been
fast for a window, or ``PATIENCE`` windows after the last return if there is no evidence. If the first is slow
again, the others wait as if they had been seen slow themselves.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from contracts.telemetry import ReplicaState
from controller.cells import kernel_count, some_in
from controller.detect.clauses import moves_traffic
from controller.judge.replicas.departures import Case, Flags
from controller.judge.replicas.own_clock import healthy_clocks, zones_of
from controller.judge.replicas.quarantine_pass import MOST_BACKOFF, SLOW, ZONE, Bench
from controller.state import ControllerState

# Plain integers: comparing with an enumeration takes longer.
_DRAINING, _ABSENT = int(ReplicaState.DRAINING), int(ReplicaState.ABSENT)
#: Ratio of the present healthy time to the previous one from which a replica is trusted again.
TRUST = 1.5
#: A healthy time longer than this does not predict the next one.
LONG_S = 600.0
#: Least healthy time after a fault, in windows.
CAUTION = 5.0
#: ``well_since_at_s`` of a replica that is unhealthy.
NOT_WELL_S = np.inf


def follow_health(unhealthy: Flags, case: Case) -> dict[str, Any]:
    """``well_since_at_s`` and ``was_well_s`` of the state after this tick.

    unhealthy: bool [B, R], in quarantine and with the symptom for which it was removed; draining is no fault.
    Replicas that are up when the controller starts count as healthy since ever.
    """
    state = case.estimate.state
    was_well, well, now_s = state.well_since_at_s < NOT_WELL_S, case.ready & ~unhealthy, state.now_s[:, None]
    if not some_in(was_well != well):
        return {}
    replica_state = case.telemetry.replica_state
    planned = (replica_state == _DRAINING) | (replica_state == _ABSENT)
    time_s = now_s - state.well_since_at_s
    became_unhealthy = was_well & ~well & ~planned
    least_s = CAUTION * case.setup.contract.window_s / TRUST
    lasted_s = np.maximum(np.where(time_s <= LONG_S, time_s, 0.0), least_s)
    was_well_s = np.where(became_unhealthy, lasted_s, state.was_well_s)
    began = np.where(state.ticks[:, None] <= 1, -np.inf, now_s)
    well_since_at_s = np.where(well, np.where(was_well, state.well_since_at_s, began), NOT_WELL_S)
    return {"well_since_at_s": well_since_at_s, "was_well_s": was_well_s}


def relapsing(state: ControllerState, owner: NDArray[np.int64]) -> Flags | None:
    """bool [B, R]: healthy, but not for long enough after a fault, while another replica of its kernel
    (``owner`` [R]) is trusted; None: no replica ever had a fault.
    """
    if not some_in(state.was_well_s):
        return None
    well_s = state.now_s[:, None] - state.well_since_at_s
    waits = (well_s >= 0.0) & (well_s < TRUST * state.was_well_s)
    trusted = kernel_count((well_s >= 0.0) & ~waits, owner, int(owner.max(initial=0)) + 1) > 0
    return np.asarray(waits & trusted[:, owner])


#: Least stay of a slow replica over that of any other: without traffic its alarm ends no sooner.
PATIENCE = 5


def waiting_slow_replicas(bench: Bench, condemned: Flags, case: Case) -> Flags:
    """bool [B, R]: slow replicas that may not come back yet.

    condemned: bool [B, R, S, C].
    """
    away = _slow(bench)
    if not some_in(away):
        return away
    now_s, options = case.estimate.state.now_s[:, None], case.setup.options
    least_s = PATIENCE * options.readmit_after_s * np.minimum(bench.times, MOST_BACKOFF)
    early = away & (now_s - bench.quarantined_at_s < least_s)
    able = away & ~early & case.ready & _answers(bench, case)
    able &= ~(condemned & moves_traffic(case.setup.contract)).any(axis=(2, 3))
    waits = early
    window_s, back = case.setup.contract.window_s, ~bench.quarantined
    back_s = now_s - bench.readmitted_at_s[:, case.owner]
    proven = healthy_clocks(case) & back & (back_s >= window_s)
    looked_at = back & (back_s < PATIENCE * window_s)
    zones = zones_of(case.setup.layout.zones, len(case.owner))
    for zone in range(int(zones.max(initial=-1)) + 1):
        inside = zones == zone
        free = (proven & inside).any(axis=1)
        wait = (looked_at & inside).any(axis=1)
        first = _first(able & inside, case) & ~wait[:, None]
        waits |= away & inside & ~free[:, None] & ~first
    return waits


def renew(bench: Bench, fresh: Flags, case: Case) -> None:
    """Restart the stay of all replicas that wait in a zone of which a replica is slow again.

    fresh: bool [B, R], quarantined in this tick.
    """
    fresh = fresh & _slow(bench)
    away, zones = _slow(bench), zones_of(case.setup.layout.zones, len(case.owner))
    for zone in np.unique(zones[fresh.any(axis=0) & (zones >= 0)]):
        inside = zones == zone
        again = (fresh & inside).any(axis=1)[:, None] & away & inside
        times = np.where(fresh & inside, bench.times, 0).max(axis=1, keepdims=True)
        now_s = np.broadcast_to(case.estimate.state.now_s[:, None], again.shape)
        bench.quarantined_at_s[again] = now_s[again]
        bench.times[again] = np.maximum(bench.times, times)[again]


def _slow(bench: Bench) -> Flags:
    """bool [B, R]: in quarantine because it or its zone is slow."""
    return np.asarray(bench.quarantined & ((bench.reason == SLOW) | (bench.reason == ZONE)))


def _answers(bench: Bench, case: Case) -> Flags:
    """bool [B, R]: recent probes were answered, or there is no prober."""
    probed_at_s, now_s = case.estimate.state.probed_at_s, case.estimate.state.now_s[:, None]
    nobody = probed_at_s.max(axis=(1, 2)) == -np.inf
    since_at_s = np.maximum(bench.quarantined_at_s, now_s - case.setup.contract.window_s)
    return np.asarray((probed_at_s.max(axis=2) > since_at_s) | nobody[:, None])


def _first(able: Flags, case: Case) -> Flags:
    """bool [B, R]: the first replica that is ``able`` to come back, preferably of a kernel with weight."""
    table: NDArray[np.float64] = case.estimate.state.table
    weighted = np.asarray((table[:, :, :-1] > 0.0).any(axis=1))[:, case.owner]
    rank = np.where(able, np.where(weighted, 2, 1), 0)
    chosen = np.zeros(able.shape, dtype=np.bool_)
    rows = np.arange(len(able))
    chosen[rows, rank.argmax(axis=1)] = able.any(axis=1)
    return chosen
