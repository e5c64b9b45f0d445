"""The clauses of a contract by what they read of a telemetry, and whose evidence a kernel is judged by."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.contract import CompiledContract
from contracts.telemetry import Source
from controller.detect.clauses import (
    failing_clauses,
    from_traffic,
    own_clock,
    probe_clauses,
    replica_places,
)
from controller.perceive.accumulate import Clauses
from controller.perceive.step_time import of_gauges


@lru_cache(maxsize=64)
def of_replicas(contract: CompiledContract) -> NDArray[np.int64]:
    """Places of the clauses that a kernel is judged on by what its replicas showed."""
    return np.flatnonzero(~from_traffic(contract) & ~own_clock(contract))


@lru_cache(maxsize=64)
def read_clauses(contract: CompiledContract) -> tuple[NDArray[Any], ...]:
    """``accumulate.Clauses`` of ``contract``, as compiled code takes them."""
    source = contract.source
    clauses = Clauses(
        probes=probe_clauses(contract),
        requests=np.flatnonzero(from_traffic(contract)),
        failing=failing_clauses(contract),
        latency=np.flatnonzero(source == Source.LATENCY),
        gauges=np.flatnonzero(of_gauges(source)),
        source=source,
        column=contract.column,
        edge=contract.edge,
        threshold=contract.threshold,
        sense=contract.sense,
        clip=contract.clip,
        applies=np.ascontiguousarray(contract.applies),
        place=_places(contract),
    )
    return tuple(clauses)


def _places(contract: CompiledContract) -> NDArray[np.int64]:
    """int64 [C]: the first slice of ``replica_places``; -1 where there is none."""
    booked = replica_places(contract)
    return np.where(booked.any(axis=0), np.argmax(booked, axis=0), -1)
