"""Benchmark of the environment: ``selvage bench env``.

64 fleets of the shipped E5 pool in lock-step: 12 replicas of five kernels, 60 requests/s, ticks of 1 s,
faults and telemetry drawn at random; encoded observation, costs, quality, controller and shield included,
resets as well. Actions are the home table with noise, drawn beforehand. Times are CPU seconds of this
process; compiling is not counted.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import numpy as np

from contracts.streams import stream
from simulator.env_core import DEFAULT_SCENARIO, EnvConfig, EnvCore
from simulator.randomise import EpisodeSpace

SEED = 2026
FLEETS = 64
HORIZON_S = 300.0
RATE_RPS = 60.0
RUNS = 3
#: Spread of the random actions; 0.3 moves weight now and then, as an exploring policy does.
SPREAD = 0.3


def run() -> dict[str, object]:
    """All figures, flat; machine and versions are added by the command."""
    core = make_core(FLEETS)
    _steps_per_cpu_s(core, SEED, 20)
    rates = [_steps_per_cpu_s(core, SEED + run, round(HORIZON_S)) for run in range(RUNS)]
    single = make_core(1)
    return {
        "seed": SEED,
        "fleets": FLEETS,
        "replicas": len(core.setup.layout.replicas),
        "kernels": len(core.setup.layout.kernels),
        "rate_rps": RATE_RPS,
        "horizon_s": HORIZON_S,
        "env_steps_per_cpu_s": round(statistics.median(rates)),
        "env_steps_per_cpu_s_fastest": round(max(rates)),
        "env_steps_per_cpu_s_single": round(_steps_per_cpu_s(single, SEED, 300)),
        "observation_size": core.encoder.size,
        "action_size": core.encoder.action_size,
        "runs": RUNS,
    }


def make_core(fleets: int, scenario: str | Path = DEFAULT_SCENARIO) -> EnvCore:
    """The benchmark's environment at 60 requests/s."""
    probe = EnvCore(EnvConfig(scenarios=(scenario,), horizon_s=HORIZON_S), 1)
    ratio = RATE_RPS / probe.base_rate_rps
    space = EpisodeSpace(rate_ratio=(ratio, ratio))
    return EnvCore(EnvConfig(scenarios=(scenario,), horizon_s=HORIZON_S, space=space), fleets)


def _steps_per_cpu_s(core: EnvCore, seed: int, ticks: int) -> float:
    """Env steps per CPU second over one episode of every fleet, its reset included."""
    shape = (core.batch, core.encoder.action_size)
    noise = SPREAD * stream(seed, "bench_env").standard_normal((16, *shape)).astype(np.float32)
    began = time.process_time()
    core.reset(seed)
    for tick in range(ticks - 1):
        core.step(noise[tick % 16])
        core.observation()
    return core.batch * (ticks - 1) / (time.process_time() - began)
