"""How long one control tick takes: ``selvage bench tick``.

Two sizes: one large fleet (32 kernels x 16 slices, two replicas each), and 64 fleets of 5 kernels, 5
slices and 12 replicas in lock-step. Ten clauses, hysteresis policy, both levers, 300 ticks of one second
(five windows of 60 s). Times are CPU time of this process; compiling is not counted.
"""

from __future__ import annotations

import time

import numpy as np

from contracts.rng import stream
from contracts.units import MS_PER_S
from controller.initial import initial_state
from controller.loop import tick
from controller.options import ControllerSetup
from policies.registry import make_configuration
from policies.synthetic_fleet import synthetic_fleet, synthetic_telemetry
from policies.warm import warm

SEED = 1
TICKS = 300
KERNELS, SLICES, REPLICAS = 32, 16, 64
FLEETS = 64


def run() -> dict[str, object]:
    """Flat figures; ``tick_ms_*`` for the large fleet, ``tick_ms_per_fleet_64`` the mean in lock-step."""
    warm()
    large = _tick_ms(make_configuration("hysteresis", synthetic_fleet(KERNELS, SLICES, REPLICAS)), 1)
    batch = _tick_ms(make_configuration("hysteresis", synthetic_fleet(5, 5, 12)), FLEETS)
    by_observation = _tick_ms(make_configuration("sequential", synthetic_fleet(5, 5, 12)), FLEETS)
    return {
        "tick_ms_p50": float(np.percentile(large, 50)),
        "tick_ms_p99": float(np.percentile(large, 99)),
        "tick_ms_mean": float(large.mean()),
        "kernels": KERNELS,
        "slices": SLICES,
        "replicas": REPLICAS,
        "tick_ms_per_fleet_64": float(batch.mean() / FLEETS),
        "tick_ms_per_fleet_64_p99": float(np.percentile(batch, 99) / FLEETS),
        "tick_ms_per_fleet_64_sequential": float(by_observation.mean() / FLEETS),
        "tick_ms_per_fleet_64_sequential_p99": float(np.percentile(by_observation, 99) / FLEETS),
        "ticks": TICKS,
        "seed": SEED,
    }


def _tick_ms(setup: ControllerSetup, batch: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    rng = stream(SEED, "bench_tick", batch)
    state = initial_state(setup, batch)
    spent_ms = np.zeros(TICKS)
    for index in range(TICKS):
        telemetry = synthetic_telemetry(setup.fleet, float(index), batch, 12, rng)
        before = time.process_time()
        state, _ = tick(state, telemetry, setup)
        spent_ms[index] = (time.process_time() - before) * MS_PER_S
    return spent_ms
