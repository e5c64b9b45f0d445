"""Capacity of each kernel, learned from the counters of its engines.

The certified step-time model gives the duration of a step for a batch. The counters of a scrape give the
measured duration of steps and their batches. The ratio of the two is the slowness of the replica. Together
with the tokens of the newest requests it gives the requests per second that a replica can carry of *this*
traffic. A declared capacity is used only where no engine model is certified.

The slowness is a normal variable on the log scale, with a prior around the certified model and one
observation per scrape. Moves are planned against the lower limit of the capacity. A rate that a replica
answers without a queue is a proven lower limit.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.steady_state import EngineModel
from contracts.telemetry import FleetTelemetry
from contracts.units import MS_PER_S
from controller.cells import some_in
from controller.options import CapacityOptions, ControllerSetup
from controller.perceive.capacity_pass import CarriedCounts, Certified, Learned, learn
from controller.perceive.queue_pass import count_waiting
from controller.perceive.reception import READY, Clocks, Rates
from controller.perceive.usual_speed import usual_of_kernels
from controller.state import ControllerState


def learn_capacity(
    state: ControllerState, telemetry: FleetTelemetry, clocks: Clocks, rates: Rates, setup: ControllerSetup
) -> dict[str, NDArray[np.float64]]:
    """Changes of the state: sums over requests and scrapes, and the resulting capacities."""
    engine = setup.fleet.engine
    if engine is None:
        waiting = _waiting(state, telemetry, clocks, setup)
        unknown = np.full_like(waiting, np.inf)
        return {"too_many": waiting, "surely_too_many": waiting.copy(), "filled_ratio": unknown}
    learned = Learned(
        tokens=state.request_tokens.copy(),
        speed=state.engine_speed.copy(),
        replica_rps=np.empty_like(state.replica_rps),
        least_rps=np.empty_like(state.replica_rps),
        healthy_rps=np.empty_like(state.replica_rps),
        too_many=np.empty_like(state.replica_rps),
        surely_too_many=np.empty_like(state.replica_rps),
        filled_ratio=np.empty_like(state.replica_rps),
    )
    counted = _counted(state, telemetry, clocks, rates, setup)
    known = _certified(engine, setup.options.capacity)
    learn(tuple(learned), counted, known, setup.layout.replica_kernel)
    return {
        "request_tokens": learned.tokens,
        "engine_speed": learned.speed,
        "replica_rps": learned.replica_rps,
        "least_rps": learned.least_rps,
        "healthy_rps": learned.healthy_rps,
        "too_many": learned.too_many,
        "surely_too_many": learned.surely_too_many,
        "filled_ratio": learned.filled_ratio,
    }


def _waiting(
    state: ControllerState, telemetry: FleetTelemetry, clocks: Clocks, setup: ControllerSetup
) -> NDArray[np.float64]:
    """float64 [B, K]: waiting requests of a replica, for fleets without a certified engine model."""
    waiting = np.zeros_like(state.replica_rps)
    counted = *_requests(telemetry, clocks, setup), _serving(state, telemetry)
    count_waiting(waiting, *counted, setup.layout.replica_kernel)
    return waiting


def _requests(
    telemetry: FleetTelemetry, clocks: Clocks, setup: ControllerSetup
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(running, waiting), float64 [B, R], by the newest scrape; NaN where that scrape is stale.

    A queue that was last reported so long ago may be gone.
    """
    plain = np.ascontiguousarray
    running, waiting = plain(telemetry.running), plain(telemetry.waiting)
    age_s = telemetry.now_ms[:, None] / MS_PER_S - clocks.scraped_at_s
    stale = age_s > setup.contract.stale_after_s
    if not some_in(stale):
        return running, waiting
    return np.where(stale, np.nan, running), np.where(stale, np.nan, waiting)


def _serving(state: ControllerState, telemetry: FleetTelemetry) -> NDArray[np.bool_]:
    """bool [B, R]: ready, and neither in quarantine nor ejected."""
    ready = telemetry.replica_state == READY
    return np.asarray(ready & ~state.quarantined & ~state.ejected, dtype=np.bool_)


def _counted(
    state: ControllerState, telemetry: FleetTelemetry, clocks: Clocks, rates: Rates, setup: ControllerSetup
) -> tuple[NDArray[Any], ...]:
    engine, plain, options = telemetry.engine, np.ascontiguousarray, setup.options.capacity
    running, waiting = _requests(telemetry, clocks, setup)
    counted = CarriedCounts(
        fresh=clocks.fresh,
        span_s=plain(engine.span_s),
        prompt_tokens=plain(engine.prompt_tokens),
        generation_tokens=plain(engine.generation_tokens),
        inter_token_s=plain(engine.inter_token_s),
        inter_tokens=plain(engine.inter_tokens),
        admitted=plain(engine.admitted),
        finished=plain(engine.finished),
        running=running,
        waiting=waiting,
        kv_used_ratio=plain(telemetry.kv_used_ratio),
        answered_rps=rates.answered_rps,
        serving=_serving(state, telemetry),
        early=state.ticks * setup.fleet.tick_s < options.patience_s,
        usual=usual_of_kernels(state, setup.layout.replica_kernel),
        forget=np.exp(-np.maximum(clocks.since_s, 0.0) / options.forget_s),
    )
    return tuple(counted)


@lru_cache(maxsize=64)
def _certified(engine: EngineModel, options: CapacityOptions) -> tuple[Any, ...]:
    """The certified model and settings as a plain tuple; the caller adds the kernel of each replica."""
    return tuple(
        Certified(
            step_s=np.ascontiguousarray(engine.step_s, dtype=np.float64),
            sequences=engine.sequences,
            kv_tokens=engine.kv_tokens,
            objectives=engine.objectives,
            step_tokens=float(engine.step_tokens),
            longest_prompt=float(engine.longest.prompt_tokens),
            longest_output=float(engine.longest.output_tokens),
            prompt_tokens=float(engine.demand.prompt_tokens),
            output_tokens=float(engine.demand.output_tokens),
            spread=engine.spread,
            noise=options.scrape_noise,
            few=options.few_sequences,
            floor=options.floor,
            prior_requests=options.prior_requests,
            memory_requests=options.memory_requests,
            memory_scrapes=options.memory_scrapes,
            quantile=options.quantile,
        )
    )
