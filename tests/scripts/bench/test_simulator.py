"""The benchmark's fleet against the oracle: same times, and the closed forms save their CPU time."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from scripts.bench.simulator import SEED, SLICES, even_table, fleet_spec, workload
from simulator.engine.api import FleetEngine, warm
from simulator.engine.spec import EngineEffect, EngineSpec
from simulator.world.workload import WorkloadStream
from tests.reference.engine_oracle import Oracle

TOLERANCE_S = 1e-9
#: Measured: some four hundred times.
LEAST_SPEED_UP = 50.0

Calls = list[tuple[float, str, tuple[Any, ...]]]
TIGHT = {"kv_blocks": np.full(3, 420), "timeout_s": np.full(SLICES, 12.0), "watermark_blocks": 2}
TROUBLES: Calls = [
    (5.0, "set_effect", (0, EngineEffect(step_time_factor=2.5, condition=3))),
    (8.0, "crash", (1,)),
    (10.0, "set_rotation", (np.array([True, False, True, True, True, True]),)),
    (12.0, "set_effect", (2, EngineEffect(hang=True))),
    (16.0, "set_effect", (2, EngineEffect(kv_held_ratio=0.3))),
    (18.0, "start", (1, 1.0)),
    (20.0, "set_rotation", (np.ones(6, np.bool_),)),
]


def pair(spec: EngineSpec, rate_rps: float, until_at_s: float) -> tuple[FleetEngine, Oracle]:
    """Engine and oracle with the same table and the same arrivals up to ``until_at_s``."""
    arrivals = WorkloadStream(workload(rate_rps), SEED).until(until_at_s)
    engine, oracle = FleetEngine(spec, 1, keep_requests=True), Oracle(spec)
    engine.set_table(even_table(spec))
    oracle.set_table(even_table(spec)[0])
    engine.feed(0, arrivals)
    oracle.feed(arrivals)
    return engine, oracle


@pytest.mark.parametrize(
    ("spec", "rate_rps", "calls"),
    [(fleet_spec(12), 60.0, []), (fleet_spec(6, **TIGHT), 32.0, TROUBLES)],
    ids=["healthy", "troubled"],
)
def test_the_fleet_has_the_oracles_times(spec: EngineSpec, rate_rps: float, calls: Calls) -> None:
    """Every request has the oracle's result and times, with preemption, slow change, crash and hang too."""
    engine, oracle = pair(spec, rate_rps, 30.0)
    for at_s, call, args in calls:
        engine.advance(at_s)
        oracle.advance(at_s)
        getattr(oracle, call)(*args)
        if call == "set_rotation":
            engine.set_rotation(args[0][None])
        else:
            getattr(engine, call)(0, *args)
    engine.advance(300.0)
    oracle.advance(300.0)
    got = engine.requests(0)
    assert [int(x.status) for x in oracle.requests] == got["status"].tolist()
    first_at_s = np.array([x.first for x in oracle.requests])
    finished_at_s = np.array([x.finished for x in oracle.requests])
    np.testing.assert_allclose(got["first_token_at_s"], first_at_s, rtol=0.0, atol=TOLERANCE_S)
    np.testing.assert_allclose(got["finished_at_s"], finished_at_s, rtol=0.0, atol=TOLERANCE_S)


def test_closed_forms_are_worth_their_while() -> None:
    """The engine needs a fiftieth of the oracle's CPU time, or less, for the same requests."""
    warm()
    engine, oracle = pair(fleet_spec(12), 60.0, 20.0)
    spent_s = []
    for fleet in (engine, oracle):
        began_at_s = time.process_time()
        fleet.advance(20.0)
        spent_s.append(time.process_time() - began_at_s)
    assert LEAST_SPEED_UP * spent_s[0] < spent_s[1]
