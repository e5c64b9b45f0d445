"""The first half of a tick by definition, in plain numpy: the reference for the compiled passes.

Only the sums of a tick are taken from the controller itself, because ``test_estimate`` recomputes them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.contract import Level
from contracts.telemetry import FleetTelemetry, ReplicaState, Source
from controller.cells import LEAST_BEHIND
from controller.detect.clauses import moves_traffic
from controller.detect.detector import AlarmState
from controller.detect.sums import COUNT
from controller.judge.replicas.failing_in_a_row import CHANCE
from controller.options import ControllerSetup
from controller.perceive.estimate import accumulate
from controller.perceive.reception import MOST_BEHIND_S
from controller.state import ControllerState
from tests.reference.plain_health import health
from tests.reference.plain_outage import plain_outages

Flags = NDArray[np.bool_]
Floats = NDArray[np.float64]


def over_kernels(values: NDArray[Any], owner: NDArray[np.int64], kernels: int, add: Any) -> NDArray[Any]:
    """``add`` over the replicas [B, R, ...] of each kernel, in replica order."""
    start = -np.inf if add is np.maximum else 0
    out = np.full((values.shape[0], kernels, *values.shape[2:]), start, dtype=np.result_type(values, 1))
    for replica, kernel in enumerate(owner):
        out[:, kernel] = add(out[:, kernel], values[:, replica])
    return out


def plain_estimate(state: ControllerState, seen: FleetTelemetry, setup: ControllerSetup) -> dict[str, Any]:
    """Arrays of the state, and of the estimate, after one telemetry was accumulated."""
    options, contract = setup.options, setup.contract
    now_s = seen.now_ms / 1000.0
    scraped_at_s = np.fmax(state.scraped_at_s, seen.scraped_at_ms / 1000.0)
    oldest_at_s = (now_s - contract.stale_after_s)[:, None]
    newer = scraped_at_s > np.where(np.isnan(state.scraped_at_s), -np.inf, state.scraped_at_s)
    fresh = newer & (scraped_at_s >= oldest_at_s)
    received = seen.probes.valid & (seen.probes.sampled_at_ms >= oldest_at_s * 1000.0)
    anything = fresh.any(axis=1) | received.any(axis=1) | np.isnan(state.received_at_s)
    received_at_s = np.where(anything, now_s, state.received_at_s)
    since_s = np.where(np.isnan(state.now_s), setup.fleet.tick_s, now_s - state.now_s)
    passed_s = np.maximum(since_s, 1e-3)[:, None]
    keep, first = np.exp(-passed_s / options.smoothing_s), (state.ticks == 0)[:, None]

    def smooth(rate: NDArray[Any], old: Floats) -> Floats:
        return np.where(first, rate / passed_s, keep * old + (1.0 - keep) * rate / passed_s)

    started = np.where(np.isnan(state.window_began_at_s), now_s, state.window_began_at_s)
    offered_rps = smooth(seen.offered, state.offered_rps)
    ended_rps = smooth(seen.answered, state.answered_rps), smooth(seen.failed, state.failed_rps)
    answering = 1.0 - _failing_share(*ended_rps) * state.needed
    overloaded_at_s, behind = _overloaded_s(state, seen, now_s, offered_rps, since_s, answering, setup)
    silent_s = now_s - received_at_s
    told = {"fresh": fresh, "received": received, "silent_s": silent_s, "scraped_at_s": scraped_at_s}
    return {
        **told,
        **_windows(state, seen, setup, now_s, overloaded_at_s),
        "now_s": now_s,
        "received_at_s": received_at_s,
        "window_began_at_s": started,
        "progressed_at_s": _progressed_s(state, seen, now_s, fresh),
        "offered_rps": offered_rps,
        "answered_rps": ended_rps[0],
        "failed_rps": ended_rps[1],
        "overloaded_at_s": overloaded_at_s,
        "behind": behind,
        "closed": now_s - started >= contract.window_s - 1e-6,
        "stale": silent_s > contract.stale_after_s,
        "failing_now": seen.failed > 0,
    }


def _progressed_s(state: ControllerState, seen: FleetTelemetry, now_s: Floats, fresh: Flags) -> Floats:
    """When each replica [B, R] last answered, had nothing to do, or was not ready."""
    idle = (fresh & ~holds(seen)) | (seen.replica_state != ReplicaState.READY)
    known = np.where(np.isnan(state.progressed_at_s), now_s[:, None], state.progressed_at_s)
    return np.where(idle | (seen.answered > 0), now_s[:, None], known)


def holds(seen: FleetTelemetry) -> Flags:
    """bool [B, R], requests run or wait."""
    return (seen.running > 0.0) | (seen.waiting > 0.0)


def _windows(
    state: ControllerState, seen: FleetTelemetry, setup: ControllerSetup, now_s: Floats, overloaded: Floats
) -> dict[str, Floats]:
    """The running windows without latencies of kernels that were ``overloaded`` [B, K] lately, in s."""
    contract, options = setup.contract, replace(setup.options, overload_ratio=np.inf)
    lately = now_s[:, None] - overloaded < contract.window_s
    everything = accumulate(state, seen, replace(setup, options=options)).state
    late = (contract.source == Source.LATENCY)[:, None]
    owner = setup.layout.replica_kernel
    return {
        "window": np.where(lately[:, owner, None, None, None] & late, 0.0, everything.window),
        "kernel_window": np.where(lately[:, :, None, None, None] & late, 0.0, everything.kernel_window),
    }


def load_rps(state: ControllerState, offered_rps: Floats) -> Floats:
    """Offered requests per second [B, K] under the table in force, slice after slice."""
    load = np.zeros((len(state.ticks), state.table.shape[2] - 1))
    for index in range(state.table.shape[1]):
        load += state.table[:, index, :-1] * offered_rps[:, index, None]
    return load


def _failing_share(answered_rps: Floats, failed_rps: Floats) -> Floats:
    ended_rps = answered_rps + failed_rps
    return np.where(ended_rps > 0.0, failed_rps / np.where(ended_rps > 0.0, ended_rps, 1.0), 0.0)


def _overloaded_s(
    state: ControllerState,
    seen: FleetTelemetry,
    now_s: Floats,
    offered_rps: Floats,
    since_s: Floats,
    answering: Floats,
    setup: ControllerSetup,
) -> tuple[Floats, Floats]:
    kernels, _, _ = setup.layout.shape
    serves = (seen.replica_state == ReplicaState.READY) & ~state.quarantined & ~state.ejected
    ready = over_kernels(np.where(serves, answering, 0.0), setup.layout.replica_kernel, kernels, np.add)
    carried_rps, options = ready * state.healthy_rps, setup.options
    came = load_rps(state, seen.offered.astype(np.float64))
    behind = np.clip(state.behind + came - carried_rps * since_s[:, None], 0.0, MOST_BEHIND_S * carried_rps)
    limit_rps = options.overload_ratio * carried_rps
    beyond_rps = np.where(carried_rps > 0.0, LEAST_BEHIND / (2.0 * options.smoothing_s), 0.0)
    burst = np.maximum(options.behind_s * limit_rps, LEAST_BEHIND)
    over = (load_rps(state, offered_rps) > limit_rps + beyond_rps) | (behind > burst)
    return np.where(over, now_s[:, None], state.overloaded_at_s), behind


def plain_release(
    state: ControllerState,
    severe: Flags,
    hung: Flags,
    stale: Flags,
    seen: FleetTelemetry,
    setup: ControllerSetup,
) -> tuple[Flags, Floats]:
    """(quarantined, readmitted_at_s) after the allowed returns; ``state``: after the new quarantines."""
    options, now_s = setup.options, state.now_s[:, None]
    condemned = (state.replica_condemned & moves_traffic(setup.contract)).any(axis=(2, 3))
    served = now_s - state.quarantined_at_s >= options.readmit_after_s * np.minimum(state.quarantines, 10)
    clean = ~condemned & ~severe.any(axis=(2, 3)) & ~hung & ~stale[:, None]
    newest_s = state.probed_at_s.max(axis=2)
    asked_s = np.maximum(state.quarantined_at_s, now_s - setup.contract.window_s)
    answers = (newest_s > asked_s) | np.isneginf(newest_s).all(axis=1, keepdims=True)
    ready = seen.replica_state == ReplicaState.READY
    candidate = state.quarantined & ready & served & clean & answers
    quarantined, readmitted_at_s = state.quarantined.copy(), state.readmitted_at_s.copy()
    for replica, kernel in enumerate(setup.layout.replica_kernel):
        back = candidate[:, replica] & (state.now_s - readmitted_at_s[:, kernel] >= options.readmit_every_s)
        quarantined[back, replica] = False
        readmitted_at_s[back, kernel] = state.now_s[back]
    return quarantined, readmitted_at_s


def _share_of_others(state: ControllerState, seen: FleetTelemetry) -> Floats:
    """Share of the attempts of all others [B, R] that failed, of late or in this tick, the larger."""
    serving = (seen.replica_state == ReplicaState.READY) & ~state.quarantined
    shares = []
    for failed, answered in ((state.failed_rps, state.answered_rps), (seen.failed, seen.answered)):
        failed, ended = np.where(serving, failed, 0.0), np.where(serving, answered + failed, 0.0)
        others = ended.sum(axis=1, keepdims=True) - ended + 0.5
        shares.append(np.clip((failed.sum(axis=1, keepdims=True) - failed) / others, 0.0, 1.0))
    return np.asarray(np.maximum(*shares))


def _failing_in_a_row(
    after: ControllerState, before: ControllerState, seen: FleetTelemetry, setup: ControllerSetup
) -> Flags:
    """Replicas [B, R] that fail every request, more than chance explains."""
    rows = seen.consecutive_failed
    of_late = np.maximum(after.failed_rps * setup.options.smoothing_s, seen.failed)
    answered_between = of_late - rows >= np.maximum(rows, 1)  # it fails, and is not down
    others = _share_of_others(before, seen) ** np.maximum(rows, 1) >= CHANCE  # chance explains the row
    return np.asarray((rows >= setup.options.failing_after) & ~answered_between & ~others)


def plain_judgement(
    after: ControllerState,
    before: ControllerState,
    kernels: AlarmState,
    replicas: AlarmState,
    spread: Flags,
    down: Flags,
    seen: FleetTelemetry,
    setup: ControllerSetup,
) -> dict[str, Any]:
    """The results of the verdicts and of ``spread`` [B, R, S, C] and ``down`` [B, R] of quarantine."""
    contract, owner, (count, _, _) = setup.contract, setup.layout.replica_kernel, setup.layout.shape
    worst = over_kernels(np.where(spread, replicas.excess, 0.0), owner, count, np.maximum)
    alarm = kernels.alarm | (over_kernels(spread, owner, count, np.add) > 0)
    excess = np.maximum(kernels.excess, worst)
    condemned = alarm | (before.condemned & ~(kernels.inside & kernels.fresh))
    failing = _failing_in_a_row(after, before, seen, setup)
    down_until_at_s = plain_outages(after, down, failing, seen, setup)
    sick = (after.now_s[:, None] < down_until_at_s)[:, :, None]
    score, level = health(alarm, excess, contract)
    return {
        "alarm": alarm,
        "excess": excess,
        "down": sick[:, :, 0],
        "spread": alarm & ~kernels.alarm,
        "health": np.where(sick, np.maximum(score, contract.fallback_threshold), score),
        "level": np.where(sick, int(Level.FALLBACK), level),
        "hard_violated": (condemned & contract.hard).any(axis=3),
        "certified": ~(condemned & moves_traffic(contract)).any(axis=3) & ~sick,
        "evidence_count": kernels.judged[..., contract.source == Source.PROBE, COUNT].max(
            axis=3, initial=0.0
        ),
    }
