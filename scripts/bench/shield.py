"""CPU time of the shield: ``selvage bench shield``.

32 kernels x 16 slices, one fleet and 64 fleets in lock-step, on random proposals under random knowledge:
a fifth of the fleets with nothing wrong, else hard violations and lost certificates of up to 20 % of the
cells and up to 10 % of the kernels gone; load from 0.3 to 1.3 times the planned capacity, unevenly
over slices and kernels; a tenth of the rows may not move. Times are CPU time of this process; compiling is
not counted. ``fallback_ratio`` is the share of fleets that the exact solver had to place.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contracts.rng import stream
from contracts.units import MS_PER_S
from controller.fleet import FleetSetup
from controller.options import ShieldLimits
from controller.shield.gate import ShieldView, shield
from policies.synthetic_fleet import synthetic_fleet

SEED = 1
KERNELS, SLICES = 32, 16
CALLS = {1: 2000, 64: 100}


def run() -> dict[str, object]:
    """Flat figures: time of a call for one fleet and for 64, and how often the solver was needed."""
    figures: dict[str, Any] = {}
    for batch, calls in CALLS.items():
        spent_ms, fallback, touched = _measure(batch, calls)
        name = "" if batch == 1 else f"_{batch}_fleets"
        figures |= {
            f"shield_ms_p50{name}": float(np.percentile(spent_ms, 50)),
            f"shield_ms_p99{name}": float(np.percentile(spent_ms, 99)),
            f"shield_ms_max{name}": float(spent_ms.max()),
            f"fallback_ratio{name}": fallback,
            f"changed_ratio{name}": touched,
            f"calls{name}": calls,
        }
    return figures | {
        "shield_ms_p99_per_fleet_64": float(figures["shield_ms_p99_64_fleets"]) / 64,
        "kernels": KERNELS,
        "slices": SLICES,
        "seed": SEED,
    }


def _measure(batch: int, calls: int) -> tuple[NDArray[np.float64], float, float]:
    """CPU ms of every call, share of fleets that the solver placed, share of rows that changed."""
    fleet, limits = synthetic_fleet(KERNELS, SLICES, 2 * KERNELS), ShieldLimits()
    fleet = replace(fleet, contract=replace(fleet.contract, priority=np.arange(SLICES) % 4))
    rng = stream(SEED, "bench_shield", batch)
    spent_ms, fallback, changed = np.zeros(calls), 0, 0
    shield(*_instance(fleet, batch, rng), fleet, limits)
    for call in range(calls):
        proposal, view = _instance(fleet, batch, rng)
        before = time.process_time()
        done = shield(proposal, view, fleet, limits)
        spent_ms[call] = (time.process_time() - before) * MS_PER_S
        fallback += int(done.fallback.sum())
        changed += int((done.reason != 0).sum())
    return spent_ms, fallback / (calls * batch), changed / (calls * batch * SLICES)


def _instance(
    fleet: FleetSetup, batch: int, rng: np.random.Generator
) -> tuple[NDArray[np.float64], ShieldView]:
    """One random proposal with the knowledge about its fleets."""
    some = rng.random((batch, 1, 1)) < 0.8
    share = some * rng.uniform(0.0, 0.2, (batch, 1, 1))
    ready = 2 - (rng.random((batch, KERNELS)) < 0.2) - (rng.random((batch, KERNELS)) < 0.1)
    carried = (ready * fleet.capacity_rps * ShieldLimits().max_load_ratio).sum(axis=1)
    offered = rng.dirichlet(np.ones(SLICES), batch) * (carried * rng.uniform(0.3, 1.3, batch))[:, None]
    last = _tables(batch, rng)
    return _tables(batch, rng), ShieldView(
        last=last,
        hard_violated=rng.random((batch, KERNELS, SLICES)) < share,
        certified=rng.random((batch, KERNELS, SLICES)) >= share,
        ready=ready,
        offered_rps=offered,
        may_move=rng.random((batch, SLICES)) < 0.9,
    )


def _tables(batch: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Rows over a few kernels each, the shed column mostly empty."""
    table = rng.dirichlet(np.full(KERNELS + 1, 0.1), (batch, SLICES))
    table[..., -1] *= rng.random((batch, SLICES)) < 0.05
    return np.asarray(table / table.sum(axis=2, keepdims=True))
