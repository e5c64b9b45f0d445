"""What one episode leaves behind: the record that every world writes and E5 scores.

Scoring never looks at anything else, so a verdict can be recomputed from the record alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """When the truth was disturbed.

    onset_s: fault onset. ends_s: fault end (the horizon if it lasts). period_s: period of an
    intermittent fault, 0 otherwise. silent: HTTP 200 throughout (numeric or observability fault).
    """

    fault: str
    onset_s: float
    ends_s: float
    period_s: float
    silent: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeRecord:
    """One episode of one policy on one scenario with one seed.

    Row ``t`` of a per-tick array covers the interval ``(t * tick_s, (t + 1) * tick_s]``. T ticks.

    table: float32 [T, S, K + 1], routing table in force *during* the interval, last column shed.
    in_rotation, quarantined: bool [T, R], during the interval.
    violating: bool [T, R, S], ground truth: at any time of the interval the replica's true state
        broke a numeric, statistical or observability clause of the contract on that slice.
    runtime_violating: bool [T, R, S], ground truth: same for runtime clauses (crashed, hung, slowed
        so that the slice's SLO cannot be kept).
    offered, answered, failed, shed: int64 [T, S], requests by the interval in which they ended
        (offered: arrived); failed includes errors and timeouts, not shed ones.
    slo_missed: int64 [T, S], answered requests over the slice's SLO.
    exposed: int64 [T, S], answers on hard-clause slices by a replica violating at admission.
    exposed_in_flight: int64 [T, S], of these, those admitted before the last table or quarantine change.
    answered_by: int64 [T, R, S], answers per replica.
    offered_tokens, answered_tokens: float64 [T, S], output tokens, by the interval of the arrival /
        the end.
    excess_tv_tokens: float64 [T, S], sum over answered tokens of the excess TV to the reference.
    accelerator_s: float64 [T, K]; probe_tokens: float64 [T, K].
    capacity_move: bool [T], the table change at the start of this interval was for capacity only.
    dispatched: int64 [T, R, S], attempts sent to a replica, refused ones included, by the interval in which
        they were sent. forbidden: bool [T, S, K], cells that the plan in force during the interval knew to be
        forbidden: a hard clause is violated, and the contract did not choose to serve there.
    capacity_rows: bool [T, S], ``capacity_move`` slice by slice. None: not known, all three.
    evidence_s: time between two units of evidence that one replica gives of the incident's kind of fault:
        probes for numeric faults, scrapes for others (NaN: not known, or none are sent).
    blind: bool [T, R], the replica's probes and scrapes were lost in this interval; None: never.
    """

    run_id: str
    scenario: str
    policy: str
    seed: int
    tick_s: float
    horizon_s: float
    kernels: tuple[str, ...]
    known_good: int
    slices: tuple[str, ...]
    replicas: tuple[str, ...]
    replica_kernel: NDArray[np.int64]
    hard_slices: NDArray[np.bool_]
    incident: Incident | None
    table: NDArray[np.float32]
    in_rotation: NDArray[np.bool_]
    quarantined: NDArray[np.bool_]
    violating: NDArray[np.bool_]
    runtime_violating: NDArray[np.bool_]
    offered: NDArray[np.int64]
    answered: NDArray[np.int64]
    failed: NDArray[np.int64]
    shed: NDArray[np.int64]
    slo_missed: NDArray[np.int64]
    exposed: NDArray[np.int64]
    exposed_in_flight: NDArray[np.int64]
    answered_by: NDArray[np.int64]
    offered_tokens: NDArray[np.float64]
    answered_tokens: NDArray[np.float64]
    excess_tv_tokens: NDArray[np.float64]
    accelerator_s: NDArray[np.float64]
    probe_tokens: NDArray[np.float64]
    capacity_move: NDArray[np.bool_]
    evidence_s: float = math.nan
    blind: NDArray[np.bool_] | None = None
    dispatched: NDArray[np.int64] | None = None
    forbidden: NDArray[np.bool_] | None = None
    capacity_rows: NDArray[np.bool_] | None = None
