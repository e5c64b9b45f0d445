"""Processor time of a policy's decisions, for its certificate."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.meta import CompiledMeta
from contracts.errors import MeasurementError
from contracts.telemetry import FleetTelemetry
from controller.options import ControllerSetup
from controller.ports import RoutingPlan
from scripts.train.certify_parts import make
from simulator.drive import ControllerDriver
from simulator.fleet import run_episodes
from simulator.world.compiled_scenario import CompiledScenario

#: Least number of timed decisions of single fleets, if there are enough episodes.
TIMED = 1000
#: Number of times that each is timed.
PASSES = 3


class _TimedDriver(ControllerDriver):
    """Measures the processor time of each decision of the thread that takes it.

    Not wall time: the certifying machine is shared, and is not the one that will drive. The supervisor
    judges wall time where it drives.
    """

    def __init__(self, setup: ControllerSetup) -> None:
        super().__init__(setup)
        self.spent_ms: list[float] = []

    def step(self, telemetry: FleetTelemetry) -> RoutingPlan:
        """One control tick, timed."""
        before_ns = time.thread_time_ns()
        plan = super().step(telemetry)
        self.spent_ms.append((time.thread_time_ns() - before_ns) / 1e6)
        return plan


def decisions_ms(
    spec: str, meta: CompiledMeta, episodes: Iterable[tuple[CompiledScenario, int]]
) -> NDArray[np.float64]:
    """Milliseconds of every decision of the policy ``spec``, episode (world, seed) by episode, until enough
    are known.

    Raises MeasurementError if there is no episode.
    """
    spent: list[NDArray[np.float64]] = []
    for world, seed in episodes:
        spent.append(episode_ms(spec, meta, world, seed))
        if sum(map(len, spent)) >= TIMED:
            break
    if not spent:
        raise MeasurementError("no decision was timed; the incident suite has no scenario")
    return np.concatenate(spent)


def timed_s(world: CompiledScenario, episodes: int) -> float:
    """Simulated seconds of timing decisions on at most ``episodes`` episodes like ``world``."""
    return PASSES * world.horizon_s * min(episodes, math.ceil(TIMED / world.ticks))


def episode_ms(spec: str, meta: CompiledMeta, world: CompiledScenario, seed: int) -> NDArray[np.float64]:
    """Each decision's least milliseconds over passes of one episode with equal decisions: other work of the
    machine does not count for the policy.
    """
    passes = []
    for _ in range(PASSES):
        driver = _TimedDriver(make(spec, world, meta))
        run_episodes(world, driver, (seed,), batch=1)
        passes.append(driver.spent_ms)
    return np.asarray(np.array(passes).min(axis=0), dtype=np.float64)
