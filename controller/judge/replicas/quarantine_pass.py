"""Compiled loops of quarantine; each fleet by itself, replicas in their order.

Records cross the border as plain tuples, which numba reads in a third of the time of named ones (0.1 us an
array); inside they are named again.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.jit import borrowed, compiled

# Plain integers, because compiled code does not know the enumeration ``judge.quarantine.QuarantineReason``.
NONE, DEPARTS, FAILING, HUNG, ZONE, SLOW, ERRORS, RELAPSED, LATE, PRESUMED = range(10)
#: A replica's back-off grows with the number of its quarantines up to this.
MOST_BACKOFF = 10


class Bench(NamedTuple):
    """Replicas in quarantine, with reason and time; written to."""

    quarantined: NDArray[np.bool_]  # [B, R]
    reason: NDArray[np.int64]  # [B, R], a ``QuarantineReason``
    quarantined_at_s: NDArray[np.float64]  # [B, R], instant of the last quarantine
    times: NDArray[np.int64]  # [B, R], quarantines so far
    readmitted_at_s: NDArray[np.float64]  # [B, K], last time that a replica of the kernel came back


class Progress(NamedTuple):
    """What distinguishes a hung replica from an idle one."""

    ready: NDArray[np.bool_]  # [B, R], says discovery
    running: NDArray[np.float64]  # [B, R], requests in the newest scrape
    waiting: NDArray[np.float64]  # [B, R]
    scraped_at_s: NDArray[np.float64]  # [B, R], newest scrape
    progressed_at_s: NDArray[np.float64]  # [B, R], last answer of a request, or nothing to answer
    counted_at_s: NDArray[np.float64]  # [B, R], the engine's counters were last read (NaN: never)
    stepped_at_s: NDArray[np.float64]  # [B, R], it last stepped (NaN: never)
    answered_rps: NDArray[np.float64]  # [B, R]
    quarantined: NDArray[np.bool_]  # [B, R]


class HungLimits(NamedTuple):
    """When a replica counts as hung; ``ControllerOptions`` gives the reasons."""

    stale_after_s: float  # a scrape older than this says nothing
    after_s: float  # so long without a step
    answers: float  # or so many answers of the average peer
    least_s: float  # but never sooner


class Recovery(NamedTuple):
    """Evidence for and against a return."""

    ready: NDArray[np.bool_]  # [B, R], says discovery
    kept: NDArray[np.bool_]  # [B, R], hangs, is in a bad zone, or would be removed again at once
    relapsed: NDArray[np.bool_]  # [B, R], has not been healthy for long enough yet
    stale: NDArray[np.bool_]  # [B], telemetry is silent
    probed_at_s: NDArray[np.float64]  # [B, R, S]
    condemned: NDArray[np.bool_]  # [B, R, S, C]
    severe: NDArray[np.bool_]  # [B, R, S, C], alarms that move traffic
    moves: NDArray[np.bool_]  # [C], clauses whose alarm moves traffic


class ReturnLimits(NamedTuple):
    """When a replica may come back."""

    window_s: float  # it must have answered a probe within so long
    after_s: float  # least time in quarantine, times the number of quarantines
    every_s: float  # at most one replica of a kernel in so long


@compiled
def recertify(condemned, severe, alarm, inside, fresh, moves):
    """Bring ``condemned`` up to date and mark alarms of clauses that move traffic; whether there are any.

    All bool [B, R, S * C], ``moves`` [S * C]. Condemned lasts from an alarm until a fresh verdict inside.
    """
    some = False
    for b in range(alarm.shape[0]):
        for r in range(alarm.shape[1]):
            for x in range(alarm.shape[2]):
                healthy = inside[b, r, x] & fresh[b, r, x]
                condemned[b, r, x] = alarm[b, r, x] | (condemned[b, r, x] & (not healthy))
                severe[b, r, x] = alarm[b, r, x] & moves[x]
                some |= severe[b, r, x]
    return some


@compiled
def find_hung(hung, progress, now_s, owner, limits):
    """Fill ``hung``: requests run or wait, the engine's counters are read, and neither a step nor an answer
    came for too long, or while peers gave many answers.

    A long answer makes steps, so it is no hang. A replica without counters is judged by its probes alone
    (``judge.hang``).
    """
    progress, limits = borrowed(Progress(*progress)), HungLimits(*limits)
    for b in range(hung.shape[0]):
        for r in range(hung.shape[1]):
            known = now_s[b] - progress.counted_at_s[b, r] <= limits.stale_after_s
            holds = progress.running[b, r] > 0.0 or progress.waiting[b, r] > 0.0
            if not (progress.ready[b, r] and known and holds):
                continue
            seen_until_s = min(progress.counted_at_s[b, r], progress.scraped_at_s[b, r])
            moved_at_s = max(progress.progressed_at_s[b, r], progress.stepped_at_s[b, r])
            quiet_s = seen_until_s - moved_at_s
            if not quiet_s >= limits.least_s:
                continue
            peers_rps = _peers_rps(b, r, progress, owner)
            hung[b, r] = quiet_s >= limits.after_s or quiet_s * peers_rps >= limits.answers


@compiled
def _peers_rps(b, own, progress, owner):
    """Mean answers per second of the other replicas of the kernel in rotation."""
    total_rps, serving = 0.0, 0
    for r in range(len(owner)):
        if owner[r] == owner[own] and progress.ready[b, r] and not progress.quarantined[b, r]:
            total_rps += progress.answered_rps[b, r]
            serving += 1
    if progress.ready[b, own] and not progress.quarantined[b, own]:
        total_rps -= progress.answered_rps[b, own]
        serving -= 1
    return total_rps / max(serving, 1)


def most_away(present: NDArray[np.int64], cap_ratio: float) -> NDArray[np.float64]:
    """How many of so many ready replicas may be in quarantine: one at least, and never the last."""
    return np.minimum(np.maximum(1, np.floor(cap_ratio * present + 1e-9)), present - 1)


#: ``most_away`` of one number, for compiled code.
_most_away = compiled(most_away)


@compiled
def admit(bench, wanted, silent, ready, owner, cap_ratio, now_s):
    """Quarantine the wanted replicas up to the cap, most severe reason first, then in replica order.

    Relapsed replicas make room for all others. The cap keeps capacity, and a hung replica has none: where
    another replica of its kernel answers, it leaves whatever the cap says, and counts neither as present nor
    as away. A ``silent`` replica (bool [B, R]) does not answer: its next probe may show that it hangs.
    """
    bench = borrowed(bench)
    for b in range(wanted.shape[0]):
        for k in range(bench.readmitted_at_s.shape[1]):
            answers = _another_answers(bench.quarantined, wanted, silent, ready, owner, b, k)
            for r in range(len(owner)):
                hangs = owner[r] == k and ready[b, r] and wanted[b, r] == HUNG
                if answers and hangs and not bench.quarantined[b, r]:
                    _take_out(bench, HUNG, b, r, now_s)
            allowance = _allowance(bench, ready, owner, b, k, cap_ratio, not answers)
            _admit_up_to(allowance, bench, wanted, ready, owner, b, k, now_s)


@compiled
def _allowance(bench, ready, owner, b, k, cap_ratio, hung_count):
    """How many more replicas of kernel ``k`` may leave."""
    present, away = 0, 0
    for r in range(len(owner)):
        hangs = bench.quarantined[b, r] and bench.reason[b, r] == HUNG
        if owner[r] == k and ready[b, r] and (hung_count or not hangs):
            present += 1
            away += bench.quarantined[b, r]
    return int(_most_away(present, cap_ratio)) - away


@compiled
def _admit_up_to(allowance, bench, wanted, ready, owner, b, k, now_s):
    """Quarantine up to ``allowance`` wanted replicas of kernel ``k``, most severe reason first."""
    for asked in (HUNG, FAILING, DEPARTS, SLOW, ZONE, LATE, ERRORS, PRESUMED, RELAPSED):
        for r in range(len(owner)):
            asks = owner[r] == k and ready[b, r] and wanted[b, r] == asked
            if not asks or bench.quarantined[b, r]:
                continue
            if allowance <= 0 and asked != RELAPSED:
                allowance += _make_room(bench, ready, owner, b, k, now_s)
            if allowance > 0:
                _take_out(bench, asked, b, r, now_s)
                allowance -= 1


@compiled
def _another_answers(quarantined, wanted, silent, ready, owner, b, k):
    """A replica of kernel ``k`` is in rotation that is not silent and neither hangs nor fails in a row."""
    found = False
    for r in range(len(owner)):
        serves = owner[r] == k and ready[b, r] and not quarantined[b, r] and not silent[b, r]
        found |= serves and wanted[b, r] != HUNG and wanted[b, r] != FAILING
    return found


@compiled
def _take_out(bench, reason, b, r, now_s):
    bench.quarantined[b, r], bench.reason[b, r] = True, reason
    bench.quarantined_at_s[b, r] = now_s[b]
    bench.times[b, r] += 1


@compiled
def _make_room(bench, ready, owner, b, k, now_s):
    """Bring back the first replica of kernel ``k`` that is only not trusted yet; how many came back."""
    for r in range(len(owner)):
        if owner[r] == k and ready[b, r] and bench.quarantined[b, r] and bench.reason[b, r] == RELAPSED:
            bench.quarantined[b, r], bench.reason[b, r] = False, NONE
            bench.readmitted_at_s[b, k] = now_s[b]
            return 1
    return 0


@compiled
def release(bench, recovery, owner, now_s, limits):
    """Re-admit replicas whose time is over, that answer and are re-certified; one of a kernel at a time.

    One that could come back but has relapsed stays with that reason.
    """
    bench, recovery = borrowed((bench, recovery))
    quarantined, reason, quarantined_at_s = bench.quarantined, bench.reason, bench.quarantined_at_s
    readmitted_at_s, probed_at_s = bench.readmitted_at_s, recovery.probed_at_s
    for b in range(quarantined.shape[0]):
        no_prober = probed_at_s[b].max() == -np.inf
        for r in range(len(owner)):
            if not quarantined[b, r]:
                reason[b, r] = NONE
                continue
            served = now_s[b] - quarantined_at_s[b, r] >= limits.after_s * min(
                bench.times[b, r], MOST_BACKOFF
            )
            if not (recovery.ready[b, r] and served) or recovery.kept[b, r] or recovery.stale[b]:
                continue
            if _broken(recovery.condemned[b, r], recovery.severe[b, r], recovery.moves):
                continue
            answers = probed_at_s[b, r].max() > max(quarantined_at_s[b, r], now_s[b] - limits.window_s)
            rested = now_s[b] - readmitted_at_s[b, owner[r]] >= limits.every_s
            if (answers or no_prober) and recovery.relapsed[b, r]:
                reason[b, r] = RELAPSED
            elif (answers or no_prober) and rested:
                quarantined[b, r], reason[b, r] = False, NONE
                readmitted_at_s[b, owner[r]] = now_s[b]


@compiled
def clear_healthy(away, down, condemned, severe, moves):
    """Clear in ``away`` [B, R] the replicas that are neither ``down`` [B, R] nor in alarm or condemned."""
    condemned, severe = borrowed(condemned), borrowed(severe)
    for b in range(away.shape[0]):
        for r in range(away.shape[1]):
            away[b, r] &= down[b, r] or _broken(condemned[b, r], severe[b, r], moves)


@compiled
def _broken(condemned, severe, moves):
    """A clause that moves traffic is in alarm, or condemned and not re-certified, on some slice."""
    found = False
    for s in range(condemned.shape[0]):
        for c in range(condemned.shape[1]):
            found |= severe[s, c] or (condemned[s, c] and moves[c])
    return found
