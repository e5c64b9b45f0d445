"""Time until a healed build serves again, by the values with which its probes are compared:
``python -m scripts.studies.worlds.returning``.

A home kernel keeps three bits for two minutes. A row per kind of comparison and rate of probes: seconds from
the end of the fault until the kernel is certified again on every slice, median and largest of the seeds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import typer

from contracts.loading.shipped import LIBRARY, SERVING_POOL
from controller.decision import Decision
from policies.registry import make_configuration
from scripts.studies.worlds.drawn import SLICES, Spec, scenario_of
from scripts.studies.worlds.short import even_workload
from simulator.drive import ControllerDriver
from simulator.fleet import run_episodes
from simulator.world.compiled_scenario import CompiledScenario
from simulator.world.scenario import compile_scenario

ONSET_S, HEALED_S, HORIZON_S = 600.0, 720.0, 1800.0
PROBES_PER_S = (1.0, 0.3)


class Comparing(NamedTuple):
    """The values with which probes are compared."""

    name: str
    certified: bool  # the controller knows each prompt's certified values
    repeat_noise: float  # relative, of a repeat
    policy: str = "sequential"


WAYS = (
    Comparing("certified values, exact repeats", certified=True, repeat_noise=0.0),
    Comparing("bounds of health, exact repeats", certified=False, repeat_noise=0.0),
    Comparing("bounds of health, repeats within 5 %", certified=False, repeat_noise=0.05),
    Comparing("bounds of health, repeats within 30 %", certified=False, repeat_noise=0.3),
    Comparing("nothing, exact repeats", certified=False, repeat_noise=0.0, policy="sequential:drift=0"),
)


def world_of(way: Comparing, probes_per_s: float) -> CompiledScenario:
    """Every slice at home on four replicas of bf16, which keep three bits for a time, beside four of fp32."""
    kernels = [
        {"name": f"k-{name}", "profile": f"{LIBRARY}profiles/{name}.yaml", "replicas": 4, "role": role}
        for name, role in (("bf16", "serving"), ("fp32", "known_good"))
    ]
    fault = {
        "name": "three-bits",
        "kind": "requantise",
        "condition": "requantise-w3",
        "target": {"kernel": "k-bf16"},
        "onset_s": ONSET_S,
        "duration_s": HEALED_S - ONSET_S,
    }
    seen = {"scrape_interval_s": 5.0, "scrape_delay_s": 0.5, "scrape_loss_ratio": 0.0}
    spec: Spec = {
        "description": "A build is wrong, and healed.",
        "pool": {"kernels": kernels, "home": [{"slice": name, "kernel": "k-bf16"} for name in SLICES]},
        "contract": SERVING_POOL,
        "horizon_s": HORIZON_S,
        "workload": even_workload(8.0),
        "telemetry": {**seen, "probes_per_s": probes_per_s, "repeat_noise": way.repeat_noise},
        "faults": [fault],
    }
    return compile_scenario(scenario_of(0, spec), str(Path.cwd() / "world-0.yaml"))


def returns_s(way: Comparing, probes_per_s: float, seeds: int) -> list[float]:
    """Seconds until the healed kernel is certified everywhere, by seed; inf: not within the episode."""
    world, seen = world_of(way, probes_per_s), list[Decision]()
    fleet = world.setup if way.certified else replace(world.setup, certified=None)
    driver = ControllerDriver(make_configuration(way.policy, fleet), watch=seen.append)
    run_episodes(world, driver, list(range(1, seeds + 1)))
    condemned = np.stack([~decision.judgement.certified[:, 0].all(axis=1) for decision in seen])
    at_s = np.array([(np.flatnonzero(one)[-1] + 1) * world.tick_s for one in condemned.T])
    return [float("inf") if at >= HORIZON_S else max(0.0, float(at) - HEALED_S) for at in at_s]


def rows(seeds: int) -> Iterator[str]:
    """Rows of the table."""
    for way, probes in product(WAYS, PROBES_PER_S):
        found: Any = returns_s(way, probes, seeds)
        yield f"| {way.name} | {probes:g} | {np.median(found):.0f} | {max(found):.0f} |"


def main(seeds: int = 5) -> None:
    """Print the table."""
    print("| probes are compared with | probes/s of a replica | certified again after, s | at most, s |")
    print("|---|---:|---:|---:|")
    for row in rows(seeds):
        print(row, flush=True)


if __name__ == "__main__":
    typer.run(main)
