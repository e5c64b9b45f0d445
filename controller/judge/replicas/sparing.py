"""Which unhealthy replicas the fleet can do without.

A replica that fails a share of its requests still answers the rest. So does one that came back a short time
ago and may die again, one that is late on the way, and one that is presumed to fail with its zone. Retries
hide most failures, but nothing hides a lack of capacity. So these replicas leave the rotation only while the
others carry the offered load with room to spare, and come back as soon as the others do not. A replica that
is kept in rotation for this reason is *needed*. Its failures do not count against its kernel, because moving
the kernel's traffic away would lose the same capacity.

Replicas that hang, fail in a row or answer wrongly leave whatever the load is.

A slow replica also answers, only late. It stays if the others cannot carry the load and less is late or shed
with it than would be shed without it. That depends on the gateway: least-request balancing gets more out of a
slow replica than nothing, round robin does not.

A replica that left because it departed from its peers, before these showed the same symptom, protects no
request once its whole kernel is condemned for that symptom and serves all the same for want of a better
kernel. It comes back as soon as the others are short.

Replicas that were seen to fail come before those that are presumed to fail, in whatever order this became
known: where one of them cannot be spared because presumed ones are out, these come back for it, and where the
others are short, presumed ones come back first.

The offered load is the maximum over about five windows. Judged by the present load alone, replicas would
leave at each trough of a varying load and be missed at the next peak.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contracts.telemetry import Source
from controller.cells import some_in
from controller.detect.clauses import failing_clauses, moves_traffic
from controller.detect.sums import COUNT, OVER, excess_of_sums
from controller.fleet import Stage
from controller.judge.replicas.departures import Case, Flags
from controller.judge.replicas.failing_in_a_row import failing_between_answers, note_answers_after_leaving
from controller.judge.replicas.late_on_the_way import late_of_kernels
from controller.judge.replicas.own_clock import of_serving_kernels
from controller.judge.replicas.quarantine_pass import (
    DEPARTS,
    ERRORS,
    LATE,
    NONE,
    PRESUMED,
    RELAPSED,
    SLOW,
    ZONE,
    Bench,
)
from controller.state import ControllerState, planned

#: A failing replica may leave up to this ratio of offered load to the capacity of the rest, and comes back
#: above 1. The gap keeps small changes of the load from moving it out and in.
MOST_LOAD_RATIO = 0.9
#: The same for a healthy replica that is not trusted yet; it comes back above ``MOST_LOAD_RATIO``, so that
#: requests never wait longer because of trust.
TRUSTED_LOAD_RATIO = 0.8
#: Time constant, in windows, with which a past peak of the load is forgotten.
_PEAK_WINDOWS = 5.0
_LEAST_RPS = float(np.finfo(np.float64).tiny)
#: Reasons of replicas that are slow and show nothing else.
_SLOW = (SLOW, ZONE)


def most_offered_rps(case: Case) -> NDArray[np.float64]:
    """float64 [B], recent maximum of the offered load; during the first window the present load."""
    state, window_s = case.estimate.state, case.setup.contract.window_s
    now_rps = planned(state, "offered_rps").sum(axis=1)
    young = state.ticks * case.setup.fleet.tick_s < window_s
    kept = np.exp(-case.estimate.since_s / (_PEAK_WINDOWS * window_s))
    return np.where(young, now_rps, np.maximum(now_rps, kept * state.most_offered_rps))


def spare(wanted: NDArray[np.int64], most_rps: NDArray[np.float64], case: Case) -> Flags:
    """bool [B, R]: the replicas that are needed, out of those that leave only if the fleet can spare them.

    Replicas are considered in their order, those presumed to fail after all others. Needed replicas are
    removed from ``wanted`` [B, R]; replicas that were needed and may leave now are added to it. Some that are
    presumed to fail may be needed from quarantine, in place of others; ``recall`` brings them back.
    most_rps: ``most_offered_rps`` [B].
    """
    before = case.estimate.state.needed
    if not (some_in(wanted) or some_in(before)):
        return before.copy()  # ``recall`` writes to it
    candidates = _candidates(wanted, case)
    needed = np.zeros_like(candidates)
    for b in np.flatnonzero(candidates.any(axis=1)):
        away = case.estimate.state.quarantined[b].copy()
        each_rps, _, rest_rps = _loads(case, b, away)
        proven_first = np.argsort(wanted[b] == PRESUMED, kind="stable")
        for r in proven_first[candidates[b, proven_first]]:
            away[r] = True
            most_ratio = TRUSTED_LOAD_RATIO if wanted[b, r] == RELAPSED else MOST_LOAD_RATIO
            needed[b, r] = most_rps[b] > most_ratio * (rest_rps - each_rps[r])
            if needed[b, r] and wanted[b, r] in _SLOW:
                needed[b, r] = _lost_ratio(case, b) <= _lost_without_ratio(case, b, away)
            if needed[b, r] and wanted[b, r] == ERRORS:
                missing_rps = most_rps[b] / most_ratio - (rest_rps - each_rps[r])
                instead = _presumed_that_carry(missing_rps, away, each_rps, case.estimate.state, b)
                needed[b, r] = not instead.size
                needed[b, instead], away[instead] = True, False
                rest_rps += float(each_rps[instead].sum())
            rest_rps -= 0.0 if needed[b, r] else float(each_rps[r])
            away[r] = not needed[b, r]
    wanted[needed] = NONE
    return needed


def _presumed_that_carry(
    missing_rps: float, away: Flags, each_rps: NDArray[np.float64], state: ControllerState, b: int
) -> NDArray[np.intp]:
    """Replicas of fleet ``b`` that are out because they are presumed to fail, as many as carry
    ``missing_rps``; none where all of them do not.

    away: bool [R], not in rotation; each_rps: float64 [R], capacity.
    """
    presumed = np.flatnonzero(away & state.quarantined[b] & (state.quarantine_reason[b] == PRESUMED))
    together_rps = np.cumsum(each_rps[presumed])
    enough = np.flatnonzero(together_rps >= missing_rps)
    return presumed[: int(enough[0]) + 1 if enough.size else 0]


def recall(bench: Bench, needed: Flags, most_rps: NDArray[np.float64], case: Case) -> None:
    """Bring replicas back that the fleet misses: those that ``spare`` found ``needed`` [B, R]; while the
    others are short; and a healthy one if no other replica of its kernel is in rotation. They are needed from
    then on. In place; those that are presumed to fail first, the others in their order.

    A replica that left as down but turns out to answer left without being asked whether it can be spared.
    That question is asked now, by ``most_rps`` [B]; it is asked again of replicas that are healthy.
    """
    alive = note_answers_after_leaving(bench, case)
    sparable, soon = _sparable(bench.reason), alive | (bench.reason == RELAPSED)
    away = bench.quarantined & (sparable | _as_unhealthy_as_its_kernel(bench, case)) & case.ready
    for b in np.flatnonzero(away.any(axis=1)):
        each_rps, offered_rps, rest_rps = _loads(case, b, bench.quarantined[b])
        back = np.flatnonzero(away[b])
        for r in back[np.argsort(bench.reason[b, back] != PRESUMED, kind="stable")]:
            short = offered_rps > rest_rps or (soon[b, r] and most_rps[b] > MOST_LOAD_RATIO * rest_rps)
            if not (short or needed[b, r] or _is_last(bench, case, b, r)):
                continue
            bench.quarantined[b, r], bench.reason[b, r], needed[b, r] = False, NONE, sparable[b, r]
            bench.readmitted_at_s[b, case.owner[r]] = case.estimate.state.now_s[b]
            rest_rps += float(each_rps[r])


def _is_last(bench: Bench, case: Case, b: int, r: int) -> bool:
    """No other replica of its kernel is in rotation, and it is away only because it is not trusted yet."""
    peers = case.ready[b] & ~bench.quarantined[b] & (case.owner == case.owner[r])
    return bench.reason[b, r] == RELAPSED and not peers.any()


def _as_unhealthy_as_its_kernel(bench: Bench, case: Case) -> Flags:
    """bool [B, R]: left because it departed from its peers, on clauses for which by now its whole kernel is
    condemned (on any slice), and the kernel serves traffic all the same.
    """
    departed = bench.quarantined & (bench.reason == DEPARTS)
    if not some_in(departed):
        return np.asarray(departed)
    state, moves = case.estimate.state, moves_traffic(case.setup.contract)
    fleet, replica = np.nonzero(departed)  # few, so only these are looked at
    own = np.asarray((state.replica_condemned[fleet, replica] & moves).any(axis=1))  # [N, C]
    shared = np.asarray((state.condemned[fleet, case.owner[replica]] & moves).any(axis=1))
    as_unhealthy = own.any(axis=1) & ~(own & ~shared).any(axis=1)
    departed[fleet, replica] = of_serving_kernels(case)[fleet, replica] & as_unhealthy
    return np.asarray(departed)


def _candidates(wanted: NDArray[np.int64], case: Case) -> Flags:
    """bool [B, R]: in rotation, and either wanted out for a reason that allows sparing, or needed so far.

    For failures, recent observations must lie beyond the limit, because an alarm outlasts the failures by
    minutes; a replica that fails in a row right now is such a case too. ``wanted`` is corrected accordingly.
    """
    state = case.estimate.state
    asked = (wanted == ERRORS) | (state.needed & (wanted == NONE))
    if some_in(asked):
        asked &= ~failing_between_answers(case)
        contract = case.setup.contract
        excess = excess_of_sums(case.verdicts.replicas.judged[asked], contract)
        fails = (excess[..., failing_clauses(contract)] > 0.0).any(axis=(1, 2))
        wanted[asked] = np.where(fails, ERRORS, NONE)
    return np.asarray(
        (_sparable(wanted) | (wanted == SLOW) | (wanted == ZONE)) & case.ready & ~state.quarantined
    )


def _sparable(reason: NDArray[np.int64]) -> Flags:
    return np.isin(reason, (ERRORS, RELAPSED, LATE, PRESUMED))


def _lost_ratio(case: Case, b: int) -> float:
    """Share of the load offered to fleet ``b`` that is shed or answered late, in 0..1.

    Late answers are counted at the gateway; 1.0 where it does not count them. Shed load counts only where the
    table's row has stood for a window and some requests are served: during an outage and right after it, shed
    load says nothing about slow replicas.
    """
    known = late_of_kernels(case)
    if known is None:
        return 1.0
    latency = np.asarray(case.setup.contract.source == Source.LATENCY)
    counted = known[b].sum(axis=(0, 1))[latency]
    late = float((counted[:, OVER] / np.maximum(counted[:, COUNT], 1.0)).max(initial=0.0))
    state, offered_rps = case.estimate.state, planned(case.estimate.state, "offered_rps")[b]
    stands = state.now_s[b] - state.row_moved_at_s[b] >= case.setup.contract.window_s
    shares = np.where(stands & bool(state.table[b, :, :-1].any()), state.table[b, :, -1], 0.0)
    shed = float(shares @ offered_rps) / max(float(offered_rps.sum()), _LEAST_RPS)
    return shed + (1.0 - shed) * late


def _lost_without_ratio(case: Case, b: int, away: Flags) -> float:
    """Least share that is shed while the replicas ``away`` [R] do not serve and all others are healthy."""
    offered_rps = float(planned(case.estimate.state, "offered_rps")[b].sum())
    each_rps = _of_replicas(case, b, case.estimate.state.healthy_rps[b])
    return 1.0 - float(each_rps[case.ready[b] & ~away].sum()) / max(offered_rps, _LEAST_RPS)


def _loads(case: Case, b: int, quarantined: Flags) -> tuple[NDArray[np.float64], float, float]:
    """Of fleet ``b``: capacity of each replica, offered load, and total capacity in rotation, in req/s."""
    each_rps = _of_replicas(case, b, planned(case.estimate.state, "replica_rps")[b])
    offered_rps = float(planned(case.estimate.state, "offered_rps")[b].sum())
    return each_rps, offered_rps, float(each_rps[case.ready[b] & ~quarantined].sum())


def _of_replicas(case: Case, b: int, kernel_rps: NDArray[np.float64]) -> NDArray[np.float64]:
    """float64 [R], capacity of each replica: ``kernel_rps`` [K] times the share of the load that its kernel
    may serve; 0 where the kernel is down or a canary.
    """
    state, contract, stage = case.estimate.state, case.setup.contract, case.setup.fleet.stage
    open_ = ~(state.condemned[b] & moves_traffic(contract)).any(axis=2)
    up = state.now_s[b] >= state.down_until_at_s[b]
    up &= True if stage is None else stage == int(Stage.ACTIVE)
    offered_rps = planned(state, "offered_rps")[b]
    share = (open_ @ offered_rps) / max(float(offered_rps.sum()), _LEAST_RPS)
    return np.asarray((kernel_rps * share * up)[case.owner])
