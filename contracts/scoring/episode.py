"""What one episode leaves behind: the record that every world writes and E5 scores.

Scoring never looks at anything else, so a verdict can be recomputed from the record alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """When the truth was disturbed."""

    fault: str  # names of the faults, joined by "+"
    onset_at_s: float  # first fault onset
    ends_at_s: float  # last fault end; the horizon if it lasts
    period_s: float  # period of an intermittent fault, 0 otherwise
    silent: bool  # HTTP 200 throughout (numeric or observability fault)


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeRecord:
    """One episode of one policy on one scenario with one seed.

    Row ``t`` of a per-tick array covers the interval ``(t * tick_s, (t + 1) * tick_s]``. Axes: T ticks, K
    kernels, S slices, R replicas. Requests and tokens count in the interval in which they ended, offered ones
    in that in which they arrived.
    """

    run_id: str
    scenario: str
    policy: str
    seed: int
    tick_s: float
    horizon_s: float
    kernels: tuple[str, ...]  # [K]
    known_good: int  # index in kernels
    slices: tuple[str, ...]  # [S]
    replicas: tuple[str, ...]  # [R]
    replica_kernel: NDArray[np.int64]  # [R] index in kernels
    hard_slices: NDArray[np.bool_]  # [S] a hard clause applies
    incident: Incident | None

    # What was in force during the interval.
    table: NDArray[np.float32]  # [T, S, K + 1] share of the traffic per kernel, last column shed
    in_rotation: NDArray[np.bool_]  # [T, R]
    quarantined: NDArray[np.bool_]  # [T, R]
    capacity_rows: NDArray[np.bool_]  # [T, S] the row's change at its start was for capacity only
    forbidden: NDArray[np.bool_]  # [T, S, K] the plan knew: a hard clause is violated, not to be served there

    # Ground truth: at any time of the interval the replica's true state broke, on that slice, ...
    violating: NDArray[np.bool_]  # [T, R, S] ... a numeric, statistical or observability clause
    runtime_violating: NDArray[np.bool_]  # [T, R, S] ... a runtime clause (crashed, hung, too slow)

    # Requests.
    offered: NDArray[np.int64]  # [T, S]
    answered: NDArray[np.int64]  # [T, S]
    failed: NDArray[np.int64]  # [T, S] errors and timeouts, without shed ones
    shed: NDArray[np.int64]  # [T, S]
    slo_missed: NDArray[np.int64]  # [T, S] answered, over the slice's SLO
    exposed: NDArray[np.int64]  # [T, S] answers on hard slices by a replica that violated at admission
    exposed_in_flight: NDArray[np.int64]  # [T, S] of these, admitted before the last table or quarantine
    answered_by: NDArray[np.int64]  # [T, R, S]
    dispatched: NDArray[np.int64]  # [T, R, S] attempts sent, refused ones included, by when they were sent

    # Tokens and time.
    offered_tokens: NDArray[np.float64]  # [T, S] output tokens
    answered_tokens: NDArray[np.float64]  # [T, S] output tokens
    excess_tv_tokens: NDArray[np.float64]  # [T, S] sum over answered tokens of the excess TV to the reference
    useful_tokens: NDArray[np.float64]  # [T, S] inside the SLO and not exposed, less their excess TV
    accelerator_s: NDArray[np.float64]  # [T, K]
    probe_tokens: NDArray[np.float64]  # [T, K]

    # What an optimal policy would know (None: not known).
    most_rps: NDArray[np.float64] | None = None  # [R] the most that a replica carries in steady state
    healthy_loss: NDArray[np.float64] | None = None  # [K, S] mean excess TV of a healthy kernel's answers

    # What could be seen.
    evidence_interval_s: float  # between a replica's probes (numeric faults) or scrapes; NaN: none are sent
    blind: NDArray[np.bool_]  # [T, R] the replica's probes and scrapes were lost


#: Arrays that have no time axis.
_TIMELESS = ("replica_kernel", "hard_slices", "most_rps", "healthy_loss")


def truncate(record: EpisodeRecord, end_at_s: float) -> EpisodeRecord:
    """The record up to ``end_at_s``: for the measures until the fault's end, where an undo heals all."""
    rows = min(len(record.table), math.ceil(end_at_s / record.tick_s - 1e-9))
    cut = {
        field.name: getattr(record, field.name)[:rows]
        for field in fields(record)
        if isinstance(getattr(record, field.name), np.ndarray) and field.name not in _TIMELESS
    }
    return replace(record, horizon_s=rows * record.tick_s, **cut)
