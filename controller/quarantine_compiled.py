"""Compiled loops of the second lever; every fleet by itself, replicas in their order."""

from __future__ import annotations

import numpy as np
from numba import njit

from contracts.telemetry import ReplicaState
from controller.flags_compiled import by_cell, some_of
from controller.windows_compiled import COUNT, relative_excess_of

# Plain integers, because compiled code does not know the enumerations; ``controller.quarantine.Reason``.
READY = int(ReplicaState.READY)
NONE, DEPARTS, FAILING, HUNG = 0, 1, 2, 3


@njit(cache=True, error_model="numpy")
def recertify(condemned, severe, alarm, inside, fresh, moves):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Bring ``condemned`` up to date and mark alarms of clauses that move traffic; whether there are any.

    All bool [B, R, S * C], ``moves`` [S * C]. Condemned lasts from an alarm until a fresh verdict inside.
    """
    some = False
    for b in range(alarm.shape[0]):
        for r in range(alarm.shape[1]):
            for x in range(alarm.shape[2]):
                well = inside[b, r, x] & fresh[b, r, x]
                condemned[b, r, x] = alarm[b, r, x] | (condemned[b, r, x] & (not well))
                severe[b, r, x] = alarm[b, r, x] & moves[x]
                some |= severe[b, r, x]
    return some


@njit(cache=True, error_model="numpy")
def compare(  # type: ignore[no-untyped-def]  # pragma: no cover
    departs, together, severe, judged, window, ready, owner, kernels, zero, given, is_rate, rate_limit,
    threshold, sense,
):  # fmt: skip
    """Who is in alarm against most siblings that were heard, and who with most of them.

    given: bool [B, R, S, C], who speaks against the clause; without a fleet: whose sums lie beyond the limit.
    """
    found, cells = np.empty((kernels, *severe.shape[2:]), np.bool_), by_cell(severe)
    for b in range(severe.shape[0]):
        if not _alarmed_somewhere(found, severe, cells, ready, b, owner):
            continue
        asked = np.nonzero(found)
        for k, s, c in zip(asked[0], asked[1], asked[2]):  # noqa: B905 - numba knows no strict
            heard, against = 0, 0
            for r in range(len(owner)):
                if owner[r] != k or not ready[b, r]:
                    continue
                alarmed, cell = severe[b, r, s, c], judged[b, r, s, c]
                known = cell[COUNT] > 0.0 or (zero[c] and window[b, r, s, c, COUNT] > 0.0)
                if alarmed or known:
                    heard += 1
                    if given.shape[0] > 0:
                        beyond = given[b, r, s, c]
                    else:
                        beyond = _beyond(cell, is_rate[c], rate_limit[c], threshold[c], sense[c])
                    against += alarmed or beyond
            _divide(departs[b], together[b], severe[b], ready[b], owner, heard, against, k, s, c)


@njit(cache=True, error_model="numpy")
def _divide(departs, together, severe, ready, owner, heard, against, k, s, c):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Each replica of kernel ``k`` in alarm on a cell departs or stays together, as its siblings say."""
    for r in range(len(owner)):
        if owner[r] == k and severe[r, s, c] and ready[r]:
            departs[r, s, c] = 2 * (against - 1) < heard - 1
            together[r, s, c] = 2 * (against - 1) >= heard - 1 and against > 1


@njit(cache=True, error_model="numpy")
def _alarmed_somewhere(found, severe, cells, ready, b, owner):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Where a ready replica of fleet b is in alarm, in ``found`` bool [K, S, C]; whether anywhere."""
    some = False
    for r in range(len(owner)):
        if ready[b, r] and some_of(cells, b, r):
            if not some:
                found[:] = False
            some = True
            for s in range(severe.shape[2]):
                for c in range(severe.shape[3]):
                    found[owner[r], s, c] |= severe[b, r, s, c]
    return some


@njit(cache=True, error_model="numpy")
def _beyond(cell, is_rate, rate_limit, threshold, sense):  # type: ignore[no-untyped-def]  # pragma: no cover
    """The estimate of one cell of sums lies beyond the clause's limit."""
    return relative_excess_of(cell, is_rate, rate_limit, threshold, sense) > 0.0


@njit(cache=True, error_model="numpy")
def explain_departures(departs, together, condemned, owner):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Whose whole kernel is condemned [B, K, S, C] on the clause, on whatever slice, does not depart."""
    fleets, replicas, slices, clauses = departs.shape
    cells = by_cell(departs)
    for b in range(fleets):
        for r in range(replicas):
            if not some_of(cells, b, r):
                continue
            for s in range(slices):
                for c in range(clauses):
                    if departs[b, r, s, c] and condemned[b, owner[r], :, c].any():
                        departs[b, r, s, c], together[b, r, s, c] = False, True


@njit(cache=True, error_model="numpy")
def ask_away(wanted, down, hung, departs, failing_now, consecutive_failed, failing_after):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Why each replica should go, int64 [B, R]: hung before failing before departing; down: either of two.

    Failing: a run of failed answers that still grows, as the gateway counts it.
    """
    cells = by_cell(departs)
    for b in range(wanted.shape[0]):
        for r in range(wanted.shape[1]):
            failing = failing_now[b, r] and consecutive_failed[b, r] >= failing_after
            down[b, r] = hung[b, r] or failing
            if hung[b, r]:
                wanted[b, r] = HUNG
            elif failing:
                wanted[b, r] = FAILING
            elif departs.shape[0] > 0 and some_of(cells, b, r):
                wanted[b, r] = DEPARTS


@njit(cache=True, error_model="numpy")
def find_hung(  # type: ignore[no-untyped-def]  # pragma: no cover
    hung, ready, running, scraped_s, progress_s, answered_rps, quarantined, now_s, owner, stale_after_s,
    after_s, answers, least_s,
):  # fmt: skip
    """Requests run, scrapes arrive, and no answer has come for too long, or while siblings gave many."""
    for b in range(hung.shape[0]):
        for r in range(hung.shape[1]):
            known = now_s[b] - scraped_s[b, r] <= stale_after_s
            if not (ready[b, r] and known and running[b, r] > 0.0):
                continue
            quiet_s = min(now_s[b], scraped_s[b, r]) - progress_s[b, r]
            if not quiet_s >= least_s:
                continue
            siblings_rps = _siblings_rps(r, ready[b], quarantined[b], answered_rps[b], owner)
            hung[b, r] = quiet_s >= after_s or quiet_s * siblings_rps >= answers


@njit(cache=True, error_model="numpy")
def _siblings_rps(own, ready, quarantined, answered_rps, owner):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Mean answers per second of the other replicas of the kernel in rotation."""
    total_rps, serving = 0.0, 0
    for r in range(len(owner)):
        if owner[r] == owner[own] and ready[r] and not quarantined[r]:
            total_rps += answered_rps[r]
            serving += 1
    if ready[own] and not quarantined[own]:
        total_rps -= answered_rps[own]
        serving -= 1
    return total_rps / max(serving, 1)


@njit(cache=True, error_model="numpy")
def admit(  # type: ignore[no-untyped-def]  # pragma: no cover
    quarantined, reason, since_s, times, wanted, ready, owner, kernels, cap_ratio, now_s
):
    """Into quarantine: hung first, then failing, then departing, each in replica order, up to the cap."""
    for b in range(wanted.shape[0]):
        for k in range(kernels):
            present, away = 0, 0
            for r in range(len(owner)):
                if owner[r] == k and ready[b, r]:
                    present += 1
                    away += quarantined[b, r]
            room = min(max(1, int(np.floor(cap_ratio * present + 1e-9))), present - 1) - away
            for asked in (HUNG, FAILING, DEPARTS):
                for r in range(len(owner)):
                    asks = owner[r] == k and ready[b, r] and wanted[b, r] == asked
                    if asks and not quarantined[b, r] and room > 0:
                        quarantined[b, r], reason[b, r] = True, asked
                        since_s[b, r] = now_s[b]
                        times[b, r] += 1
                        room -= 1


@njit(cache=True, error_model="numpy")
def release(  # type: ignore[no-untyped-def]  # pragma: no cover
    quarantined, reason, readmitted_s, since_s, times, now_s, ready, hung, stale, probed_s, condemned,
    severe, moves, owner, window_s, after_s, every_s,
):  # fmt: skip
    """Re-admit who has served its time, answers and is re-certified, one replica of a kernel at a time."""
    for b in range(quarantined.shape[0]):
        nobody_probed = probed_s[b].max() == -np.inf
        for r in range(len(owner)):
            if not quarantined[b, r]:
                reason[b, r] = NONE
                continue
            served = now_s[b] - since_s[b, r] >= after_s * min(times[b, r], 10)
            if not (ready[b, r] and served) or hung[b, r] or stale[b]:
                continue
            if _broken(condemned[b, r], severe[b, r], moves):
                continue
            answers = probed_s[b, r].max() > max(since_s[b, r], now_s[b] - window_s)
            rested = now_s[b] - readmitted_s[b, owner[r]] >= every_s
            if (answers or nobody_probed) and rested:
                quarantined[b, r], reason[b, r] = False, NONE
                readmitted_s[b, owner[r]] = now_s[b]


@njit(cache=True, error_model="numpy")
def _broken(condemned, severe, moves):  # type: ignore[no-untyped-def]  # pragma: no cover
    """A clause that moves traffic is in alarm, or condemned and not re-certified, on some slice."""
    found = False
    for s in range(condemned.shape[0]):
        for c in range(condemned.shape[1]):
            found |= severe[s, c] or (condemned[s, c] and moves[c])
    return found


@njit(cache=True, error_model="numpy")
def stay_with_kernel(spread, together, severe, departs, capped, zero, quarantined):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Alarms of replicas in rotation that speak against the whole kernel; whether there are any.

    capped: replicas that depart and still serve, because the cap kept them, count as well.
    """
    some, cells = False, by_cell(severe)
    for b in range(spread.shape[0]):
        for r in range(spread.shape[1]):
            if quarantined[b, r] or not some_of(cells, b, r):
                continue
            for s in range(spread.shape[2]):
                for c in range(spread.shape[3]):
                    at = (b, r, s, c)
                    spread[at] = together[at] | (severe[at] & zero[c]) | (capped & departs[at])
                    some |= spread[at]
    return some
