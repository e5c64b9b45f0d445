"""What probing costs a saturated fleet: ``selvage bench probing``.

The shipped pool answers as many requests at once as saturate it, in turns with and without a controller that
observes: scrapes and probes every replica, and moves nothing. Rates are by wall time; load generator and
controller run on the same cores as the servers, so that the cost is an upper one.
"""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import numpy as np

from scripts.bench.live import RATE_RPS, SEED, Bench, benched

ROUNDS, SATURATING = 4, 300


def run() -> dict[str, object]:
    """Flat figures; rates in requests per second, ``probing_cost_*`` shares of the rate without probes."""
    with benched() as bench:
        everywhere = bench.everywhere(1)
        bench.acting(lambda actuator: actuator.apply(everywhere))
        _saturated_rate(bench)  # the first time is slower
        rates: dict[bool, list[float]] = {False: [], True: []}
        for number in range(2 * ROUNDS):
            probed = number % 2 == 1
            rates[probed].append(_observed_rate(bench) if probed else _saturated_rate(bench))
    cost = 1.0 - np.array(rates[True]) / np.array(rates[False])
    return {
        "saturated_rps_unprobed": float(np.median(rates[False])),
        "saturated_rps_probed": float(np.median(rates[True])),
        "probing_cost_ratio": float(np.median(cost)),
        "probing_cost_ratio_least": float(cost.min()),
        "probing_cost_ratio_most": float(cost.max()),
        "requests": SATURATING,
        "rounds": ROUNDS,
        "seed": SEED,
    }


def _observed_rate(bench: Bench) -> float:
    """That rate while a controller scrapes and probes every replica, and moves nothing."""
    from live.control import pace
    from live.run.assemble import controlled_fleet
    from live.run.options import RunOptions

    stop = threading.Event()
    with controlled_fleet(bench.folder, RunOptions(observe=True)) as one:
        beat = threading.Thread(target=pace.run, args=(one.controller.step, 1.0, stop))
        beat.start()
        try:
            return _saturated_rate(bench)
        finally:
            stop.set()
            beat.join()


def _saturated_rate(bench: Bench) -> float:
    """Requests per second when many are sent at once; NaN where one was lost."""
    from live.load import run_load

    began_s = time.monotonic()
    records = run_load(replace(bench.load_plan(1.0, RATE_RPS), arrivals_s=(0.0,) * SATURATING))
    whole = all(record.complete for record in records)
    return len(records) / (time.monotonic() - began_s) if whole else float("nan")
