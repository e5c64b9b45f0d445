"""Benchmark of the environment: ``selvage bench env``.

64 fleets of the shipped E5 pool in lock-step: 12 replicas of five kernels, 60 requests/s of 512 prompt and
128 output tokens on average (those of ``selvage bench simulator``), ticks of 1 s, faults and telemetry
drawn at random; encoded observation, costs, quality, controller and shield included, resets as well.
Actions are the home table with noise, drawn beforehand. Times are CPU seconds of this process; compiling
is not counted. ``us_*`` break a step's time down, in microseconds per fleet and tick, with windows
inside; ``*_sequential`` are the same with the sequential detector of the configuration of that name.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import simulator.env.core as env_core
from contracts.loading.shipped import LIBRARY
from contracts.rng import stream
from controller.detect.detector import Detector
from controller.encoding.encoder import Encoder
from controller.fleet import FleetSetup
from policies.registry import make_configuration
from scripts.studies.training.measured_env import HORIZON_S, RATE_RPS, make_config, timed, write_scenario
from simulator.engine.api import FleetEngine
from simulator.env.core import EnvCore
from simulator.env.fleets import SteppedFleets
from simulator.env.reward import TermsOfTicks
from simulator.world.traffic import DrawnTraffic

SEED = 2026
FLEETS = 64
RUNS = 5
#: Untimed ticks at first: longer than a window, so that everything is compiled.
WARM_TICKS = 70
#: Spread of the random actions; 0.3 moves weight now and then, as an exploring policy does.
SPREAD = 0.3

#: Parts of a step: label, object that holds the function, name. Outer parts contain inner ones.
PARTS: tuple[tuple[str, Any, str], ...] = (
    ("reset", EnvCore, "reset"),
    ("fleets", SteppedFleets, "advance"),
    ("fleets_engine", FleetEngine, "_advance"),
    ("fleets_arrivals", DrawnTraffic, "feed"),
    ("perceive", env_core, "perceive"),
    ("resolve", env_core, "resolve"),
    ("terms", TermsOfTicks, "of"),
    ("encode", Encoder, "encode"),
    ("action", Encoder, "table"),
)


def run() -> dict[str, object]:
    """All figures, flat; machine and versions are added by the command."""
    with tempfile.TemporaryDirectory() as folder:
        scenario = write_scenario(Path(folder), f"{LIBRARY}suites/e5-pool.yaml")
        core, single = make_core(FLEETS, scenario), make_core(1, scenario)
        for warmed in (core, single):
            steps_per_cpu_s(warmed, SEED, WARM_TICKS)
        rates = [steps_per_cpu_s(core, SEED + number, round(HORIZON_S)) for number in range(RUNS)]
        spent_us = parts_us(core)
        alone = steps_per_cpu_s(single, SEED, round(HORIZON_S))
        core = make_core(FLEETS, scenario, _sequential)
        steps_per_cpu_s(core, SEED, WARM_TICKS)
        by_observation = [steps_per_cpu_s(core, SEED + number, round(HORIZON_S)) for number in range(RUNS)]
        by_observation_us = parts_us(core)
    return {
        "seed": SEED,
        "runs": RUNS,
        "fleets": FLEETS,
        "replicas": len(core.setup.layout.replicas),
        "kernels": len(core.setup.layout.kernels),
        "rate_rps": RATE_RPS,
        "horizon_s": HORIZON_S,
        "env_steps_per_cpu_s": round(statistics.median(rates)),
        "env_steps_per_cpu_s_fastest": round(max(rates)),
        "env_steps_per_cpu_s_one_fleet": round(alone),
        "env_steps_per_cpu_s_sequential": round(statistics.median(by_observation)),
        "env_steps_per_cpu_s_sequential_fastest": round(max(by_observation)),
        "observation_size": core.encoder.size,
        "action_size": core.encoder.action_size,
        **{f"us_{label}": spent for label, spent in spent_us.items()},
        "us_perceive_sequential": by_observation_us["perceive"],
    }


def parts_us(core: EnvCore) -> dict[str, float]:
    """Microseconds per fleet and tick of each of ``PARTS``, over one episode of every fleet."""
    with timed_parts() as spent_s:
        steps_per_cpu_s(core, SEED, round(HORIZON_S))
    steps = core.batch * (HORIZON_S - 1.0)
    return {label: round(1e6 * seconds / steps, 2) for label, seconds in spent_s.items()}


def _sequential(fleet: FleetSetup) -> Detector:
    return make_configuration("sequential", fleet).detector


def make_core(
    fleets: int, scenario: Path, detector: Callable[[FleetSetup], Detector] | None = None
) -> EnvCore:
    """The benchmark's environment: every episode at the full rate, all else drawn."""
    config = make_config(scenario)
    return EnvCore(config if detector is None else replace(config, detector=detector), fleets)


def steps_per_cpu_s(core: EnvCore, seed: int, ticks: int) -> float:
    """Env steps per CPU second over one episode of every fleet, its reset included."""
    shape = (16, core.batch, core.encoder.action_size)
    noise = (SPREAD * stream(seed, "bench_env").standard_normal(shape)).astype(np.float32)
    began = time.process_time()
    core.reset(seed)
    for tick in range(ticks - 1):
        core.step(noise[tick % 16])
        core.observation()
    return core.batch * (ticks - 1) / (time.process_time() - began)


@contextmanager
def timed_parts() -> Iterator[dict[str, float]]:
    """CPU seconds spent in each of ``PARTS`` while the block runs."""
    spent_s: dict[str, float] = defaultdict(float)
    originals = [(place, name, getattr(place, name)) for _, place, name in PARTS]
    for label, place, name in PARTS:
        setattr(place, name, timed(getattr(place, name), label, spent_s))
    try:
        yield spent_s
    finally:
        for place, name, original in originals:
            setattr(place, name, original)
