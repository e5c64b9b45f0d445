"""The second lever: take one replica out of rotation, keep it running, bring it back when re-certified.

A fault of hardware hits one replica, a fault of a build hits them all. A replica *departs* where it is in
alarm on a clause and most of its siblings with evidence on that clause are inside the limit, or where the
pool of its kernel is beyond the limit with it and not without it. It is also quarantined when the gateway
counts failures in a row on it, or when requests run on it and none is answered. Replicas that are in alarm
*together* say something of the build and condemn the kernel instead.

Ejection cap per kernel, over its ready replicas n: at most ``max(1, floor(ejection_cap_ratio * n))`` are
in quarantine, and at least one stays in rotation. A replica that the cap keeps in rotation condemns its
kernel on the clauses it breaks: its traffic would otherwise go on being served badly.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np
from numba import njit
from numpy.typing import NDArray

from contracts.telemetry import FleetTelemetry, ReplicaState
from controller.detectors import (
    COUNT,
    OVER,
    TOTAL,
    DetectorState,
    Sums,
    Verdicts,
    applies,
    beyond_limit,
    moves_traffic,
    relative_excess,
    zero_tolerance,
)
from controller.estimate import Estimate, kernel_count, kernel_sum
from controller.setup import ControllerSetup
from controller.state import ControllerState


class Reason(IntEnum):
    """Why a replica is in quarantine."""

    NONE = 0
    DEPARTS = 1  # from its siblings, on a clause
    FAILING = 2  # failed answers in a row
    HUNG = 3  # running, never answering


@dataclass(frozen=True, slots=True, kw_only=True)
class Departures:
    """Who stands apart. wanted: int64 [B, R], a ``Reason``; spread: bool [B, R, S, C], alarms of replicas
    in rotation that speak against the whole kernel; down: bool [B, R], failing or hung right now.
    """

    wanted: NDArray[np.int64]
    spread: NDArray[np.bool_]
    down: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pooled:
    """Verdicts on the kernels from before quarantine acts, and the detector's memory after them."""

    verdicts: Verdicts
    memory: DetectorState


def decide(
    estimate: Estimate, seen: FleetTelemetry, verdicts: Verdicts, setup: ControllerSetup,
    pooled: Pooled | None = None,
) -> tuple[ControllerState, Departures]:  # fmt: skip
    """Quarantine, release, and report which alarms stay with the kernel."""
    state = _recertify(estimate.state, verdicts)
    ready = seen.replica_state == ReplicaState.READY
    severe = verdicts.alarm & severe_clauses(setup)
    departs, together = _against_siblings(severe, estimate, verdicts, ready, setup)
    if pooled is not None:
        explained = _explained(departs, estimate, setup)
        departs, together = departs & ~explained, together | explained
    if setup.options.quarantine:
        if pooled is None:
            culprits = _culprits(estimate, ready, setup)
        else:
            culprits = _culprits_at_once(estimate, verdicts, pooled.verdicts, ready, setup)
        departs = departs | culprits
        state = replace(state, replica_condemned=state.replica_condemned | culprits)
    hung, failing = _hung(estimate, seen, ready, setup), _failing(estimate, seen, setup)
    wanted = np.where(departs.any(axis=(2, 3)), int(Reason.DEPARTS), int(Reason.NONE))
    wanted = np.where(failing, int(Reason.FAILING), wanted)
    wanted = np.where(hung, int(Reason.HUNG), wanted)
    if setup.options.quarantine:
        state = _release(_admit(state, wanted, ready, setup), severe, hung, ready, estimate, setup)
    spread = together | (severe & zero_tolerance(setup.contract))
    if setup.options.quarantine:
        spread = spread | departs
    in_rotation = ~state.quarantined[:, :, None, None]
    return state, Departures(wanted=wanted, spread=spread & in_rotation, down=hung | failing)


def severe_clauses(setup: ControllerSetup) -> NDArray[np.bool_]:
    """bool [C]: clauses whose alarm moves traffic; soft L1 clauses only inform."""
    return moves_traffic(setup.contract)


def _recertify(state: ControllerState, verdicts: Verdicts) -> ControllerState:
    condemned = verdicts.alarm | (state.replica_condemned & ~(verdicts.inside & verdicts.fresh))
    return replace(state, replica_condemned=condemned)


def _against_siblings(
    severe: NDArray[np.bool_], estimate: Estimate, verdicts: Verdicts, ready: NDArray[np.bool_],
    setup: ControllerSetup,
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:  # fmt: skip
    """(departs, together), both bool [B, R, S, C]: in alarm against most siblings, or with most of them.

    A sibling speaks against the kernel as soon as its own estimate lies beyond the limit: that it is not
    in alarm yet may only mean that it has shown less.
    """
    departs, together = np.zeros_like(severe), np.zeros_like(severe)
    if not bool(severe.any()):
        return departs, together
    kernels, _, _ = setup.layout.shape
    contract, plain = setup.contract, np.ascontiguousarray
    given = np.zeros((0, 0, 0, 0), dtype=np.bool_) if verdicts.against is None else verdicts.against
    _compare(
        departs, together, plain(severe), plain(verdicts.judged), plain(estimate.state.window), plain(ready),
        setup.layout.replica_kernel, kernels, zero_tolerance(contract), plain(given), contract.is_rate,
        contract.rate_limit, contract.threshold, contract.sense,
    )  # fmt: skip
    return departs, together


@njit(cache=True)
def _compare(  # type: ignore[no-untyped-def]  # pragma: no cover
    departs, together, severe, judged, window, ready, owner, kernels, zero, given, is_rate, rate_limit,
    threshold, sense,
):  # fmt: skip
    fleets, replicas, slices, clauses = severe.shape
    heard, against = np.zeros(kernels, np.int64), np.zeros(kernels, np.int64)
    for b in range(fleets):
        for s in range(slices):
            for c in range(clauses):
                if not _any_both(severe[b, :, s, c], ready[b]):
                    continue
                heard[:], against[:] = 0, 0
                for r in range(replicas):
                    alarmed, cell = severe[b, r, s, c], judged[b, r, s, c]
                    known = cell[COUNT] > 0.0 or (zero[c] and window[b, r, s, c, COUNT] > 0.0)
                    if ready[b, r] and (alarmed or known):
                        heard[owner[r]] += 1
                        if given.shape[0] > 0:
                            beyond = given[b, r, s, c]
                        else:
                            beyond = _beyond(cell, is_rate[c], rate_limit[c], threshold[c], sense[c])
                        against[owner[r]] += alarmed or beyond
                for r in range(replicas):
                    if severe[b, r, s, c] and ready[b, r]:
                        others, others_against = heard[owner[r]] - 1, against[owner[r]] - 1
                        departs[b, r, s, c] = 2 * others_against < others
                        together[b, r, s, c] = 2 * others_against >= others and others_against > 0


@njit(cache=True)
def _any_both(first, second):  # type: ignore[no-untyped-def]  # pragma: no cover
    found = False
    for i in range(len(first)):
        found |= first[i] and second[i]
    return found


@njit(cache=True)
def _beyond(cell, is_rate, rate_limit, threshold, sense):  # type: ignore[no-untyped-def]  # pragma: no cover
    """The estimate of one cell of sums lies beyond the clause's limit, as ``relative_excess`` > 0 has it."""
    count = max(cell[COUNT], 1.0)
    if is_rate:
        return cell[OVER] / count - rate_limit > 0.0
    return sense * (cell[TOTAL] / count - threshold) > 0.0


def _speaks_against(verdicts: Verdicts, setup: ControllerSetup) -> NDArray[np.bool_]:
    """Bool [B, R, S, C]: the estimate lies beyond the limit."""
    if verdicts.against is not None:
        return verdicts.against
    return np.asarray(relative_excess(verdicts.judged, setup.contract) > 0.0)


def _explained(departs: NDArray[np.bool_], estimate: Estimate, setup: ControllerSetup) -> NDArray[np.bool_]:
    """Departures, bool [B, R, S, C], on a clause that the whole kernel is condemned on, on whatever slice.

    Detectors ``by_unit`` hear one replica before another when all are ill; what the kernel is condemned for
    makes no replica stand apart.
    """
    if not bool(departs.any()):
        return departs
    condemned = np.asarray(estimate.state.condemned.any(axis=2, keepdims=True))
    return np.asarray(departs & condemned[:, setup.layout.replica_kernel])


def _culprits(estimate: Estimate, ready: NDArray[np.bool_], setup: ControllerSetup) -> NDArray[np.bool_]:
    """Bool [B, R, S, C]: the one replica without which the pool of its kernel is not beyond the limit.

    A pool sees more units than a replica and speaks earlier; when it is beyond a limit because of one
    member, that member is to go and not the kernel. Several such members, or none, leave it with the
    kernel.
    """
    state, contract = estimate.state, setup.contract
    nobody = np.zeros(state.window.shape[:-1], dtype=np.bool_)
    if not bool(estimate.closed.any()):
        return nobody
    kernels, _, _ = setup.layout.shape
    owner = setup.layout.replica_kernel
    counted = ready & ~state.quarantined
    own = np.where(counted[:, :, None, None, None], state.window, 0.0)
    pooled = kernel_sum(own, owner, kernels)
    enough = (pooled[..., COUNT] >= contract.min_samples) & estimate.closed[:, None, None, None]
    beyond, _ = beyond_limit(pooled, enough & applies(contract) & severe_clauses(setup), contract)
    if not bool(beyond.any()):
        return nobody
    return _guilty(own, pooled, beyond, setup)


def _culprits_at_once(
    estimate: Estimate, verdicts: Verdicts, pooled: Verdicts, ready: NDArray[np.bool_], setup: ControllerSetup
) -> NDArray[np.bool_]:
    """The same at the tick of a pool's alarm, by the recent sums of its members."""
    before = estimate.state.kernel_detector["alarm"].astype(np.bool_)
    rung = pooled.alarm & ~before & severe_clauses(setup)
    if not bool(rung.any()):
        return np.zeros_like(verdicts.alarm)
    kernels, _, _ = setup.layout.shape
    counted = ready & ~estimate.state.quarantined
    own = np.where(counted[:, :, None, None, None], verdicts.judged, 0.0)
    owner = setup.layout.replica_kernel
    guilty = _guilty(own, kernel_sum(own, owner, kernels), rung, setup)
    against = _speaks_against(verdicts, setup) & counted[:, :, None, None]
    return np.asarray(guilty & (kernel_count(against, owner, kernels)[:, owner] - against == 0))


def _guilty(own: Sums, pooled: Sums, beyond: NDArray[np.bool_], setup: ControllerSetup) -> NDArray[np.bool_]:
    """Bool [B, R, S, C]: the one member of a pool ``beyond`` its limit without which it would not be."""
    kernels, _, _ = setup.layout.shape
    owner, contract = setup.layout.replica_kernel, setup.contract
    rest = pooled[:, owner] - own
    heard = 2.0 * rest[..., COUNT] >= contract.min_samples
    cleared = heard & (relative_excess(rest, contract) <= 0.0)
    guilty = beyond[:, owner] & cleared & (relative_excess(own, contract) > 0.0) & (own[..., COUNT] > 0.0)
    return np.asarray(guilty & (kernel_count(guilty, owner, kernels)[:, owner] == 1))


def _hung(
    estimate: Estimate, seen: FleetTelemetry, ready: NDArray[np.bool_], setup: ControllerSetup
) -> NDArray[np.bool_]:
    """Requests run, scrapes arrive, and no answer has come for too long, or while siblings gave many."""
    state, options = estimate.state, setup.options
    known = state.now_s[:, None] - state.scraped_s <= setup.contract.stale_after_s
    quiet_s = np.fmin(state.now_s[:, None], state.scraped_s) - state.progress_s
    busy = ready & known & (seen.running > 0.0)
    if not bool((busy & (quiet_s >= options.hung_least_s)).any()):
        return np.zeros_like(busy)
    missed = quiet_s * _siblings_rps(state, ready, setup)
    outpaced = (quiet_s >= options.hung_least_s) & (missed >= options.hung_answers)
    return np.asarray(busy & ((quiet_s >= options.hung_after_s) | outpaced))


def _siblings_rps(
    state: ControllerState, ready: NDArray[np.bool_], setup: ControllerSetup
) -> NDArray[np.float64]:
    """float64 [B, R]: mean answers per second of the other replicas of the kernel in rotation."""
    kernels, _, _ = setup.layout.shape
    owner = setup.layout.replica_kernel
    serving = ready & ~state.quarantined
    own_rps = np.where(serving, state.answered_rps, 0.0)
    total_rps = kernel_sum(own_rps, owner, kernels)[:, owner] - own_rps
    others = kernel_count(serving, owner, kernels)[:, owner] - serving
    return np.asarray(total_rps / np.maximum(others, 1))


def _failing(estimate: Estimate, seen: FleetTelemetry, setup: ControllerSetup) -> NDArray[np.bool_]:
    """A run of failed answers that still grows, as the gateway counts it."""
    return estimate.failing_now & (seen.consecutive_failed >= setup.options.failing_after)


def _admit(
    state: ControllerState, wanted: NDArray[np.int64], ready: NDArray[np.bool_], setup: ControllerSetup
) -> ControllerState:
    """Put the wanted replicas into quarantine as far as the cap allows."""
    if not bool((wanted > 0).any()):
        return state
    quarantined = state.quarantined.copy()
    kernels, _, _ = setup.layout.shape
    _fill_quarantine(
        quarantined, wanted, ready, setup.layout.replica_kernel, kernels, setup.contract.ejection_cap_ratio
    )
    new = quarantined & ~state.quarantined
    return replace(
        state,
        quarantined=quarantined,
        quarantine_reason=np.where(new, wanted, state.quarantine_reason),
        quarantined_at_s=np.where(new, state.now_s[:, None], state.quarantined_at_s),
        quarantines=state.quarantines + new,
    )


def _release(
    state: ControllerState, severe: NDArray[np.bool_], hung: NDArray[np.bool_], ready: NDArray[np.bool_],
    estimate: Estimate, setup: ControllerSetup,
) -> ControllerState:  # fmt: skip
    """Re-admit who has served its time, answers and is re-certified, one replica of a kernel at a time."""
    if not bool(state.quarantined.any()):
        return state
    options, now_s = setup.options, state.now_s[:, None]
    condemned = (state.replica_condemned & severe_clauses(setup)).any(axis=(2, 3))
    served = now_s - state.quarantined_at_s >= options.readmit_after_s * np.minimum(state.quarantines, 10)
    clean = ~condemned & ~severe.any(axis=(2, 3)) & ~hung & ~estimate.stale[:, None]
    candidate = state.quarantined & ready & served & clean & _answers_probes(state, setup)
    quarantined, readmitted_at_s = state.quarantined.copy(), state.readmitted_at_s.copy()
    for replica, kernel in enumerate(setup.layout.replica_kernel):
        rested = state.now_s - readmitted_at_s[:, kernel] >= options.readmit_every_s
        back = candidate[:, replica] & rested
        quarantined[back, replica] = False
        readmitted_at_s[back, kernel] = state.now_s[back]
    reason = np.where(quarantined, state.quarantine_reason, int(Reason.NONE))
    return replace(state, quarantined=quarantined, readmitted_at_s=readmitted_at_s, quarantine_reason=reason)


def _answers_probes(state: ControllerState, setup: ControllerSetup) -> NDArray[np.bool_]:
    """Bool [B, R]: a probe sent since the quarantine began came back lately.

    A hung replica looks idle once its requests have timed out, so only an answer shows that it lives.
    Where nobody is ever probed there is nothing to ask for.
    """
    newest_s = state.probed_s.max(axis=2)
    since_s = np.maximum(state.quarantined_at_s, state.now_s[:, None] - setup.contract.window_s)
    return np.asarray((newest_s > since_s) | np.isneginf(newest_s).all(axis=1, keepdims=True))


@njit(cache=True)
def _fill_quarantine(quarantined, wanted, ready, owner, kernels, cap_ratio):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Hung first, then failing, then departing, each in replica order, as far as the cap allows."""
    for b in range(wanted.shape[0]):
        for k in range(kernels):
            present, away = 0, 0
            for r in range(len(owner)):
                if owner[r] == k and ready[b, r]:
                    present += 1
                    away += quarantined[b, r]
            room = min(max(1, int(np.floor(cap_ratio * present + 1e-9))), present - 1) - away
            for reason in (3, 2, 1):
                for r in range(len(owner)):
                    asks = owner[r] == k and ready[b, r] and wanted[b, r] == reason
                    if asks and not quarantined[b, r] and room > 0:
                        quarantined[b, r] = True
                        room -= 1
