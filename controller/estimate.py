"""Telemetry to evidence: what each replica showed on each slice for each clause, and how old it is.

Every observation unit adds to four sums (units, clipped values, squares, units over the threshold) of
the running window. Sums are kept per replica; those of a kernel are the sums of its replicas that are
not quarantined. What is missing or late adds nothing: stale is not bad.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contracts.compiled import CompiledContract
from contracts.telemetry import FleetTelemetry, ReplicaState
from contracts.units import MS_PER_S
from controller.compiled import add_up, fold_gauges, fold_probes, fold_requests, largest
from controller.detectors import Sums
from controller.setup import ControllerSetup
from controller.state import ControllerState

#: Float clocks of equal ticks add up to windows that miss their end by rounding; this much is ignored.
_CLOCK_SLACK_S = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """State after the fold, and what this tick adds to it.

    closed: bool [B], the window ends with this tick (``state.window`` then holds it in full).
    stale: bool [B], nothing arrived for longer than ``stale_after_s``. silent_s: float64 [B], for how long.
    fresh: bool [B, R], a new scrape arrived. failing_now: bool [B, R], failed answers arrived.
    heard: bool [B, P], probes that count as evidence.
    """

    state: ControllerState
    closed: NDArray[np.bool_]
    stale: NDArray[np.bool_]
    silent_s: NDArray[np.float64]
    fresh: NDArray[np.bool_]
    failing_now: NDArray[np.bool_]
    heard: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Heard:
    """What of a telemetry counts as evidence, by its age: probes bool [B, P]; fresh, known bool [B, R].

    fresh: a new scrape arrived. known: the newest scrape is not stale.
    """

    probes: NDArray[np.bool_]
    fresh: NDArray[np.bool_]
    known: NDArray[np.bool_]


def fold(state: ControllerState, seen: FleetTelemetry, setup: ControllerSetup) -> Estimate:
    """Fold one tick of telemetry into the running window and the smoothed rates."""
    now_s = seen.now_ms / MS_PER_S
    started = np.where(np.isnan(state.window_start_s), now_s, state.window_start_s)
    scraped_s = np.fmax(state.scraped_s, seen.scraped_at_ms / MS_PER_S)
    fresh = scraped_s > np.where(np.isnan(state.scraped_s), -np.inf, state.scraped_s)
    heard = _hear(seen, now_s, fresh, scraped_s, setup.contract.stale_after_s)
    anything = heard.fresh.any(axis=1) | heard.probes.any(axis=1) | np.isnan(state.heard_s)
    heard_s = np.where(anything, now_s, state.heard_s)
    window, probed_s = state.window.copy(), state.probed_s.copy()
    _fold_all(window, probed_s, seen, heard, setup.contract)
    progress_s = _progress(state, seen, now_s, heard.fresh)
    smoothed = _smooth(state, seen, now_s, setup)
    folded = replace(
        state, now_s=now_s, window_start_s=started, window=window, heard_s=heard_s, scraped_s=scraped_s,
        progress_s=progress_s, probed_s=probed_s, offered_rps=smoothed[0], answered_rps=smoothed[1],
        failed_rps=smoothed[2], ticks=state.ticks + 1,
    )  # fmt: skip
    silent_s = now_s - heard_s
    return Estimate(
        state=folded,
        closed=now_s - started >= setup.contract.window_s - _CLOCK_SLACK_S,
        stale=silent_s > setup.contract.stale_after_s,
        silent_s=silent_s,
        fresh=heard.fresh,
        failing_now=seen.failed.sum(axis=2) > 0,
        heard=heard.probes,
    )


def _hear(
    seen: FleetTelemetry, now_s: NDArray[np.float64], newer: NDArray[np.bool_],
    scraped_s: NDArray[np.float64], stale_after_s: float,
) -> _Heard:  # fmt: skip
    """What is older than ``stale_after_s`` on arrival says nothing about now."""
    oldest_s = (now_s - stale_after_s)[:, None]
    known = scraped_s >= oldest_s
    probes = seen.probes.valid & (seen.probes.sampled_at_ms >= oldest_s * MS_PER_S)
    return _Heard(probes=probes, fresh=newer & known, known=known)


def next_window(state: ControllerState, closed: NDArray[np.bool_]) -> ControllerState:
    """Begin a new window where the old one closed."""
    if not bool(closed.any()):
        return state
    return replace(
        state,
        window=np.where(closed[:, None, None, None, None], 0.0, state.window),
        window_start_s=np.where(closed, state.now_s, state.window_start_s),
    )


def pool(sums: Sums, included: NDArray[np.bool_], replica_kernel: NDArray[np.int64], kernels: int) -> Sums:
    """Sums [B, K, S, C, 4] of the ``included`` [B, R] replicas of each kernel, added in replica order."""
    return kernel_sum(np.where(included[:, :, None, None, None], sums, 0.0), replica_kernel, kernels)


def kernel_max(
    values: NDArray[np.float64], replica_kernel: NDArray[np.int64], kernels: int
) -> NDArray[np.float64]:
    """Largest value [B, K, ...] over the replicas [B, R, ...] of each kernel (-inf: no replica)."""
    best = np.full((values.shape[0], kernels, *values.shape[2:]), -np.inf)
    largest(_flat(best), _flat(values), replica_kernel)
    return best


def kernel_count(
    mask: NDArray[np.bool_], replica_kernel: NDArray[np.int64], kernels: int
) -> NDArray[np.int64]:
    """Number [B, K, ...] of replicas [B, R, ...] of each kernel where ``mask`` holds."""
    count = np.zeros((mask.shape[0], kernels, *mask.shape[2:]), dtype=np.int64)
    add_up(_flat(count), _flat(mask), replica_kernel)
    return count


def kernel_sum(
    values: NDArray[np.float64], replica_kernel: NDArray[np.int64], kernels: int
) -> NDArray[np.float64]:
    """Sum [B, K, ...] over the replicas [B, R, ...] of each kernel, added in replica order."""
    total = np.zeros((values.shape[0], kernels, *values.shape[2:]))
    add_up(_flat(total), _flat(values), replica_kernel)
    return total


def _flat(values: NDArray[Any]) -> NDArray[Any]:
    """[B, R, X] with everything behind the second axis in one; a view where the array is contiguous."""
    batch, replicas = values.shape[:2]
    return np.ascontiguousarray(values).reshape(batch, replicas, int(np.prod(values.shape[2:])))


def _progress(
    state: ControllerState, seen: FleetTelemetry, now_s: NDArray[np.float64], fresh: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """When each replica last answered, or had nothing to answer: nothing running, or not ready at all.

    Without a fresh scrape nobody knows, so the clock of a silent replica stands still: stale is not hung.
    """
    idle = (fresh & ~(seen.running > 0.0)) | (seen.replica_state != ReplicaState.READY)
    moved = idle | (seen.answered.sum(axis=2) > 0)
    known = np.where(np.isnan(state.progress_s), now_s[:, None], state.progress_s)
    return np.where(moved, now_s[:, None], known)


def _smooth(
    state: ControllerState, seen: FleetTelemetry, now_s: NDArray[np.float64], setup: ControllerSetup
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Exponential smoothing of offered [B, S], answered and failed [B, R] rates, in requests per second."""
    since_s = np.where(np.isnan(state.now_s), setup.fleet.tick_s, now_s - state.now_s)
    since_s = np.maximum(since_s, 1e-3)[:, None]
    keep = np.exp(-since_s / setup.options.smoothing_s)
    first = (state.ticks == 0)[:, None]
    rates = (seen.offered, seen.answered.sum(axis=2), seen.failed.sum(axis=2))
    before = (state.offered_rps, state.answered_rps, state.failed_rps)
    offered, answered, failed = (
        np.where(first, rate / since_s, keep * old + (1.0 - keep) * rate / since_s)
        for rate, old in zip(rates, before, strict=True)
    )
    return offered, answered, failed


def _fold_all(
    window: Sums,
    probed_s: NDArray[np.float64],
    seen: FleetTelemetry,
    heard: _Heard,
    contract: CompiledContract,
) -> None:
    """Add this tick's units to ``window`` and the newest probe instants to ``probed_s``, in place."""
    probes, plain = seen.probes, np.ascontiguousarray  # other strides would compile once more
    fold_probes(
        window, probed_s, plain(probes.replica), plain(probes.slice), plain(probes.sampled_at_ms),
        plain(probes.values), heard.probes, contract.source, contract.column, contract.threshold,
        contract.sense, contract.clip, plain(contract.applies),
    )  # fmt: skip
    fold_requests(
        window, plain(seen.answered), plain(seen.failed), plain(seen.latency_le), heard.known,
        contract.source, contract.column, contract.edge, plain(contract.applies),
    )  # fmt: skip
    gauges = np.stack(
        [1.0 - seen.fingerprint_match, 1.0 - seen.trace_fields_ratio, seen.kv_used_ratio], axis=-1
    )
    fold_gauges(
        window, gauges, heard.fresh, contract.source, contract.threshold, contract.sense,
        plain(contract.applies),
    )  # fmt: skip
