"""Telemetry to evidence: what each replica showed on each slice for each clause, and how old it is.

Every observation unit adds to four sums (units, clipped values, squares, units over the threshold) of
the running window. Sums are kept per replica; those of a kernel are the sums of its replicas that are
not quarantined. What is missing or late adds nothing: stale is not bad.

Late answers of a kernel that is offered more than it carries are no evidence against it: whoever takes its
traffic is overloaded next. The running window forgets the latencies of kernels that are, or lately were,
overloaded; capacity is the policies' business.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contracts.compiled import CompiledContract, Source
from contracts.telemetry import FleetTelemetry
from contracts.units import MS_PER_S
from controller.compiled import (
    add_up,
    excuse_overloaded,
    fold_gauges,
    fold_probes,
    fold_requests,
    follow_rates,
    hear,
    note_overload,
    pass_time,
    pool_included,
)
from controller.detectors import Sums, probe_clauses
from controller.setup import ControllerSetup
from controller.state import ControllerState, altered

#: Float clocks of equal ticks add up to windows that miss their end by rounding; this much is ignored.
_CLOCK_SLACK_S = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """State after the fold, and what this tick adds to it.

    closed: bool [B], the window ends with this tick (``state.window`` then holds it in full).
    stale: bool [B], nothing arrived for longer than ``stale_after_s``. silent_s: float64 [B], for how long.
    fresh: bool [B, R], a new scrape arrived. failing_now: bool [B, R], failed answers arrived.
    heard: bool [B, P], probes that count as evidence. since_s: float64 [B], time since the last tick.
    sums: float64 [B, R, S, C, 4] of this tick alone, news: bool [B, R, S], where anything came; both without
    a fleet (B = 0) where no detector is ``by_unit``.
    """

    state: ControllerState
    closed: NDArray[np.bool_]
    stale: NDArray[np.bool_]
    silent_s: NDArray[np.float64]
    fresh: NDArray[np.bool_]
    failing_now: NDArray[np.bool_]
    heard: NDArray[np.bool_]
    since_s: NDArray[np.float64]
    sums: Sums
    news: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Heard:
    """What of a telemetry is evidence, by its age: probes bool [B, P]; fresh bool [B, R], new scrapes."""

    probes: NDArray[np.bool_]
    fresh: NDArray[np.bool_]


def fold(
    state: ControllerState, seen: FleetTelemetry, setup: ControllerSetup, *, consume: bool = False
) -> Estimate:
    """Fold one tick of telemetry into the running window and the smoothed rates.

    With ``consume`` the window of ``state`` is written to instead of a copy.
    """
    now_s = seen.now_ms / MS_PER_S
    started, since_s = state.window_start_s.copy(), np.empty(now_s.shape)
    closed = np.empty(now_s.shape, dtype=np.bool_)
    pass_time(
        started, since_s, closed, state.now_s, now_s, setup.fleet.tick_s,
        setup.contract.window_s - _CLOCK_SLACK_S,
    )  # fmt: skip
    scraped_s, heard_s = state.scraped_s.copy(), state.heard_s.copy()
    heard = _hear(scraped_s, heard_s, seen, now_s, setup.contract.stale_after_s)
    rates = _follow(state, seen, now_s, since_s, heard.fresh, setup)
    window = state.window if consume else state.window.copy()
    fleets = len(now_s) if setup.detector.by_unit else 0
    sums, news = np.zeros((fleets, *window.shape[1:])), np.zeros((fleets, *window.shape[1:3]), dtype=np.bool_)
    probed_s = state.probed_s.copy()
    _fold_all(window, sums, news, probed_s, seen, heard, setup.contract)
    overloaded_s = _note_overload(state, seen, now_s, rates.offered_rps, setup)
    for bearer in (window, sums):
        excuse_overloaded(
            bearer, overloaded_s, now_s, setup.contract.window_s, setup.layout.replica_kernel,
            _clauses(setup.contract).latency,
        )  # fmt: skip
    silent_s = now_s - heard_s
    return Estimate(
        state=altered(
            state, now_s=now_s, window_start_s=started, window=window, heard_s=heard_s, scraped_s=scraped_s,
            progress_s=rates.progress_s, probed_s=probed_s, offered_rps=rates.offered_rps,
            answered_rps=rates.answered_rps, failed_rps=rates.failed_rps, ticks=state.ticks + 1,
            overloaded_s=overloaded_s,
        ),
        closed=closed,
        stale=silent_s > setup.contract.stale_after_s,
        silent_s=silent_s,
        fresh=heard.fresh,
        failing_now=rates.failing_now,
        heard=heard.probes,
        since_s=np.maximum(since_s, 0.0),
        sums=sums,
        news=news,
    )  # fmt: skip


def _hear(
    scraped_s: NDArray[np.float64], heard_s: NDArray[np.float64], seen: FleetTelemetry,
    now_s: NDArray[np.float64], stale_after_s: float,
) -> _Heard:  # fmt: skip
    """What is older than ``stale_after_s`` on arrival says nothing of now. Moves both clocks on."""
    fresh = np.empty(scraped_s.shape, dtype=np.bool_)
    probes = np.empty(seen.probes.valid.shape, dtype=np.bool_)
    hear(
        scraped_s, heard_s, fresh, probes, now_s, stale_after_s, _plain(seen.scraped_at_ms),
        _plain(seen.probes.sampled_at_ms), _plain(seen.probes.valid),
    )  # fmt: skip
    return _Heard(probes=probes, fresh=fresh)


def next_window(state: ControllerState, closed: NDArray[np.bool_]) -> ControllerState:
    """Begin a new window where the old one closed."""
    if not bool(closed.any()):
        return state
    return altered(
        state,
        window=np.where(closed[:, None, None, None, None], 0.0, state.window),
        window_start_s=np.where(closed, state.now_s, state.window_start_s),
    )


def pool(sums: Sums, included: NDArray[np.bool_], replica_kernel: NDArray[np.int64], kernels: int) -> Sums:
    """Sums [B, K, S, C, 4] of the ``included`` [B, R] replicas of each kernel, added in replica order."""
    pooled = np.zeros((sums.shape[0], kernels, *sums.shape[2:]))
    pool_included(_flat(pooled), _flat(sums), included, replica_kernel)
    return pooled


def kernel_count(
    mask: NDArray[np.bool_], replica_kernel: NDArray[np.int64], kernels: int
) -> NDArray[np.int64]:
    """Number [B, K, ...] of replicas [B, R, ...] of each kernel where ``mask`` holds."""
    count = np.zeros((mask.shape[0], kernels, *mask.shape[2:]), dtype=np.int64)
    add_up(_flat(count), _flat(mask), replica_kernel)
    return count


def _flat(values: NDArray[Any]) -> NDArray[Any]:
    """[B, R, X] with everything behind the second axis in one; a view where the array is contiguous."""
    batch, replicas = values.shape[:2]
    return np.ascontiguousarray(values).reshape(batch, replicas, prod(values.shape[2:]))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rates:
    """``ControllerState`` and ``Estimate`` say what they are."""

    progress_s: NDArray[np.float64]
    offered_rps: NDArray[np.float64]
    answered_rps: NDArray[np.float64]
    failed_rps: NDArray[np.float64]
    failing_now: NDArray[np.bool_]


def _follow(
    state: ControllerState, seen: FleetTelemetry, now_s: NDArray[np.float64], since_s: NDArray[np.float64],
    fresh: NDArray[np.bool_], setup: ControllerSetup,
) -> _Rates:  # fmt: skip
    """Progress of replicas and exponentially smoothed rates in requests per second."""
    passed_s = np.maximum(since_s, 1e-3)
    rates = _Rates(
        progress_s=state.progress_s.copy(),
        offered_rps=state.offered_rps.copy(),
        answered_rps=state.answered_rps.copy(),
        failed_rps=state.failed_rps.copy(),
        failing_now=np.empty(fresh.shape, dtype=np.bool_),
    )
    follow_rates(
        rates.progress_s, rates.answered_rps, rates.failed_rps, rates.offered_rps, rates.failing_now, now_s,
        passed_s, np.exp(-passed_s / setup.options.smoothing_s), state.ticks == 0, fresh,
        _plain(seen.running), _plain(seen.replica_state), _plain(seen.answered), _plain(seen.failed),
        _plain(seen.offered),
    )  # fmt: skip
    return rates


def _note_overload(
    state: ControllerState, seen: FleetTelemetry, now_s: NDArray[np.float64],
    offered_rps: NDArray[np.float64], setup: ControllerSetup,
) -> NDArray[np.float64]:  # fmt: skip
    """When each kernel was last offered more than it carries, float64 [B, K]."""
    overloaded_s = state.overloaded_s.copy()
    note_overload(
        overloaded_s, now_s, _plain(seen.replica_state), state.quarantined | state.ejected,
        setup.layout.replica_kernel, _plain(state.table), offered_rps, setup.fleet.capacity_rps,
        setup.options.overload_ratio,
    )  # fmt: skip
    return overloaded_s


@dataclass(frozen=True, slots=True, kw_only=True)
class _Clauses:
    """Which clauses read what, int64 each: probes; answers and failures; of these, latencies; gauges.

    applies: bool [C, S], contiguous.
    """

    probes: NDArray[np.int64]
    requests: NDArray[np.int64]
    latency: NDArray[np.int64]
    gauges: NDArray[np.int64]
    applies: NDArray[np.bool_]


@lru_cache(maxsize=64)
def _clauses(contract: CompiledContract) -> _Clauses:
    source = contract.source
    gauges = (source >= Source.FINGERPRINT) & (source <= Source.KV_USED)
    return _Clauses(
        probes=probe_clauses(contract),
        requests=np.flatnonzero((source == Source.LATENCY) | (source == Source.FAILED)),
        latency=np.flatnonzero(source == Source.LATENCY),
        gauges=np.flatnonzero(gauges),
        applies=_plain(contract.applies),
    )


def _fold_all(
    window: Sums,
    sums: Sums,
    news: NDArray[np.bool_],
    probed_s: NDArray[np.float64],
    seen: FleetTelemetry,
    heard: _Heard,
    contract: CompiledContract,
) -> None:
    """Add this tick's units to ``window`` and ``sums``, newest probe instants to ``probed_s``, in place."""
    probes, mine = seen.probes, _clauses(contract)
    fold_probes(
        window, sums, news, probed_s, _plain(probes.replica), _plain(probes.slice),
        _plain(probes.sampled_at_ms), _plain(probes.values), heard.probes, mine.probes, contract.column,
        contract.threshold, contract.sense, contract.clip, mine.applies,
    )  # fmt: skip
    fold_requests(
        window, sums, news, _plain(seen.answered), _plain(seen.failed), _plain(seen.latency_le), heard.fresh,
        mine.requests, contract.source, contract.column, contract.edge, mine.applies,
    )  # fmt: skip
    fold_gauges(
        window, sums, news, _plain(seen.fingerprint_match), _plain(seen.trace_fields_ratio),
        _plain(seen.kv_used_ratio), heard.fresh, mine.gauges, contract.source, contract.threshold,
        contract.sense, mine.applies,
    )  # fmt: skip


def _plain(values: NDArray[Any]) -> NDArray[Any]:
    """Contiguous: numba would compile once more for other strides."""
    return np.ascontiguousarray(values)
