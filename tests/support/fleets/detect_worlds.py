"""A contract as arrays and a layout, built by hand."""

from __future__ import annotations

import numpy as np

from contracts.compiled.contract import CompiledContract, FleetLayout
from contracts.telemetry import Source
from policies.synthetic_fleet import SyntheticClause as Clause
from policies.synthetic_fleet import synthetic_contract

_CLAUSES = (
    Clause(name="kl-mean", threshold=2e-3, clip=0.1, hard=False, level=2),
    Clause(name="kl-p95", threshold=6e-3, rate_limit=0.05, hard=False, level=2, slices=(0,)),
    Clause(name="flip-hard", column=1, threshold=0.5, rate_limit=0.0, level=2),
    Clause(name="overlap", column=2, threshold=0.9, sense=-1.0, hard=False, level=2),
    Clause(
        name="ttft-p99",
        source=Source.LATENCY,
        column=1,
        threshold=2000.0,
        rate_limit=0.01,
        hard=False,
        level=2,
    ),
    Clause(name="offline", source=Source.OFFLINE, column=-1, threshold=1.0, hard=False, level=2),
)


def contract_arrays() -> CompiledContract:
    """Six clauses of every kind on two slices; kl-p95 on the first slice only."""
    return synthetic_contract(
        fleet_layout(1),
        _CLAUSES,
        min_samples=10,
        alarm_confidence=0.99,
        shed_when_uncertified=True,
        priority=np.array([1, 2]),
    )


def fleet_layout(replicas: int) -> FleetLayout:
    """Up to two kernels in turn, three probe metrics."""
    kernels = min(2, replicas)
    return FleetLayout(
        kernels=("a", "b")[:kernels],
        slices=("code", "prose"),
        replicas=tuple(f"r{index}" for index in range(replicas)),
        replica_kernel=np.arange(replicas, dtype=np.int64) % kernels,
        probe_metrics=("kl", "flip", "overlap"),
        known_good=0,
    )
