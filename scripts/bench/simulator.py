"""Benchmark of the fleet simulator: ``selvage bench simulator``.

One fleet without faults: 12 replicas of three kernels, 60 requests/s, 512 prompt and 128 output tokens on
average (log-normal). A SimPy process ticks every simulated second, draws the arrivals, advances the
engine and reads counters, gauges and histograms, as the real fleet does. All times are CPU seconds of
this process; rates are medians of several runs.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Generator
from typing import Any

import numpy as np
import simpy

from contracts.workload.arrivals import LengthLaw, constant_rate
from simulator.engine.api import FleetEngine, warm
from simulator.engine.counters import Counters
from simulator.engine.gauges import Gauges
from simulator.engine.spec import EngineSpec
from simulator.world.traffic import DrawnTraffic
from simulator.world.workload import WorkloadSpec

SEED = 2026
SLICES = 5
PROMPTS_PER_SLICE = 60
CONDITIONS = 8
#: Seconds per step like a 7B model's: base, per prefill token, per decode, per context token.
STEP_MODEL = ((8e-3, 9.3e-5, 3e-5, 3.3e-7), (7e-3, 8.5e-5, 2.8e-5, 3.0e-7), (9.5e-3, 10.5e-5, 3.2e-5, 3.6e-7))
REQUESTS_PER_REPLICA_S = 5.0
RUNS = 7
WARM_UP_FEEDS = 30


def run() -> dict[str, object]:
    """All figures, flat; machine and versions are added by the command."""
    warm()
    fleet = [_requests_per_cpu_s(12, 2700.0, SEED + i) for i in range(RUNS)]
    small, large = _growth_runs()
    return {
        "seed": SEED,
        "runs": RUNS,
        "replicas": 12,
        "rate_rps": 60.0,
        "fleets_in_lock_step": 1,
        "requests_per_cpu_s": round(statistics.median(fleet)),
        "simpy_events_per_cpu_s": round(statistics.median(_simpy_rate() for _ in range(RUNS))),
        "requests_per_cpu_s_4_replicas": round(statistics.median(small)),
        "requests_per_cpu_s_256_replicas": round(statistics.median(large)),
        "cost_growth_4_to_256": round(max(small) / max(large) - 1.0, 4),
        "cost_growth_4_to_256_of_medians": round(
            statistics.median(small) / statistics.median(large) - 1.0, 4
        ),
    }


def fleet_spec(replicas: int, **changes: Any) -> EngineSpec:
    """So many replicas of three kernels; ``changes`` are fields of ``EngineSpec``."""
    kernels = len(STEP_MODEL)
    quality = np.random.default_rng(SEED).random((kernels, CONDITIONS, SLICES * PROMPTS_PER_SLICE))
    fields: dict[str, Any] = {
        "replica_kernel": np.arange(replicas) % kernels,
        "step_model": np.array(STEP_MODEL),
        "kv_blocks": np.full(kernels, 2000),
        "timeout_s": np.full(SLICES, 60.0),
        "slo_ms": np.tile([20_000.0, 1000.0, 60.0], (SLICES, 1)),
        "quality": quality,
        "hard_slices": np.arange(SLICES) == 0,
    }
    return EngineSpec(**{**fields, **changes})


def workload(rate_rps: float) -> WorkloadSpec:
    """Poisson arrivals with log-normal lengths, all slices alike."""
    return WorkloadSpec(
        profile=constant_rate(rate_rps),
        slice_share=np.full(SLICES, 1.0 / SLICES),
        prompt_tokens=(LengthLaw(mean=512.0, sigma=0.8, low=8, high=4096),),
        output_tokens=(LengthLaw(mean=128.0, sigma=0.8, low=2, high=2048),),
        prompt_ids=np.arange(SLICES * PROMPTS_PER_SLICE),
        prompt_offsets=np.arange(SLICES + 1) * PROMPTS_PER_SLICE,
    )


def even_table(spec: EngineSpec) -> Any:
    """Every replica the same share, nothing shed; [1, S, K + 1]."""
    share = np.bincount(spec.replica_kernel, minlength=spec.kernels + 1) / spec.replicas
    return np.tile(share, (1, spec.slices, 1))


class _TickedFleet:
    """A SimPy process that does the work of the real fleet once per simulated second."""

    def __init__(self, env: simpy.Environment, replicas: int, seed: int) -> None:
        self.spec = fleet_spec(replicas)
        self.engine = FleetEngine(self.spec, 1)
        self.engine.set_table(even_table(self.spec))
        self.traffic = DrawnTraffic([workload(REQUESTS_PER_REPLICA_S * replicas)], [seed])
        self.offered = np.zeros((1, SLICES), np.int64)
        self.env = env
        self.read: tuple[Counters, Gauges, Any] | None = None

    def ticks(self, tick_s: float, scrapes: bool) -> Generator[simpy.Event, None, None]:
        histogram, tick = self.engine.latency_counts.copy(), 0
        while True:
            self.traffic.feed(self.engine, self.env.now + tick_s)
            yield self.env.timeout(tick_s)
            self.engine.advance(self.env.now)
            if scrapes and tick % 5 == 0:
                histogram = self.engine.latency_counts.copy()
            counters = self.engine.drain_counters()
            self.read = counters, self.engine.gauges(), histogram
            self.offered += counters.offered
            tick += 1


def _requests_per_cpu_s(
    replicas: int,
    horizon_s: float,
    seed: int,
    *,
    tick_s: float = 1.0,
    scrapes: bool = True,
) -> float:
    """Requests per CPU second over ``horizon_s`` after a warm-up: queues filled, memory touched."""
    env = simpy.Environment()
    fleet = _TickedFleet(env, replicas, seed)
    env.process(fleet.ticks(tick_s, scrapes))
    margin_s = 0.5 * tick_s
    warm_up_s = max(30.0, tick_s) * WARM_UP_FEEDS
    env.run(until=warm_up_s + margin_s)
    before, began = fleet.offered.sum(), time.process_time()
    env.run(until=warm_up_s + horizon_s + margin_s)
    spent_s = time.process_time() - began
    return float(fleet.offered.sum() - before) / spent_s


def _growth_runs() -> tuple[list[float], list[float]]:
    """Rates at 4 and 256 replicas with equally many requests per tick and per feed.

    So the fixed cost of a tick, which would flatter the growth, counts equally on both sides; and no
    histograms are copied, whose size is the telemetry's, not the requests'. Runs are interleaved, and the
    growth is that of the fastest: a neighbour that empties the shared caches only adds time, and far
    more to the large fleet.
    """
    small, large = [], []
    for i in range(RUNS):
        small.append(_requests_per_cpu_s(4, 64 * 128.0, SEED + i, tick_s=64.0, scrapes=False))
        large.append(_requests_per_cpu_s(256, 128.0, SEED + i, scrapes=False))
    return small, large


def _simpy_rate(events: int = 100_000) -> float:
    """Plain SimPy: twelve processes that only wait."""

    def ticking(env: simpy.Environment) -> Generator[simpy.Event, None, None]:
        while True:
            yield env.timeout(1.0)

    env = simpy.Environment()
    for _ in range(12):
        env.process(ticking(env))
    began = time.process_time()
    env.run(until=events / 12)
    return events / (time.process_time() - began)
