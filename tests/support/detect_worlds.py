"""A contract as arrays and a layout, built by hand."""

from __future__ import annotations

import numpy as np

from contracts.compiled.contract import CompiledContract
from contracts.compiled.layout import FleetLayout
from contracts.telemetry import Source

#: id, source, column, threshold, sense, is_rate, rate_limit, clip, applies to both slices
_CLAUSES = (
    ("kl-mean", Source.PROBE, 0, 2e-3, 1.0, False, 0.0, 0.1),
    ("kl-p95", Source.PROBE, 0, 6e-3, 1.0, True, 0.05, np.inf),
    ("flip-hard", Source.PROBE, 1, 0.5, 1.0, True, 0.0, np.inf),
    ("overlap", Source.PROBE, 2, 0.9, -1.0, False, 0.0, np.inf),
    ("ttft-p99", Source.LATENCY, 1, 2000.0, 1.0, True, 0.01, np.inf),
    ("offline", Source.OFFLINE, -1, 1.0, 1.0, False, 0.0, np.inf),
)


def contract_arrays() -> CompiledContract:
    """Six clauses of every kind on two slices; kl-p95 on the first slice only."""
    count = len(_CLAUSES)
    applies = np.ones((count, 2), dtype=np.bool_)
    applies[1, 1] = False
    hard = np.array([row[0] == "flip-hard" for row in _CLAUSES])
    return CompiledContract(
        name="made",
        sha256="0" * 64,
        slices=("code", "prose"),
        clause_ids=tuple(row[0] for row in _CLAUSES),
        family=("N",) * count,
        source=np.array([int(row[1]) for row in _CLAUSES], dtype=np.int64),
        column=np.array([row[2] for row in _CLAUSES], dtype=np.int64),
        edge=np.full(count, -1, dtype=np.int64),
        threshold=np.array([row[3] for row in _CLAUSES]),
        sense=np.array([row[4] for row in _CLAUSES]),
        is_rate=np.array([row[5] for row in _CLAUSES]),
        rate_limit=np.array([row[6] for row in _CLAUSES]),
        clip=np.array([row[7] for row in _CLAUSES]),
        budget=np.where(hard, 0.0, 0.05),
        hard=hard,
        level=np.full(count, 2, dtype=np.int64),
        weight=np.ones(count),
        applies=applies,
        guard_threshold=0.5,
        fallback_threshold=2.0,
        window_s=60.0,
        min_samples=10,
        alarm_confidence=0.99,
        shed_when_uncertified=True,
        ejection_cap_ratio=0.5,
        stale_after_s=30.0,
        false_switch_budget_per_slice_month=1.0,
        slo_ms=np.full((2, 3), 1e4),
        priority=np.array([1, 2], dtype=np.int64),
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
