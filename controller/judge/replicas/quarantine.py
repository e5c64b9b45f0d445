"""Quarantine: take one replica out of rotation, keep it running, bring it back when it is re-certified.

A hardware fault hits one replica, a fault of a build hits all of them. A replica is quarantined when it
departs from its peers (``controller.judge.replicas.departures``), when it or its zone is slow
(``controller.judge.replicas.own_clock``), when it fails requests in a row, when it holds requests and its
engine makes no step (``controller.judge.replicas.hung_replicas``), or when it is idle in a zone that fails
(``controller.judge.replicas.whose_failures``).

*Ejection cap*, per kernel with n ready replicas: at most ``max(1, floor(ejection_cap_ratio * n))`` are in
quarantine, and at least one stays in rotation. The cap keeps capacity, and a hung replica has none, so it is
removed while another replica of its kernel answers. A replica that the cap keeps in rotation condemns its
kernel on the clauses that it breaks (on traffic clauses by the gateway's counts), because its traffic would
go on being served badly.

Replicas that are slow and show nothing else come back in turns with the others of their zone (``returns``).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.contract import CompiledContract
from controller.cells import some_in
from controller.detect.clauses import failing_clauses, moves_traffic, slow_clauses
from controller.judge.replicas.culprits import culprits_of
from controller.judge.replicas.departures import (
    NO_FLAGS,
    Case,
    Flags,
    spread_of,
    stand_apart,
    with_culprits,
)
from controller.judge.replicas.departures_pass import Alarms, want_out
from controller.judge.replicas.failing_in_a_row import consecutive_failures, failing_between_answers
from controller.judge.replicas.hang import is_silent
from controller.judge.replicas.hung_replicas import (
    hung_replicas,
    leaking,
    note_ended_hangs,
    timeouts_of,
)
from controller.judge.replicas.identity import wrong_builds
from controller.judge.replicas.late_on_the_way import Late, culprits_on_the_way, late_on_the_way
from controller.judge.replicas.own_clock import attribute
from controller.judge.replicas.quarantine_pass import (
    DEPARTS,
    ERRORS,
    NONE,
    PRESUMED,
    RELAPSED,
    ZONE,
    Bench,
    Recovery,
    ReturnLimits,
    admit,
    clear_healthy,
    recertify,
    release,
)
from controller.judge.replicas.returns import follow_health, relapsing, renew, waiting_slow_replicas
from controller.judge.replicas.sparing import most_offered_rps, recall, spare
from controller.judge.replicas.whose_failures import (
    failing_with_zone,
    follow_replicas,
    presumed_with_zone,
    proven_departures,
)
from controller.state import ControllerState, QuarantineReason, altered


class Departures(NamedTuple):
    """Replicas that should leave the rotation, and what their alarms say of their kernels."""

    wanted: NDArray[np.int64]  # [B, R], a ``QuarantineReason``
    spread: Flags | None  # [B, R, S, C], alarms that speak against the whole kernel (None: there are none)
    down: Flags  # [B, R], failing or hung right now
    late: Late | None  # on the way (None: none)


def quarantine(case: Case) -> tuple[ControllerState, Departures]:
    """State after replicas were quarantined and released, and the alarms that stay with their kernels."""
    condemned, severe, some = _recertified(case)
    fails_more = follow_replicas(case)
    apart = proven_departures(stand_apart(severe, case), fails_more, case) if some else None
    alarms, of_zone = attribute(apart, case)
    acts = case.setup.options.quarantine
    on_the_way = late_on_the_way(case)
    late = culprits_on_the_way(on_the_way, case)
    attributed = culprits_of(case), failing_with_zone(case), wrong_builds(severe, case), late
    for culprits in attributed if acts else ():
        if culprits is not None:
            alarms = with_culprits(alarms, severe, culprits)
            condemned |= culprits
    timeouts = timeouts_of(case)
    hung = hung_replicas(case, timeouts)
    wanted, down = _wanted(alarms, hung, case)
    kept = hung | _of_slow_zone(wanted, of_zone)
    if alarms is not None:
        _tell_kinds(wanted, alarms, late, case.setup.contract)
    kept |= _with_failing_zone(wanted, case)
    changes: dict[str, Any] = {}
    if acts:
        health = follow_health(_unhealthy(down, condemned, severe, case), case)
        followed = altered(case.estimate.state, **health) if health else case.estimate.state
        relapsed = relapsing(followed, case.owner)
        if relapsed is not None:
            wanted[relapsed & (wanted == NONE)] = RELAPSED
        changes = health | _admitted_and_released(
            wanted, is_silent(timeouts, kept.shape), condemned, severe, Kept(kept, relapsed), case
        )
    state = altered(
        case.estimate.state,
        replica_condemned=condemned,
        replica_detector=case.verdicts.replica_memory,
        hang=timeouts,
        fails_more=fails_more,
        **changes,
    )
    return state, Departures(wanted, spread_of(alarms, state, case.setup), down, on_the_way)


def _of_slow_zone(wanted: NDArray[np.int64], of_zone: Flags | None) -> Flags:
    """bool [B, R]: ``of_zone`` (None: no replica), noted in ``wanted`` where nothing else is."""
    if of_zone is None:
        return np.zeros(wanted.shape, dtype=np.bool_)
    wanted[of_zone & (wanted == NONE)] = ZONE
    return of_zone


def _with_failing_zone(wanted: NDArray[np.int64], case: Case) -> Flags:
    """bool [B, R]: presumed to fail with their zone, and kept away for as long as it fails.

    They are noted in ``wanted`` [B, R], in the tick in which others of the zone are to leave: they are asked
    after these whether the fleet can spare them, and until then nothing is said of their kernel.
    """
    presumed = presumed_with_zone(case, wanted == ERRORS)
    if presumed is None:
        return np.zeros(wanted.shape, dtype=np.bool_)
    wanted[presumed & (wanted == NONE)] = PRESUMED
    return np.asarray(presumed & (case.estimate.state.quarantine_reason == PRESUMED))


class Kept(NamedTuple):
    """Replicas that stay in quarantine although their time is over; bool [B, R]."""

    away: Flags  # [B, R], hangs, is of a slow zone, or presumed to fail with its zone
    relapsed: Flags | None  # [B, R], has not been healthy for long enough yet (None: none)


def _unhealthy(down: Flags, condemned: Flags, severe: Flags, case: Case) -> Flags:
    """bool [B, R]: in quarantine and unhealthy.

    Unhealthy: ``down`` [B, R], in alarm or not yet re-certified (``severe``, ``condemned`` [B, R, S, C]), or
    quarantined just now because of its own symptoms.
    """
    state = case.estimate.state
    unhealthy = state.quarantined.copy()
    if some_in(unhealthy):
        clear_healthy(unhealthy, down, condemned, severe, moves_traffic(case.setup.contract))
        before_s = (state.now_s - case.estimate.since_s)[:, None]
        own = ~np.isin(state.quarantine_reason, (ZONE, RELAPSED, PRESUMED))
        unhealthy |= state.quarantined & own & (state.quarantined_at_s >= before_s)
    return unhealthy


def _tell_kinds(
    wanted: NDArray[np.int64], alarms: Alarms, late: Flags | None, contract: CompiledContract
) -> None:
    """Refine in ``wanted`` the reason of replicas that depart with one symptom only: slow (by their clock or
    the times of their answers), failing a share of their requests, or ``late`` [B, R, S, C] on the way.
    """
    kinds = (
        (slow_clauses(contract), QuarantineReason.SLOW),
        (failing_clauses(contract), QuarantineReason.ERRORS),
    )
    at = np.nonzero(wanted == DEPARTS)
    if not at[0].size:
        return
    departs, told = alarms.departs[at].any(axis=1), wanted[at]
    for places, reason in kinds:
        if places.size:
            told[~np.delete(departs, places, axis=1).any(axis=1)] = reason
    if late is not None:
        others = (alarms.departs[at] & ~late[at]).any(axis=(1, 2))
        told[~others & late[at].any(axis=(1, 2))] = QuarantineReason.LATE
    wanted[at] = told


def _recertified(case: Case) -> tuple[Flags, Flags, bool]:
    """(condemned, alarms that move traffic), bool [B, R, S, C], and whether there is any of these."""
    before, verdicts = case.estimate.state.replica_condemned, case.verdicts.replicas
    condemned, severe = before.copy(), np.empty_like(before)
    rows = (*condemned.shape[:2], -1)
    some = recertify(
        condemned.reshape(rows),
        severe.reshape(rows),
        verdicts.alarm.reshape(rows),
        verdicts.inside.reshape(rows),
        verdicts.fresh.reshape(rows),
        _by_slice(case.setup.contract),
    )
    return condemned, severe, bool(some)


@lru_cache(maxsize=64)
def _by_slice(contract: CompiledContract) -> Flags:
    """bool [S * C]: ``moves_traffic``, slice after slice."""
    return np.tile(moves_traffic(contract), len(contract.slices))


def _wanted(alarms: Alarms | None, hung: Flags, case: Case) -> tuple[NDArray[np.int64], Flags]:
    """(wanted, down): ``QuarantineReason`` of those to remove, int64 [B, R]; failing or hung, bool [B, R]."""
    wanted, down = np.zeros(hung.shape, dtype=np.int64), np.zeros(hung.shape, dtype=np.bool_)
    departs = NO_FLAGS if alarms is None else alarms.departs
    failures = consecutive_failures(case)
    failing_after = case.setup.options.failing_after
    want_out(wanted, down, hung, departs, case.estimate.failing_now, failures, failing_after)
    between = failing_between_answers(case)
    if some_in(between):
        wanted[between & (wanted == NONE)] = ERRORS
    return wanted, down


def _admitted_and_released(
    wanted: NDArray[np.int64], silent: Flags, condemned: Flags, severe: Flags, kept: Kept, case: Case
) -> dict[str, Any]:
    """Changed fields of the state: wanted replicas leave as far as the cap allows, healed ones come back."""
    state, setup = case.estimate.state, case.setup
    most_rps = most_offered_rps(case)
    needed = spare(wanted, most_rps, case)
    asked, away = some_in(wanted), some_in(state.quarantined)
    if not asked and not away:
        return {"needed": needed, "most_offered_rps": most_rps}
    bench = Bench(
        quarantined=state.quarantined.copy(),
        reason=state.quarantine_reason.copy(),
        quarantined_at_s=state.quarantined_at_s.copy(),
        times=state.quarantines.copy(),
        readmitted_at_s=state.readmitted_at_s.copy(),
    )
    if asked:
        cap_ratio = setup.contract.ejection_cap_ratio
        admit(bench, wanted, silent, case.ready, case.owner, cap_ratio, state.now_s)
        renew(bench, bench.quarantined & ~state.quarantined, case)
    _release(bench, condemned, severe, kept, case)
    note_ended_hangs(bench, condemned, kept.away, case)
    recall(bench, needed, most_rps, case)
    return {
        "needed": needed,
        "most_offered_rps": most_rps,
        "quarantined": bench.quarantined,
        "quarantine_reason": bench.reason,
        "quarantined_at_s": bench.quarantined_at_s,
        "quarantines": bench.times,
        "readmitted_at_s": bench.readmitted_at_s,
    }


def _release(bench: Bench, condemned: Flags, severe: Flags, kept: Kept, case: Case) -> None:
    """Bring back replicas whose time is over and that are re-certified, but not the ``kept``; in place."""
    state, setup = case.estimate.state, case.setup
    relapsed = np.zeros_like(kept.away) if kept.relapsed is None else kept.relapsed
    recovery = Recovery(
        ready=case.ready,
        kept=kept.away | waiting_slow_replicas(bench, condemned, case) | leaking(case, bench.quarantined),
        relapsed=relapsed,
        stale=case.estimate.stale,
        probed_at_s=state.probed_at_s,
        condemned=condemned,
        severe=severe,
        moves=moves_traffic(setup.contract),
    )
    limits = ReturnLimits(
        window_s=setup.contract.window_s,
        after_s=setup.options.readmit_after_s,
        every_s=setup.options.readmit_every_s,
    )
    release(bench, recovery, case.owner, state.now_s, limits)
