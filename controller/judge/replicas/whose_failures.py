"""Attribution of failures: to single replicas, to their kernel, or to their zone.

*Replicas or kernel, within a window.* A faulty build fails on all its replicas alike. When the pooled
failures of a kernel are beyond a clause's limit, the replicas beyond the limit are removed instead of the
kernel if chance would hardly have gathered the failures in them. The test is exact: given the attempts of all
replicas, the failed ones are drawn without replacement (conditional test of one common rate, Fisher 1935).
Because the replicas were selected by what they showed, each possible selection of so many counts as one more
trial.

*Over several windows.* Where a server gets one request every few seconds, no window holds enough of them to
tell chance from a host that fails a third, so evidence accumulates. It has the form that is used for kernels
(``judge.kernels.more_failures``), for one replica against all others of its kernel in rotation: the
likelihood ratio of a block at ``ODDS`` times the odds, given how many attempts of all failed; multiplied over
blocks from every start, and summed over starts. A block is a tick, or as many ticks as it takes for
``LEAST_ATTEMPTS`` of the kernel. Failures that all replicas share, however they come and go, are evidence
against none of them, and neither are changes of the rotation, because each block is compared with itself.

Only failures are attributed this way. Slow or wrong replicas are compared one by one (``departures``),
because latencies follow the load and probes are few.

*Zones.* A zone that loses its network, its storage or its credentials fails a share of the requests of
everything that runs in it. Where replicas of two kernels in one zone were seen to fail, and none of another
zone, other replicas there are likely to fail as well: their own estimate beyond the limit is enough, before
it is significant. That matters for replicas with little traffic, where significance takes minutes. A replica
there that has answered next to nothing is *presumed* to fail: traffic that leaves the zone would find it
first. A replica that has answered enough and failed nothing stays.

What is known of a zone does not depend on whether the fleet can spare its replicas: one that was seen to fail
counts while it is out, and as much while it is needed in rotation. Otherwise a fleet that takes replicas out
would learn by it that it is short, call them back, forget why it was short, and take them out again.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import special

from contracts.compiled.contract import CompiledContract
from controller.cells import kernel_count, some_at, some_in
from controller.detect.clauses import failing_clauses
from controller.detect.sums import COUNT, OVER, Sums, burst, excess_of_sums
from controller.judge.replicas.attempts_pass import (
    EVIDENCE,
    FAILS_MORE,
    MEMORY_WINDOWS,
    PROBE_FAILED,
    PROBE_REFUSED,
    Tried,
    add_tick,
    count_attempts,
)
from controller.judge.replicas.departures import Case, Flags
from controller.judge.replicas.departures_pass import Alarms
from controller.judge.replicas.own_clock import LEAST_KERNELS, zones_of
from controller.judge.replicas.quarantine_pass import ERRORS
from controller.perceive.excuse_pass import counting_shares
from controller.state import ControllerState

Floats = NDArray[np.float64]

#: Number of looks at the same failures among which the false-alarm chance is divided: one look in ten
#: seconds, because looks in between see nearly the same.
_LOOKS = 6.0


def follow_replicas(case: Case) -> Floats:
    """float64 [B, R, COLUMNS], accumulated evidence on each replica after this tick."""
    before = case.estimate.state.fails_more
    begun = some_in(before)
    if not begun and not _some_failed(case):
        return before
    ended, failed = attempts_of(case, case.ready & ~case.estimate.state.quarantined, by_replica=True)
    if not begun and not some_in(failed):
        return before
    memory_s = MEMORY_WINDOWS * case.setup.contract.window_s
    after = before.copy()
    after[..., EVIDENCE] *= np.exp(-case.estimate.since_s[:, None] / memory_s)
    add_tick(after, ended, failed, case.owner, case.kernels)
    return after


def _some_failed(case: Case) -> bool:
    """Any request or probe of any replica failed in this tick."""
    outcome = case.telemetry.probes.outcome
    return some_in(case.telemetry.failed) or some_in((outcome == PROBE_FAILED) | (outcome == PROBE_REFUSED))


def attempts_of(case: Case, serving: Flags, *, by_replica: bool) -> tuple[Floats, Floats]:
    """(ended, failed), float64 [B, R] or [B, K]: requests and probes of the ``serving`` [B, R] in this tick.

    Timeouts of an overloaded kernel do not count as failures (``perceive.excuse_pass``).
    """
    plain, seen, probes = np.ascontiguousarray, case.telemetry, case.telemetry.probes
    late, all_failed = plain(seen.gateway.timed_out), plain(seen.gateway.failed)
    shares, group = counting_shares(all_failed, late, case.estimate.overload), case.owner
    if by_replica:
        shares, group = plain(shares[:, case.owner]), np.arange(len(case.owner))
    tried = Tried(plain(seen.answered), plain(seen.failed), plain(probes.replica), plain(probes.outcome))
    ended, failed = np.zeros((2, *shares.shape))
    count_attempts(ended, failed, tuple(tried), plain(serving), shares, group)
    return ended, failed


def failing_members(sums: Sums, counted: Flags, beyond: Flags, case: Case) -> Flags:
    """bool [B, R, S, C]: replicas in which the failures of their kernel are gathered.

    beyond: bool [B, K, S, C], kernels beyond the limit; counted: bool [B, R], replicas that count.
    """
    contract, found = case.setup.contract, np.zeros(sums.shape[:-1], dtype=np.bool_)
    chance = 1.0 - contract.alarm_confidence
    for c in failing_clauses(contract):
        for b, k, s in np.argwhere(beyond[..., c]):
            members = np.flatnonzero((case.owner == k) & counted[b] & (sums[b, :, s, c, COUNT] > 0.0))
            of_members = sums[b, members, s]
            fails = excess_of_sums(of_members, contract)[:, c] > 0.0
            if fails.any() and not fails.all() and gathered_by_chance(of_members[:, c], fails) < chance:
                found[b, members[fails], s, c] = True
    return found


def proven_departures(alarms: Alarms, fails_more: Floats, case: Case) -> Alarms:
    """``alarms`` in which a replica departs on a clause on failures only if it provably fails more than its
    peers.

    An alarm says that a replica fails more than the contract allows; that most peers are inside the limit may
    be chance where all fail alike. The question is asked at every tick, so the chance is divided by
    ``_LOOKS``. A burst proves nothing, however many requests fail in it (``detect.sums``). What a window is
    too short to show, accumulated evidence may (``follow_replicas``).
    """
    contract, judged = case.setup.contract, case.verdicts.replicas.judged
    chance, departs = (1.0 - contract.alarm_confidence) / _LOOKS, alarms.departs
    failing = failing_clauses(contract)
    if not some_at(departs, failing):
        return alarms
    departs = departs.copy()
    for c in failing:
        for b, k, s in np.argwhere(kernel_count(departs[..., c], case.owner, case.kernels) > 0):
            members = np.flatnonzero((case.owner == k) & case.ready[b] & (judged[b, :, s, c, COUNT] > 0.0))
            if not _proven(judged[b, members, s, c], departs[b, members, s, c], chance, contract):
                departs[b, case.owner == k, s, c] &= fails_more[b, case.owner == k, EVIDENCE] >= FAILS_MORE
    return alarms._replace(departs=departs)


def _proven(sums: Sums, found: Flags, chance: float, contract: CompiledContract) -> bool:
    """The ``found`` [R] replicas fail more than the others, and not in one burst. sums: [R, 4]."""
    if not found.any() or found.all() or bool(burst(sums[found].sum(axis=0), contract)):
        return False
    return gathered_by_chance(sums, found) < chance


def gathered_by_chance(sums: Sums, fails: Flags) -> float:
    """Bound on the chance that one common rate gathers so many failures in so many members, in 0..1.

    sums: [R, 4] of the members; fails: bool [R], those compared with the others.
    """
    count, over = sums[:, COUNT], sums[:, OVER]
    here, all_over = float(over[fails].sum()), float(over.sum())
    inside, attempts = float(count[fails].sum()), float(count.sum())
    drawn = np.arange(np.floor(here), min(all_over, inside) + 1.0)
    ways = _choose(inside, drawn) + _choose(attempts - inside, np.maximum(all_over - drawn, 0.0))
    tail = special.logsumexp(ways - _choose(attempts, np.array(all_over)))
    choices = _choose(float(fails.size), np.array(float(fails.sum()))) + np.log(fails.size - 1.0)
    return float(np.exp(min(tail + choices, 0.0)))


def _choose(count: float, drawn: NDArray[np.float64]) -> NDArray[np.float64]:
    """Logarithm of the ways to draw so many of ``count``; -inf where there are not so many."""
    known = np.clip(drawn, 0.0, count)
    ways = special.gammaln(count + 1.0) - special.gammaln(known + 1.0) - special.gammaln(count - known + 1.0)
    return np.asarray(np.where(drawn <= count, ways, -np.inf))


def failing_with_zone(case: Case) -> Flags | None:
    """bool [B, R, S, C]: in a zone that fails, and beyond the limit of a clause on failures; None: none."""
    state, contract = case.estimate.state, case.setup.contract
    failing = seen_to_fail(state, case)
    if failing is None:
        return None
    inside = struck_zones(failing, case) & case.ready & ~state.quarantined
    if not some_in(inside):
        return None
    found = np.zeros((*inside.shape, len(contract.slices), len(contract.clause_ids)), dtype=np.bool_)
    for c in failing_clauses(contract):
        found[..., c] = excess_of_sums(case.verdicts.replicas.judged, contract)[..., c] > 0.0
    found &= inside[:, :, None, None]
    return found if bool(found.any()) else None


def presumed_with_zone(case: Case, leaving: Flags) -> Flags | None:
    """bool [B, R]: ready, in a zone that fails, and has ended too few requests to show whether it fails too;
    None: no replica. Replicas in quarantine are included.

    leaving: bool [B, R], those to be taken out in this tick because they fail, as far as they can be spared.
    """
    contract = case.setup.contract
    failing = seen_to_fail(case.estimate.state, case, leaving)
    if failing is None:
        return None
    shown = case.verdicts.replicas.judged.sum(axis=2)[..., failing_clauses(contract), COUNT]
    idle = np.all(shown < contract.min_samples, axis=2)
    found = struck_zones(failing, case) & case.ready & idle
    return found if some_in(found) else None


def seen_to_fail(state: ControllerState, case: Case, leaving: Flags | None = None) -> Flags | None:
    """bool [B, R]: in quarantine because a share of its requests failed; or condemned for it but needed, or
    ``leaving`` [B, R], and beyond the limit by its recent requests; None: no replica.

    Replicas that are presumed to fail are not among them.
    """
    seen = np.asarray(state.quarantined & (state.quarantine_reason == ERRORS))
    failing = failing_clauses(case.setup.contract)
    asked = state.needed & case.ready
    if some_in(asked):
        asked &= state.replica_condemned[..., failing].any(axis=(2, 3))
    asked = asked if leaving is None else asked | leaving
    if some_in(asked):
        excess = excess_of_sums(case.verdicts.replicas.judged[asked], case.setup.contract)
        seen[asked] |= (excess[..., failing] > 0.0).any(axis=(1, 2))
    return seen if some_in(seen) else None


def struck_zones(struck: Flags, case: Case) -> Flags:
    """bool [B, R]: in a zone where replicas of two kernels are ``struck`` [B, R], and none elsewhere.

    Where no replica stands elsewhere, nothing tells the zone from the fleet, and no zone is struck.
    """
    zones = zones_of(case.setup.layout.zones, len(case.owner))
    found = np.zeros(struck.shape, dtype=np.bool_)
    for zone in range(int(zones.max(initial=-1)) + 1):
        inside = zones == zone
        several = (kernel_count(struck & inside, case.owner, case.kernels) > 0).sum(axis=1) >= LEAST_KERNELS
        outside = case.ready & ~inside
        alone = outside.any(axis=1) & ~(struck & ~inside).any(axis=1)
        found |= (several & alone)[:, None] & inside
    return found
