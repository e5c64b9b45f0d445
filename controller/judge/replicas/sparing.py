"""Whom the fleet can spare: a replica that fails a share of its requests answers all the others.

So does one that is back after a short life, until it dies again, and one that is late on the way, if late.
Retries hide most of what fails, and nothing hides that a fleet is short. So these go, unlike those that hang,
fail in a row or answer wrongly, only while who stays carries what is offered with room to spare, and come
back as soon as they do not. Until then they are *needed*, and what they fail does not count against their
kernel: moving its traffic would lose the same capacity.

One that is slow answers too, if late, so it stays where the others could not carry what is offered and less
is late or shed with it than would be shed without it. What a gateway sends it decides that: one that sends
to whoever has least to do gets more out of it than of nothing, one that sends to each alike does not.

A replica that went because it departed from its peers, before these showed what it has as well, protects
nobody any more once its kernel is condemned for that and serves all the same, having nobody better: it comes
back as soon as the others are short.

What is offered is the most of about five windows: a load that rises and falls has each of them gone at its
trough and missed at its peak, and a queue that has grown stays.
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
from controller.judge.replicas.failing_in_a_row import failing_between_answers, note_answers_after
from controller.judge.replicas.late_on_the_way import late_of_kernels
from controller.judge.replicas.own_clock import of_weighted
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
from controller.state import planned

#: Offered load over what the rest carries, up to which a failing replica goes; it comes back above 1. What
#: lies between keeps a wobble of the load from taking it out and in.
MOST_LOAD_RATIO = 0.9
#: The same of one that is well and only not trusted yet, which comes back above ``MOST_LOAD_RATIO``: nobody
#: shall wait longer for the sake of trust.
TRUSTED_LOAD_RATIO = 0.8
#: Windows in which a load that has passed is forgotten, as a time constant.
_PEAK_WINDOWS = 5.0
_LEAST_RPS = float(np.finfo(np.float64).tiny)
#: Reasons of those who are slow and no more.
_SLOW = (SLOW, ZONE)


def most_offered_rps(case: Case) -> NDArray[np.float64]:
    """float64 [B], the most that was offered of late; in the first window the present."""
    state, window_s = case.estimate.state, case.setup.contract.window_s
    now_rps = planned(state, "offered_rps").sum(axis=1)
    young = state.ticks * case.setup.fleet.tick_s < window_s
    kept = np.exp(-case.estimate.since_s / (_PEAK_WINDOWS * window_s))
    return np.where(young, now_rps, np.maximum(now_rps, kept * state.most_offered_rps))


def spare(wanted: NDArray[np.int64], most_rps: NDArray[np.float64], case: Case) -> Flags:
    """bool [B, R]: the needed of those who go only if they can be spared, in replica order.

    most_rps: ``most_offered_rps`` [B].

    They are taken back from ``wanted`` [B, R], where who was needed and may go now is noted.
    """
    before = case.estimate.state.needed
    if not (some_in(wanted) or some_in(before)):
        return before.copy()  # ``recall`` writes to it
    asks = _who_asks(wanted, case)
    needed = np.zeros_like(asks)
    for b in np.flatnonzero(asks.any(axis=1)):
        away = case.estimate.state.quarantined[b].copy()
        each_rps, _, rest_rps = _loads(case, b, away)
        proven_first = np.argsort(wanted[b] == PRESUMED, kind="stable")
        for r in proven_first[asks[b, proven_first]]:
            away[r] = True
            most_ratio = TRUSTED_LOAD_RATIO if wanted[b, r] == RELAPSED else MOST_LOAD_RATIO
            needed[b, r] = most_rps[b] > most_ratio * (rest_rps - each_rps[r])
            if needed[b, r] and wanted[b, r] in _SLOW:
                needed[b, r] = _lost_ratio(case, b) <= _lost_without_ratio(case, b, away)
            rest_rps -= 0.0 if needed[b, r] else float(each_rps[r])
            away[r] = not needed[b, r]
    wanted[needed] = NONE
    return needed


def recall(bench: Bench, needed: Flags, most_rps: NDArray[np.float64], case: Case) -> None:
    """Bring back who can be spared no more while the others are short, and who is well and the last of its
    kernel, in replica order; they are ``needed`` [B, R] from then on. In place.

    Who turns out to answer, after it went as one that is down, was not asked whether it can be spared:
    that is made up for, by ``most_rps`` [B] as for those who ask; and asked again of who is well.
    """
    alive = note_answers_after(bench, case)
    sparable, soon = _sparable(bench.reason), alive | (bench.reason == RELAPSED)
    away = bench.quarantined & (sparable | _as_unhealthy_as_its_kernel(bench, case)) & case.ready
    for b in np.flatnonzero(away.any(axis=1)):
        each_rps, offered_rps, rest_rps = _loads(case, b, bench.quarantined[b])
        for r in np.flatnonzero(away[b]):
            short = offered_rps > rest_rps or (soon[b, r] and most_rps[b] > MOST_LOAD_RATIO * rest_rps)
            if not (short or _is_last(bench, case, b, r)):
                continue
            bench.quarantined[b, r], bench.reason[b, r], needed[b, r] = False, NONE, sparable[b, r]
            bench.readmitted_at_s[b, case.owner[r]] = case.estimate.state.now_s[b]
            rest_rps += float(each_rps[r])


def _is_last(bench: Bench, case: Case, b: int, r: int) -> bool:
    """Nobody else of its kernel is in rotation, and it is away for want of trust alone."""
    peers = case.ready[b] & ~bench.quarantined[b] & (case.owner == case.owner[r])
    return bench.reason[b, r] == RELAPSED and not peers.any()


def _as_unhealthy_as_its_kernel(bench: Bench, case: Case) -> Flags:
    """bool [B, R]: went because it departed, on clauses that by now its whole kernel is condemned for, on
    whatever slice, and the kernel serves all the same.
    """
    departed = bench.quarantined & (bench.reason == DEPARTS)
    if not some_in(departed):
        return np.asarray(departed)
    state, moves = case.estimate.state, moves_traffic(case.setup.contract)
    fleet, replica = np.nonzero(departed)  # few: of the others nothing is looked at
    own = np.asarray((state.replica_condemned[fleet, replica] & moves).any(axis=1))  # [N, C]
    shared = np.asarray((state.condemned[fleet, case.owner[replica]] & moves).any(axis=1))
    as_unhealthy = own.any(axis=1) & ~(own & ~shared).any(axis=1)
    departed[fleet, replica] = of_weighted(case)[fleet, replica] & as_unhealthy
    return np.asarray(departed)


def _who_asks(wanted: NDArray[np.int64], case: Case) -> Flags:
    """bool [B, R]: in rotation, and by ``wanted`` of those who can be spared, or was needed so far.

    Both while what they show of late lies beyond the limit: an alarm outlasts failures by minutes. Who fails
    in a row just now shows it. Noted in ``wanted``.
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
    """Of what is offered to fleet ``b``, the share that is shed or answered late, 0..1; of late answers as
    the gateway counts them, 1.0 where it does not. What is shed counts where its row has stood for a window
    and anybody is served: during an outage and right after it that says nothing of who is slow.
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
    """The share that is shed at least while the replicas ``away`` [R] serve nobody and all else is well."""
    offered_rps = float(planned(case.estimate.state, "offered_rps")[b].sum())
    each_rps = _of_replicas(case, b, case.estimate.state.healthy_rps[b])
    return 1.0 - float(each_rps[case.ready[b] & ~away].sum()) / max(offered_rps, _LEAST_RPS)


def _loads(case: Case, b: int, quarantined: Flags) -> tuple[NDArray[np.float64], float, float]:
    """Of fleet ``b``: what each replica carries, what is offered, and what those in rotation carry."""
    each_rps = _of_replicas(case, b, planned(case.estimate.state, "replica_rps")[b])
    offered_rps = float(planned(case.estimate.state, "offered_rps")[b].sum())
    return each_rps, offered_rps, float(each_rps[case.ready[b] & ~quarantined].sum())


def _of_replicas(case: Case, b: int, kernel_rps: NDArray[np.float64]) -> NDArray[np.float64]:
    """float64 [R], ``kernel_rps`` [K] of one replica, by the share of the load that may go to the kernel."""
    state, contract, stage = case.estimate.state, case.setup.contract, case.setup.fleet.stage
    open_ = ~(state.condemned[b] & moves_traffic(contract)).any(axis=2)
    up = state.now_s[b] >= state.down_until_at_s[b]
    up &= True if stage is None else stage == int(Stage.ACTIVE)
    offered_rps = planned(state, "offered_rps")[b]
    share = (open_ @ offered_rps) / max(float(offered_rps.sum()), _LEAST_RPS)
    return np.asarray((kernel_rps * share * up)[case.owner])
