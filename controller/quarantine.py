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
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contracts.compiled import CompiledContract
from contracts.telemetry import FleetTelemetry
from controller.detectors import (
    COUNT,
    DetectorState,
    Opinion,
    Sums,
    Verdicts,
    applies,
    beyond_limit,
    moves_traffic,
    relative_excess,
    zero_tolerance,
)
from controller.estimate import Estimate, kernel_count, pool
from controller.quarantine_compiled import (
    READY,
    admit,
    ask_away,
    compare,
    explain_departures,
    find_hung,
    recertify,
    release,
    stay_with_kernel,
)
from controller.setup import ControllerSetup
from controller.state import ControllerState, altered

Flags = NDArray[np.bool_]


class Reason(IntEnum):
    """Why a replica is in quarantine."""

    NONE = 0
    DEPARTS = 1  # from its siblings, on a clause
    FAILING = 2  # failed answers in a row
    HUNG = 3  # running, never answering


@dataclass(frozen=True, slots=True, kw_only=True)
class Departures:
    """Who stands apart. wanted: int64 [B, R], a ``Reason``; spread: bool [B, R, S, C], alarms of replicas
    in rotation that speak against the whole kernel, None: there are none; down: bool [B, R], failing or hung
    right now.
    """

    wanted: NDArray[np.int64]
    spread: Flags | None
    down: Flags


@dataclass(frozen=True, slots=True, kw_only=True)
class _Alarms:
    """Alarms that move traffic, all bool [B, R, S, C]; replicas that depart, and that stay together."""

    severe: Flags
    departs: Flags
    together: Flags


def decide(
    estimate: Estimate, seen: FleetTelemetry, verdicts: Verdicts, memory: DetectorState,
    setup: ControllerSetup, pooled: Opinion | None = None,
) -> tuple[ControllerState, Departures]:  # fmt: skip
    """Quarantine, release, and report which alarms stay with the kernel.

    verdicts, memory: of the replicas. pooled: what a detector ``by_unit`` says of the kernels, with everybody
    who was in rotation.
    """
    state, ready = estimate.state, np.asarray(seen.replica_state == READY)
    condemned, severe, some = _recertified(state, verdicts, setup)
    alarms = _stand_apart(severe, estimate, verdicts, ready, setup, pooled) if some else None
    if setup.options.quarantine:
        culprits = _culprits_of(estimate, verdicts, ready, setup, pooled)
        if culprits is not None:
            nothing = np.zeros_like(severe)
            alarms = alarms or _Alarms(severe=severe, departs=nothing, together=nothing)
            alarms = replace(alarms, departs=alarms.departs | culprits)
            condemned |= culprits
    hung = _hung(estimate, seen, ready, setup)
    wanted, down = _wanted(alarms, hung, estimate, seen, ready, setup)
    changes: dict[str, Any] = {}
    if setup.options.quarantine:
        changes = _admitted_and_released(state, wanted, condemned, severe, hung, ready, estimate, setup)
    state = altered(state, replica_condemned=condemned, replica_detector=memory, **changes)
    return state, Departures(wanted=wanted, spread=_spread(alarms, state, setup), down=down)


def severe_clauses(setup: ControllerSetup) -> NDArray[np.bool_]:
    """bool [C]: clauses whose alarm moves traffic; soft L1 clauses only inform."""
    return moves_traffic(setup.contract)


def _recertified(
    state: ControllerState, verdicts: Verdicts, setup: ControllerSetup
) -> tuple[Flags, Flags, bool]:
    """(condemned, alarms that move traffic), bool [B, R, S, C], and whether there is any of these."""
    condemned, severe = state.replica_condemned.copy(), np.empty_like(state.replica_condemned)
    rows = (*condemned.shape[:2], -1)
    some = recertify(
        condemned.reshape(rows), severe.reshape(rows), verdicts.alarm.reshape(rows),
        verdicts.inside.reshape(rows), verdicts.fresh.reshape(rows), _by_slice(setup.contract),
    )  # fmt: skip
    return condemned, severe, bool(some)


@lru_cache(maxsize=64)
def _by_slice(contract: CompiledContract) -> Flags:
    """bool [S * C]: ``moves_traffic``, slice after slice."""
    return np.tile(moves_traffic(contract), len(contract.slices))


def _stand_apart(
    severe: Flags, estimate: Estimate, verdicts: Verdicts, ready: Flags, setup: ControllerSetup,
    pooled: Opinion | None,
) -> _Alarms:  # fmt: skip
    """Who departs and who stays together.

    Detectors ``by_unit`` hear one replica before another when all are ill: on a clause that the whole kernel
    is condemned for, on whatever slice, no replica stands apart.
    """
    departs, together = _against_siblings(severe, estimate, verdicts, ready, setup)
    if pooled is not None:
        explain_departures(departs, together, estimate.state.condemned, setup.layout.replica_kernel)
    return _Alarms(severe=severe, departs=departs, together=together)


def _against_siblings(
    severe: Flags, estimate: Estimate, verdicts: Verdicts, ready: Flags, setup: ControllerSetup
) -> tuple[Flags, Flags]:
    """(departs, together), both bool [B, R, S, C]: in alarm against most siblings, or with most of them.

    A sibling speaks against the kernel as soon as its own estimate lies beyond the limit: that it is not
    in alarm yet may only mean that it has shown less.
    """
    departs, together = np.zeros_like(severe), np.zeros_like(severe)
    kernels, _, _ = setup.layout.shape
    contract, plain = setup.contract, np.ascontiguousarray
    given = np.zeros((0, 0, 0, 0), dtype=np.bool_) if verdicts.against is None else verdicts.against
    compare(
        departs, together, plain(severe), plain(verdicts.judged), plain(estimate.state.window), plain(ready),
        setup.layout.replica_kernel, kernels, zero_tolerance(contract), plain(given), contract.is_rate,
        contract.rate_limit, contract.threshold, contract.sense,
    )  # fmt: skip
    return departs, together


def _speaks_against(verdicts: Verdicts, setup: ControllerSetup) -> Flags:
    """Bool [B, R, S, C]: the estimate lies beyond the limit."""
    if verdicts.against is not None:
        return verdicts.against
    return np.asarray(relative_excess(verdicts.judged, setup.contract) > 0.0)


def _culprits_of(
    estimate: Estimate, verdicts: Verdicts, ready: Flags, setup: ControllerSetup, pooled: Opinion | None
) -> Flags | None:
    """Bool [B, R, S, C]: the one replica without which the pool of its kernel is not beyond the limit.

    A pool sees more units than a replica and speaks earlier; when it is beyond a limit because of one
    member, that member is to go and not the kernel. Several such members, or none, leave it with the
    kernel. None: nobody anywhere.
    """
    if pooled is None:
        return _culprits(estimate, ready, setup)
    return _culprits_at_once(estimate, verdicts, pooled, ready, setup)


def _culprits(estimate: Estimate, ready: Flags, setup: ControllerSetup) -> Flags | None:
    """Judged by the windows that close now."""
    state, contract = estimate.state, setup.contract
    if not bool(estimate.closed.any()):
        return None
    kernels, _, _ = setup.layout.shape
    counted = ready & ~state.quarantined
    pooled = pool(state.window, counted, setup.layout.replica_kernel, kernels)
    enough = (pooled[..., COUNT] >= contract.min_samples) & estimate.closed[:, None, None, None]
    beyond, _ = beyond_limit(pooled, enough & applies(contract) & severe_clauses(setup), contract)
    if not bool(beyond.any()):
        return None
    return _guilty(state.window, counted, beyond, setup)


def _culprits_at_once(
    estimate: Estimate, verdicts: Verdicts, pooled: Opinion, ready: Flags, setup: ControllerSetup
) -> Flags | None:
    """The same at the tick of a pool's alarm, by the recent sums of its members."""
    rung = pooled.verdicts.alarm & ~pooled.was_alarm
    if not bool(rung.any()) or not bool((rung & severe_clauses(setup)).any()):
        return None
    kernels, _, _ = setup.layout.shape
    counted, owner = ready & ~estimate.state.quarantined, setup.layout.replica_kernel
    guilty = _guilty(verdicts.judged, counted, rung & severe_clauses(setup), setup)
    against = _speaks_against(verdicts, setup) & counted[:, :, None, None]
    return np.asarray(guilty & (kernel_count(against, owner, kernels)[:, owner] - against == 0))


def _guilty(sums: Sums, counted: Flags, beyond: Flags, setup: ControllerSetup) -> Flags:
    """Bool [B, R, S, C]: the one ``counted`` member that puts its pool ``beyond`` the limit."""
    kernels, _, _ = setup.layout.shape
    owner, contract = setup.layout.replica_kernel, setup.contract
    some = np.flatnonzero(beyond.any(axis=(1, 2, 3)))
    own = np.where(counted[some][:, :, None, None, None], sums[some], 0.0)
    rest = pool(own, counted[some], owner, kernels)[:, owner] - own
    heard = 2.0 * rest[..., COUNT] >= contract.min_samples
    cleared = heard & (relative_excess(rest, contract) <= 0.0)
    guilty = np.zeros(sums.shape[:-1], dtype=np.bool_)
    alone = beyond[some][:, owner] & cleared & (relative_excess(own, contract) > 0.0)
    alone &= own[..., COUNT] > 0.0
    guilty[some] = alone & (kernel_count(alone, owner, kernels)[:, owner] == 1)
    return guilty


def _hung(estimate: Estimate, seen: FleetTelemetry, ready: Flags, setup: ControllerSetup) -> Flags:
    """Bool [B, R]: requests run, scrapes arrive, and no answer has come for too long."""
    state, options = estimate.state, setup.options
    hung = np.zeros(ready.shape, dtype=np.bool_)
    find_hung(
        hung, ready, np.ascontiguousarray(seen.running), state.scraped_s, state.progress_s,
        state.answered_rps, state.quarantined, state.now_s, setup.layout.replica_kernel,
        setup.contract.stale_after_s, options.hung_after_s, options.hung_answers, options.hung_least_s,
    )  # fmt: skip
    return hung


def _wanted(
    alarms: _Alarms | None, hung: Flags, estimate: Estimate, seen: FleetTelemetry, ready: Flags,
    setup: ControllerSetup,
) -> tuple[NDArray[np.int64], Flags]:  # fmt: skip
    """(wanted, down): who should go and why, int64 [B, R], and who is failing or hung, bool [B, R]."""
    wanted, down = np.zeros(ready.shape, dtype=np.int64), np.zeros(ready.shape, dtype=np.bool_)
    departs = np.zeros((0, 0, 0, 0), dtype=np.bool_) if alarms is None else alarms.departs
    ask_away(
        wanted, down, hung, departs, estimate.failing_now, np.ascontiguousarray(seen.consecutive_failed),
        setup.options.failing_after,
    )  # fmt: skip
    return wanted, down


def _admitted_and_released(
    state: ControllerState, wanted: NDArray[np.int64], condemned: Flags, severe: Flags, hung: Flags,
    ready: Flags, estimate: Estimate, setup: ControllerSetup,
) -> dict[str, NDArray[np.generic]]:  # fmt: skip
    """What quarantine changes of the state: the wanted go as far as the cap allows, the healed come back."""
    asked, away = bool(wanted.any()), bool(state.quarantined.any())
    if not asked and not away:
        return {}
    quarantined, reason = state.quarantined.copy(), state.quarantine_reason.copy()
    since_s, times = state.quarantined_at_s.copy(), state.quarantines.copy()
    readmitted_s, owner, now_s = state.readmitted_at_s.copy(), setup.layout.replica_kernel, state.now_s
    kernels, _, _ = setup.layout.shape
    if asked:
        admit(
            quarantined, reason, since_s, times, wanted, ready, owner, kernels,
            setup.contract.ejection_cap_ratio, now_s,
        )  # fmt: skip
    release(
        quarantined, reason, readmitted_s, since_s, times, now_s, ready, hung, estimate.stale, state.probed_s,
        condemned, severe, severe_clauses(setup), owner, setup.contract.window_s,
        setup.options.readmit_after_s, setup.options.readmit_every_s,
    )  # fmt: skip
    return {
        "quarantined": quarantined,
        "quarantine_reason": reason,
        "quarantined_at_s": since_s,
        "quarantines": times,
        "readmitted_at_s": readmitted_s,
    }


def _spread(alarms: _Alarms | None, state: ControllerState, setup: ControllerSetup) -> Flags | None:
    """Bool [B, R, S, C]: alarms of replicas in rotation that stay with the kernel; None: there are none."""
    if alarms is None:
        return None
    spread = np.zeros_like(alarms.severe)
    some = stay_with_kernel(
        spread, alarms.together, alarms.severe, alarms.departs, setup.options.quarantine,
        zero_tolerance(setup.contract), state.quarantined,
    )  # fmt: skip
    return spread if some else None
