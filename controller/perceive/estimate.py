"""Telemetry to evidence: observations per replica, slice and clause, and their age.

Every observation adds to four sums (count, clipped values, squares, count over the threshold) of the running
window. For probes and gauges, sums are kept per replica; those of a kernel are the sums over its replicas
that are not quarantined. For clauses on traffic, the gateway counts per kernel and slice. A replica's own
counts cover all of its requests and only serve to compare it with its peers. Missing or late data adds
nothing: stale is not unhealthy.

Late answers of an overloaded kernel are no evidence against it, whether it is overloaded on average or by a
burst: the next kernel with that traffic would be overloaded too. The running window drops the latencies of
kernels that are or recently were overloaded; capacity is the business of the policies. The same holds for a
kernel to which one of our own moves has just sent more traffic: undoing the move is the answer
(``controller.supervise.own_moves``).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.contract import CompiledContract
from contracts.telemetry import FleetTelemetry, Source
from contracts.units import CLOCK_SLACK_S, MS_PER_S
from controller.cells import LEAST_BEHIND, some_in
from controller.detect.sums import Sums
from controller.options import ControllerSetup
from controller.perceive.accumulate import Sinks
from controller.perceive.capacity import learn_capacity
from controller.perceive.engine_steps import follow_engine_steps
from controller.perceive.excuse_pass import Overload, excuse_failing
from controller.perceive.identity import follow_statements, forget_wrong
from controller.perceive.on_the_way import FROM_REQUEST, Way, as_clients_saw, follow_the_way
from controller.perceive.planning import Estimates, hold_load
from controller.perceive.reading import add_observations, plain, pool_replicas, sinks_for
from controller.perceive.reception import (
    MOST_BEHIND_S,
    Arrived,
    Clocks,
    Pace,
    Rates,
    Serving,
    Traffic,
    follow,
    receive,
)
from controller.perceive.usual_speed import StepTimes, held_step_times, learn_usual
from controller.state import ControllerState, altered

#: Share of the tightest latency objective that the wait caused by a burst must reach. A shorter wait explains
#: no late answer, however often bursts come.
EXPLAINS_RATIO = 0.5
#: Lower bound of the duration of a tick, where it is a divisor.
_LEAST_TICK_S = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """State after a telemetry was accumulated, and the observations of this tick."""

    state: ControllerState
    closed: NDArray[np.bool_]  # [B], the window ends with this tick; ``state.window`` then holds it in full
    stale: NDArray[np.bool_]  # [B], nothing arrived for longer than ``stale_after_s``
    silent_s: NDArray[np.float64]  # [B], time since anything last arrived
    fresh: NDArray[np.bool_]  # [B, R], a new scrape arrived
    late_s: NDArray[np.float64]  # [B, R], time between gateway and server where it counts: ``on_the_way``
    failing_now: NDArray[np.bool_]  # [B, R], failed answers arrived that overload does not explain
    overload: Overload  # kernels whose late answers are no evidence
    received: NDArray[np.bool_]  # [B, P], probes that count as evidence
    since_s: NDArray[np.float64]  # [B], time since the last tick, >= 0
    sums: Sums  # [B, R, S, C, 4], of this tick; B = 0 where the detector judges only whole windows
    news: NDArray[np.bool_]  # [B, R, S], has observations in this tick; B = 0 as well
    kernel_sums: Sums  # [B, K, S, C, 4], of this tick, gateway and replicas in rotation; B = 0 as well
    kernel_news: NDArray[np.bool_]  # [B, K, S], has observations in this tick; B = 0 as well
    restated: NDArray[np.bool_] | None = None  # [B, R], states the right build again (None: no replica)
    consumed: bool = False  # the arrays of the previous state may be overwritten


def accumulate(
    state: ControllerState, telemetry: FleetTelemetry, setup: ControllerSetup, *, consume: bool = False
) -> Estimate:
    """Accumulate one tick of telemetry into the running window and the smoothed rates.

    With ``consume`` the window of ``state`` is written to instead of a copy.
    """
    now_s = telemetry.now_ms / MS_PER_S
    clocks = _receive(state, telemetry, now_s, setup)
    passed_s = np.maximum(clocks.since_s, _LEAST_TICK_S)
    rates = _follow(state, telemetry, clocks, now_s, passed_s, setup)
    sinks = sinks_for(state, setup, consume)
    overload = _overload(state, rates, now_s, setup)
    _excuse_overloaded(rates, telemetry, overload)
    held = held_step_times(state, telemetry, setup)
    way = follow_the_way(state, telemetry, clocks.fresh)
    client_view = as_clients_saw(telemetry, way.late_s, setup.layout.edges_ms)
    add_observations(sinks, client_view, clocks, overload, state, setup.contract, held.ratio)
    if setup.detector.by_observation:
        pool_replicas(sinks, ~state.quarantined, setup)
    silent_s = now_s - clocks.received_at_s
    statements = follow_statements(state.right_in_a_row, telemetry, clocks.fresh)
    forget_wrong(sinks.window, statements.restated, setup.contract)
    changes = _learn(state, telemetry, clocks, rates, held, setup) | {
        "right_in_a_row": statements.right_in_a_row
    }
    return Estimate(
        state=_moved_on(state, now_s, clocks, rates, sinks, way, changes),
        closed=clocks.closed,
        stale=silent_s > setup.contract.stale_after_s,
        silent_s=silent_s,
        fresh=clocks.fresh,
        restated=statements.restated,
        late_s=way.late_s,
        failing_now=rates.failing_now,
        overload=overload,
        received=clocks.received,
        since_s=np.maximum(clocks.since_s, 0.0),
        sums=sinks.sums,
        news=sinks.news,
        kernel_sums=sinks.kernel_sums,
        kernel_news=sinks.kernel_news,
        consumed=consume,
    )


def _excuse_overloaded(rates: Rates, telemetry: FleetTelemetry, overload: Overload) -> None:
    """Clear ``rates.failing_now`` where overload explains the failures; in place."""
    if some_in(rates.failing_now):
        failures = plain(telemetry.gateway.failed), plain(telemetry.gateway.timed_out)
        excuse_failing(rates.failing_now, *failures, tuple(overload))


def _learn(
    state: ControllerState,
    telemetry: FleetTelemetry,
    clocks: Clocks,
    rates: Rates,
    held: StepTimes,
    setup: ControllerSetup,
) -> dict[str, Any]:
    """Changes of the state: capacities, usual step times, engine steps, and loads for planning."""
    learned = learn_capacity(state, telemetry, clocks, rates, setup)
    carried = learned.get("replica_rps", state.replica_rps), learned.get("least_rps", state.least_rps)
    passed_s = np.maximum(clocks.since_s, _LEAST_TICK_S)
    planning = hold_load(state, Estimates(passed_s, rates.offered_rps, *carried), telemetry, setup)
    steps = follow_engine_steps(state, telemetry, clocks.fresh, setup.contract.stale_after_s)
    return {**learned, **learn_usual(held, learned, clocks.fresh), **steps, "planning": planning}


def _overload(
    state: ControllerState, rates: Rates, now_s: NDArray[np.float64], setup: ControllerSetup
) -> Overload:
    """Kernels whose late answers are no evidence: overloaded ones, and targets of our own recent moves."""
    explained_at_s = np.asarray(state.own_moves["explained_at_s"], dtype=np.float64)
    excused_at_s = np.maximum(rates.overloaded_at_s, explained_at_s)
    return Overload(excused_at_s, now_s, setup.layout.replica_kernel, setup.contract.window_s)


@lru_cache(maxsize=64)
def _explaining_s(contract: CompiledContract, behind_s: float) -> float:
    """Least backlog with which a burst explains late answers, in seconds of work; at least ``behind_s``."""
    judged = (contract.source == Source.LATENCY) & np.isin(contract.column, FROM_REQUEST)
    tightest_s = float(contract.threshold[judged].min(initial=np.inf)) / MS_PER_S
    explaining_s = EXPLAINS_RATIO * min(tightest_s, MOST_BEHIND_S) if np.isfinite(tightest_s) else 0.0
    return max(behind_s, explaining_s)


def _moved_on(
    state: ControllerState,
    now_s: NDArray[np.float64],
    clocks: Clocks,
    rates: Rates,
    sinks: Sinks,
    way: Way,
    changes: dict[str, Any],
) -> ControllerState:
    """``state`` updated by one telemetry."""
    return altered(
        state,
        ticks=state.ticks + 1,
        now_s=now_s,
        window_began_at_s=clocks.window_began_at_s,
        window=sinks.window,
        kernel_window=sinks.kernel_window,
        received_at_s=clocks.received_at_s,
        scraped_at_s=clocks.scraped_at_s,
        progressed_at_s=rates.progressed_at_s,
        probed_at_s=sinks.probed_at_s,
        offered_rps=rates.offered_rps,
        answered_rps=rates.answered_rps,
        failed_rps=rates.failed_rps,
        overloaded_at_s=rates.overloaded_at_s,
        behind=rates.behind,
        way_s=way.way_s,
        way_block=way.block,
        **changes,
    )


def _receive(
    state: ControllerState, telemetry: FleetTelemetry, now_s: NDArray[np.float64], setup: ControllerSetup
) -> Clocks:
    """New arrivals, and the clocks that they advance."""
    probes = telemetry.probes
    clocks = Clocks(
        window_began_at_s=state.window_began_at_s.copy(),
        since_s=np.empty(now_s.shape),
        closed=np.empty(now_s.shape, dtype=np.bool_),
        scraped_at_s=state.scraped_at_s.copy(),
        received_at_s=state.received_at_s.copy(),
        fresh=np.empty(state.scraped_at_s.shape, dtype=np.bool_),
        received=np.empty(probes.valid.shape, dtype=np.bool_),
    )
    arrived = tuple(Arrived(plain(telemetry.scraped_at_ms), plain(probes.sampled_at_ms), plain(probes.valid)))
    window_s = setup.contract.window_s - CLOCK_SLACK_S
    receive(
        tuple(clocks), arrived, state.now_s, now_s, setup.fleet.tick_s, window_s, setup.contract.stale_after_s
    )
    return clocks


def _follow(
    state: ControllerState,
    telemetry: FleetTelemetry,
    clocks: Clocks,
    now_s: NDArray[np.float64],
    passed_s: NDArray[np.float64],
    setup: ControllerSetup,
) -> Rates:
    """Progress of replicas, exponentially smoothed rates in requests per second, and overload."""
    rates = Rates(
        progressed_at_s=state.progressed_at_s.copy(),
        answered_rps=state.answered_rps.copy(),
        failed_rps=state.failed_rps.copy(),
        offered_rps=state.offered_rps.copy(),
        failing_now=np.empty(clocks.fresh.shape, dtype=np.bool_),
        overloaded_at_s=state.overloaded_at_s.copy(),
        behind=state.behind.copy(),
    )
    traffic = Traffic(
        clocks.fresh,
        plain(telemetry.running),
        plain(telemetry.waiting),
        plain(telemetry.replica_state),
        plain(telemetry.answered),
        plain(telemetry.failed),
        plain(telemetry.offered),
    )
    serving = Serving(
        state.quarantined,
        plain(state.ejected),
        state.needed,
        plain(state.table),
        setup.layout.replica_kernel,
        state.healthy_rps,
        setup.options.overload_ratio,
        LEAST_BEHIND / (2.0 * setup.options.smoothing_s),
        _explaining_s(setup.contract, setup.options.behind_s),
    )
    pace = Pace(now_s, passed_s, np.exp(-passed_s / setup.options.smoothing_s), state.ticks == 0)
    follow(tuple(rates), tuple(traffic), tuple(pace), tuple(serving))
    return rates
