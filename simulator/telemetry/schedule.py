"""When replicas are scraped: at equal intervals, each replica in a phase of its own, and now and then not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.rng import stream
from simulator.telemetry.gateway import ticks_between
from simulator.world.compiled_scenario import CompiledScenario


class Schedule(NamedTuple):
    """When replicas are scraped. B fleets, R replicas, T ticks."""

    interval: NDArray[np.int64]  # [B] ticks between two scrapes
    phase: NDArray[np.int64]  # [B, R] tick of the interval
    luck: NDArray[np.float64]  # [T, B, R] in [0, 1): lost where below the loss ratio


def scrape_schedule(each: Sequence[CompiledScenario], seeds: list[int]) -> Schedule:
    """When the replicas of each fleet are scraped; drawn from the fleet's own seed."""
    scenario = each[0]
    _, _, replicas = scenario.layout.shape
    interval = ticks_between(each)
    draws = [_draws(seed, scenario.ticks, replicas) for seed in seeds]
    phase = np.stack([phase for phase, _ in draws]) * interval[:, None]
    luck = np.stack([luck for _, luck in draws], axis=1)
    return Schedule(interval=interval, phase=np.floor(phase).astype(np.int64), luck=luck)


def _draws(seed: int, ticks: int, replicas: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    rng = stream(seed, "scrapes")
    return rng.random(replicas), rng.random((ticks, replicas))
