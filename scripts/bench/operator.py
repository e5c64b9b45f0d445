"""Costs of the operator of a cluster: ``selvage bench operator``.

A namespace is held in memory: resources, Services, EndpointSlices, pods and routes answer at once, so the
API server and the client's decoding are not counted. Telemetry is recorded Prometheus answers of vLLM
servers, one text per tick, parsed for every replica as the operator does; probes are not sent. Times are CPU
time of this process over whole turns, after warm-up turns. All pools have the same set-up except for names,
so all of them decide in batches (``pools_together``); those of a real namespace do as far as they are equal.

``reconcile_*``: one pool of 15 kernels (the limit of an HTTPRoute rule beside the backend that refuses),
two replicas each, and 16 slices. ``*_per_pool``: cost of each pool of 4 kernels x 4 replicas x 5 slices
beyond the first. ``*_without_parsing`` have the readings at hand.
"""

from __future__ import annotations

import gc
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from contracts.units import MS_PER_S

if TYPE_CHECKING:
    from k8s.operator.namespace import NamespaceOperator
    from scripts.studies.operator.resources import PoolSize
    from scripts.studies.operator.world import RecordedWorld

SEED = 1
POOLS = 200
#: Counted turns are whole periods of ``KEEP_S``, in each of which every state is kept once.
WARM_TURNS, TURNS, MANY_TURNS = 4, 30, 15
KERNELS, REPLICAS, SLICES = 4, 4, 5
LARGE_KERNELS, LARGE_REPLICAS, LARGE_SLICES = 15, 2, 16
_MB = 1e6


def run() -> dict[str, object]:
    """Flat figures; ``*_cpu_ms`` are means of CPU time per turn, ``*_rss_mb`` resident memory in MB."""
    from policies.warm import warm
    from scripts.studies.operator.resources import PoolSize

    warm()
    small = PoolSize(kernels=KERNELS, replicas=REPLICAS, slices=SLICES)
    large = PoolSize(kernels=LARGE_KERNELS, replicas=LARGE_REPLICAS, slices=LARGE_SLICES)
    first = _measured(1, small, TURNS)
    many = _measured(POOLS, small, MANY_TURNS)
    reconcile = _measured(1, large, TURNS)  # last: memory that it keeps counts for no other figure
    beyond = POOLS - 1
    return {
        "reconcile_cpu_ms": reconcile.parsed_ms,
        "reconcile_cpu_ms_without_parsing": reconcile.plain_ms,
        "cpu_ms_per_s_and_pool": (many.parsed_ms - first.parsed_ms) / beyond,
        "cpu_ms_per_s_and_pool_without_parsing": (many.plain_ms - first.plain_ms) / beyond,
        "base_cpu_ms_per_s": first.parsed_ms,
        "rss_mb_per_pool": (many.rss_mb - first.rss_mb) / beyond,
        "base_rss_mb": first.rss_mb,
        "api_calls_per_s_and_pool": (many.calls - first.calls) / beyond,
        "start_cpu_ms_per_pool": (many.start_ms - first.start_ms) / beyond,
        "pools": POOLS,
        "pools_together": many.together,
        "tick_s": 1.0,
        "turns": MANY_TURNS,
        "seed": SEED,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cost:
    """Means over turns of one operator."""

    parsed_ms: float
    plain_ms: float
    start_ms: float
    rss_mb: float
    calls: float
    together: int


def _measured(pools: int, shape: PoolSize, turns: int) -> _Cost:
    from scripts.studies.operator.world import recorded_world

    world = recorded_world(pools, shape, WARM_TURNS + 2 * turns)
    operator = world.operator()
    start_ms = _turned(world, operator, WARM_TURNS).sum()
    before = world.cluster.calls
    parsed_ms = float(_turned(world, operator, turns).mean())
    calls = (world.cluster.calls - before) / turns
    world.parses = False
    plain_ms = float(_turned(world, operator, turns).mean())
    _refuse_unready(operator, pools)
    gc.collect()
    found = _Cost(
        parsed_ms=parsed_ms,
        plain_ms=plain_ms,
        start_ms=float(start_ms),
        rss_mb=_rss_mb(),
        calls=calls,
        together=operator.together,
    )
    del world, operator
    gc.collect()
    return found


def _turned(
    world: RecordedWorld, operator: NamespaceOperator, count: int
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """CPU time of each of so many turns, in ms."""
    spent_ms = np.zeros(count)
    for index in range(count):
        world.advance()
        began_at_s = time.process_time()
        operator.turn()
        spent_ms[index] = (time.process_time() - began_at_s) * MS_PER_S
    return spent_ms


def _refuse_unready(operator: NamespaceOperator, pools: int) -> None:
    """Refuse to measure an operator that does not drive."""
    driving = [
        name
        for name, loop in operator.loops.items()
        if loop.standing.programmed and loop.standing.turn is not None and loop.standing.turn.decision
    ]
    if len(driving) != pools:
        raise RuntimeError(f"expected {pools} policies to drive, got {len(driving)}")


def _rss_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / _MB
