"""Hand-made episode records: a quiet fleet that tests change in one place."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from contracts.scoring.episode import EpisodeRecord, Incident

KERNELS = ("fast", "good")
SLICES = ("code", "prose")
REPLICAS = ("fast-0", "fast-1", "good-0")


def quiet_record(rows: int = 200, tick_s: float = 1.0, **changes: Any) -> EpisodeRecord:
    """A healthy episode: all traffic on kernel ``fast``, 10 requests of 20 tokens per slice and row."""
    arrays = _in_force(rows) | _truth(rows) | _requests(rows) | _tokens(rows, tick_s)
    record = EpisodeRecord(
        run_id="r",
        scenario="sc",
        policy="p",
        seed=1,
        tick_s=tick_s,
        horizon_s=rows * tick_s,
        kernels=KERNELS,
        known_good=1,
        slices=SLICES,
        replicas=REPLICAS,
        replica_kernel=np.array([0, 0, 1]),
        hard_slices=np.array([True, False]),
        incident=None,
        evidence_interval_s=math.nan,
        **arrays,
    )
    return replace(record, **changes)


def _never(*shape: int) -> Any:
    return np.zeros(shape, dtype=np.bool_)


def _in_force(t: int) -> dict[str, Any]:
    s, r, k = len(SLICES), len(REPLICAS), len(KERNELS)
    table = np.zeros((t, s, k + 1), dtype=np.float32)
    table[:, :, 0] = 1.0
    return {
        "table": table,
        "in_rotation": ~_never(t, r),
        "quarantined": _never(t, r),
        "capacity_rows": _never(t, s),
        "forbidden": _never(t, s, k),
    }


def _truth(t: int) -> dict[str, Any]:
    s, r = len(SLICES), len(REPLICAS)
    return {"violating": _never(t, r, s), "runtime_violating": _never(t, r, s), "blind": _never(t, r)}


def _requests(t: int) -> dict[str, Any]:
    s, r = len(SLICES), len(REPLICAS)
    none = ("failed", "shed", "slo_missed", "exposed", "exposed_in_flight")
    answered_by = np.zeros((t, r, s), dtype=np.int64)
    answered_by[:, :2, :] = 5
    found: dict[str, Any] = {name: np.zeros((t, s), dtype=np.int64) for name in none}
    found |= {name: np.full((t, s), 10, dtype=np.int64) for name in ("offered", "answered")}
    return found | {"answered_by": answered_by, "dispatched": answered_by.copy()}


def _tokens(t: int, tick_s: float) -> dict[str, Any]:
    s, k = len(SLICES), len(KERNELS)
    return {
        "offered_tokens": np.full((t, s), 200.0),
        "answered_tokens": np.full((t, s), 200.0),
        "excess_tv_tokens": np.full((t, s), 2.0),
        "useful_tokens": np.full((t, s), 198.0),
        "accelerator_s": np.full((t, k), tick_s),
        "probe_tokens": np.full((t, k), 30.0),
    }


def step_fault(onset_at_s: float = 50.0, rows: int = 200, period_s: float = 0.0) -> Incident:
    """A silent fault from ``onset_at_s`` to the horizon of a record with 1 s rows."""
    return Incident(fault="f", onset_at_s=onset_at_s, ends_at_s=float(rows), period_s=period_s, silent=True)


def broken_record(rows: int = 200, onset: int = 50, **changes: Any) -> EpisodeRecord:
    """Kernel ``fast`` breaks the contract on both slices from row ``onset`` on; no traffic moves."""
    record = quiet_record(rows, 1.0, incident=step_fault(float(onset), rows), **changes)
    record.violating[onset:, :2, :] = True
    return record


def move_at(record: EpisodeRecord, row: int, kernel: int = 1) -> EpisodeRecord:
    """All traffic to ``kernel`` from ``row`` on, answered there from the same row on."""
    record.table[row:] = 0.0
    record.table[row:, :, kernel] = 1.0
    record.answered_by[row:] = 0
    record.answered_by[row:, record.replica_kernel == kernel, :] = 10 // int(
        (record.replica_kernel == kernel).sum()
    )
    return record
