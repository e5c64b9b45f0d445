"""Hand-made episode records: a quiet fleet that tests change in one place."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from contracts.episode import EpisodeRecord, Incident

KERNELS = ("fast", "good")
SLICES = ("code", "prose")
REPLICAS = ("fast-0", "fast-1", "good-0")


def quiet_record(rows: int = 200, tick_s: float = 1.0, **changes: object) -> EpisodeRecord:
    """A healthy episode: all traffic on kernel ``fast``, 10 requests of 20 tokens per slice and row."""
    t, s, r, k = rows, len(SLICES), len(REPLICAS), len(KERNELS)
    table = np.zeros((t, s, k + 1), dtype=np.float32)
    table[:, :, 0] = 1.0
    answered_by = np.zeros((t, r, s), dtype=np.int64)
    answered_by[:, :2, :] = 5
    zeros = np.zeros((t, s), dtype=np.int64)
    record = EpisodeRecord(
        run_id="r", scenario="sc", policy="p", seed=1, tick_s=tick_s, horizon_s=rows * tick_s,
        kernels=KERNELS, known_good=1, slices=SLICES, replicas=REPLICAS,
        replica_kernel=np.array([0, 0, 1]), hard_slices=np.array([True, False]), incident=None,
        table=table, in_rotation=np.ones((t, r), dtype=np.bool_),
        quarantined=np.zeros((t, r), dtype=np.bool_),
        violating=np.zeros((t, r, s), dtype=np.bool_), runtime_violating=np.zeros((t, r, s), dtype=np.bool_),
        offered=zeros + 10, answered=zeros + 10, failed=zeros.copy(), shed=zeros.copy(),
        slo_missed=zeros.copy(), exposed=zeros.copy(), exposed_in_flight=zeros.copy(),
        answered_by=answered_by, offered_tokens=np.full((t, s), 200.0),
        answered_tokens=np.full((t, s), 200.0), excess_tv_tokens=np.full((t, s), 2.0),
        accelerator_s=np.full((t, k), tick_s), probe_tokens=np.full((t, k), 30.0),
        capacity_move=np.zeros(t, dtype=np.bool_), dispatched=answered_by.copy(),
        forbidden=np.zeros((t, s, k), dtype=np.bool_),
    )  # fmt: skip
    return replace(record, **changes)  # type: ignore[arg-type]


def step_fault(onset_s: float = 50.0, rows: int = 200, period_s: float = 0.0) -> Incident:
    """A silent fault from ``onset_s`` to the horizon of a record with 1 s rows."""
    return Incident(fault="f", onset_s=onset_s, ends_s=float(rows), period_s=period_s, silent=True)


def broken_record(rows: int = 200, onset: int = 50, **changes: object) -> EpisodeRecord:
    """Kernel ``fast`` breaks the contract on both slices from row ``onset`` on; nobody reacts."""
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
