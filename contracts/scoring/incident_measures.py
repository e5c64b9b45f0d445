"""When a fault is seen and when it is over, from the truth in an ``EpisodeRecord`` alone.

Rows are control intervals; the fault starts in row ``o = floor(onset_at_s / tick_s)``. A pair (replica r,
slice s) *breaks* the contract in row t when ``violating`` or ``runtime_violating`` is set, and is *used*
when its kernel has weight on s and r is in rotation, or when it answered a request of s.

There is no incident where no pair breaks the contract from row o on; pairs that broke it in every
row before o (a kernel that never fitted the slice) are no effect of the fault and do not count.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contracts.scoring.episode import EpisodeRecord
from contracts.scoring.feasible import can_recover, regret_ratio

#: Weights below this are zero: a table is stored as float32.
WEIGHT_TOLERANCE = 1e-6
#: A row must give up at least this much weight to count as an action against a kernel.
ACTION_WEIGHT = 1e-3
#: A recovery must last this long (and two periods of an intermittent fault) to count.
RECOVERY_S = 60.0
#: The service objectives are judged over this trailing time.
SLO_WINDOW_S = 30.0
#: More than this share of a slice's ended requests shed or failed is outside.
FAILED_OR_SHED_LIMIT_RATIO = 0.01
#: More than this share of a slice's answers over its objective is outside (a 95th percentile).
SLO_MISSED_LIMIT_RATIO = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentMeasures:
    """How one incident went. Times are seconds from the onset unless said otherwise; none is below 0.

    When the truth begins to violate the contract, and when that can be seen, is no merit or fault of a
    policy, so recovery is also counted from there.
    """

    fault: str
    silent: bool  # HTTP 200 throughout
    onset_at_s: float  # instant of the fault onset
    breach_s: float  # until the first row in which a pair breaks the contract; 0 for a step
    mitigated: bool  # no breaking pair was ever used
    detected: bool  # some action was taken against a used, breaking pair
    detection_lag_s: float  # until that action; to the horizon where there was none
    recovered: bool
    mttr_s: float  # until the recovery; to the horizon where there was none
    visible_s: float  # until a breaking pair's telemetry was not lost; to the horizon where it always was
    violation_lag_s: float  # from the breach to the recovery
    visible_lag_s: float  # from the visible breach to the recovery
    slice_lag_s: float  # the same of the slowest slice, each from its own visible breach to its own recovery
    lower_bound_s: float  # one interval of the fault's evidence and one tick; NaN where no evidence is sent
    excess_s: float  # ``slice_lag_s`` beyond the lower bound; NaN without one
    infeasible: bool = False  # not even ``contracts.scoring.feasible``'s optimum recovers
    regret_ratio: float = math.nan  # useful tokens short of that optimum's, per offered one; NaN: feasible


def onset_row(record: EpisodeRecord) -> int:
    """Row in which the incident starts; the number of rows when there is none."""
    if record.incident is None:
        return len(record.table)
    return min(len(record.table), math.floor(record.incident.onset_at_s / record.tick_s + 1e-9))


def breaking(record: EpisodeRecord) -> NDArray[np.bool_]:
    """Bool [T, R, S]: the replica's true state broke a clause of the contract on that slice."""
    return record.violating | record.runtime_violating


def breaking_ratio(
    bad: NDArray[np.bool_], in_rotation: NDArray[np.bool_], owner: NDArray[np.int64], kernels: int
) -> NDArray[np.float64]:
    """Share of each kernel's replicas ``in_rotation`` [N, R] that are ``bad`` [N, R, S], [N, K, S].

    owner: int [R], the replica's kernel. A kernel without a replica in rotation has 0.
    """
    found = np.zeros((len(bad), kernels, bad.shape[2]))
    for kernel in range(kernels):
        mine = owner == kernel
        serving = in_rotation[:, mine, None]
        found[:, kernel] = (bad[:, mine] & serving).sum(axis=1) / np.maximum(serving.sum(axis=1), 1)
    return found


def routed(record: EpisodeRecord) -> NDArray[np.bool_]:
    """Bool [T, R, S]: the table and the rotation send requests of the slice to the replica."""
    weight = record.table[:, :, record.replica_kernel].transpose(0, 2, 1)
    return (weight > WEIGHT_TOLERANCE) & record.in_rotation[:, :, None]


def incident_pairs(record: EpisodeRecord) -> NDArray[np.bool_]:
    """Bool [R, S]: pairs that break the contract from the onset on, and did not always before."""
    row, broken = onset_row(record), breaking(record)
    always_before = broken[:row].all(axis=0) if row else np.zeros(broken.shape[1:], dtype=np.bool_)
    return np.asarray(broken[row:].any(axis=0) & ~always_before)


def has_incident(record: EpisodeRecord) -> bool:
    """True when there is a fault and it makes some pair break the contract."""
    return record.incident is not None and bool(incident_pairs(record).any())


def outside_contract(record: EpisodeRecord) -> NDArray[np.bool_]:
    """Bool [T, S]: a replica that breaks the contract on the slice was sent, or answered, its requests."""
    used = routed(record) | (record.answered_by > 0)
    return np.asarray((breaking(record) & used).any(axis=1))


def _trailing(counts: NDArray[np.int64], rows: int) -> NDArray[np.int64]:
    """Sum over the last ``rows`` rows, this one included; shape as given."""
    total = np.cumsum(counts, axis=0)
    out = total.copy()
    out[rows:] -= total[:-rows]
    return out


def outside_slo(record: EpisodeRecord) -> NDArray[np.bool_]:
    """Bool [T, S]: over the trailing 30 s more than 1 % failed or shed, or more than 5 % late.

    The shares are (shed + failed) / (answered + shed + failed) and slo_missed / answered. A slice without
    ended requests is inside.
    """
    rows = max(1, round(SLO_WINDOW_S / record.tick_s))
    failed_or_shed = _trailing(record.failed + record.shed, rows)
    answered = _trailing(record.answered, rows)
    late = _trailing(record.slo_missed, rows)
    return (failed_or_shed > FAILED_OR_SHED_LIMIT_RATIO * (failed_or_shed + answered)) | (
        late > SLO_MISSED_LIMIT_RATIO * answered
    )


def recovery_row(record: EpisodeRecord) -> int | None:
    """First row from which every slice stays inside for max(60 s, two periods), or None.

    The search starts at the first row outside (before it there is nothing to recover from: a ramp
    that has not yet broken anything is no recovery); when no row is outside, that is the onset.
    """
    if record.incident is None:
        return None
    outside = np.asarray((outside_contract(record) | outside_slo(record)).any(axis=1))
    return _recovery(record, outside, onset_row(record))


def _recovery(record: EpisodeRecord, outside: NDArray[np.bool_], start: int) -> int | None:
    """First row from ``start`` on from which ``outside`` [T] stays False long enough, or None."""
    outside = outside[start:]
    if not outside.any():
        return start
    first = int(np.argmax(outside))
    return _first_run(outside, first, math.ceil(_needed_s(record) / record.tick_s - 1e-9), start)


def _needed_s(record: EpisodeRecord) -> float:
    """For how long a recovery must last."""
    assert record.incident is not None
    return max(RECOVERY_S, 2.0 * record.incident.period_s)


def slowest_slice_s(record: EpisodeRecord) -> float:
    """Largest time from a slice's first visible violation until it is inside again for good, in seconds.

    0 for a slice that was never outside from then on; to the horizon for one that stays outside.
    """
    row, pairs = onset_row(record), incident_pairs(record)
    broken = breaking(record) & pairs[None]
    outside = outside_contract(record) | outside_slo(record)
    lags = [0.0]
    for place in np.flatnonzero(pairs.any(axis=0)).tolist():
        only = np.zeros(broken.shape[2], dtype=np.bool_)
        only[place] = True
        start = _visible_row(record, (broken & only)[row:], row)
        if start is not None:
            found = _recovery(record, outside[:, place], start)
            lags.append(_since(record, found) - _since(record, start))
    return max(lags)


def _first_run(outside: NDArray[np.bool_], first: int, rows: int, start: int) -> int | None:
    """Row (offset by ``start``) of the first run of ``rows`` rows inside, from ``first`` on."""
    last_outside = first
    for row in [*np.flatnonzero(outside[first:]) + first, len(outside)]:
        if row - last_outside - 1 >= rows:
            return start + int(last_outside) + 1
        last_outside = row
    return None


def action_row(record: EpisodeRecord) -> int | None:
    """First row after the onset's whose table or rotation takes traffic from a breaking, used pair.

    A pair counts from the row after it first broke the contract. An action is weight given up by its kernel
    on its slice (more than 0.001), or the replica leaving the rotation.
    """
    row = onset_row(record)
    broken = breaking(record) & incident_pairs(record)[None]
    broken[:row] = False
    known = np.logical_or.accumulate(broken, axis=0)[:-1]
    weight = record.table[:, :, record.replica_kernel].transpose(0, 2, 1)
    less = weight[1:] < weight[:-1] - ACTION_WEIGHT
    left = (record.in_rotation[:-1] & ~record.in_rotation[1:])[:, :, None]
    acted = (known & routed(record)[:-1] & (less | left)).any(axis=(1, 2))
    return int(np.argmax(acted)) + 1 if acted.any() else None


def measure_incident(record: EpisodeRecord) -> IncidentMeasures | None:
    """Detection lag and time to recovery of the record's incident; None without one.

    lag = action_row * tick_s - onset_at_s and mttr = recovery_row * tick_s - onset_at_s; both are censored
    at the horizon (value horizon_s - onset_at_s, ``detected`` / ``recovered`` False).
    """
    incident = record.incident
    if incident is None or not has_incident(record):
        return None
    row = onset_row(record)
    broken = (breaking(record) & incident_pairs(record)[None])[row:]
    used = (routed(record) | (record.answered_by > 0))[row:]
    breach = row + int(np.argmax(broken.any(axis=(1, 2))))
    acted, recovered = action_row(record), recovery_row(record)
    mttr_s, breach_s = _since(record, recovered), _since(record, breach)
    visible_s = _since(record, _visible_row(record, broken, row))
    lower_bound_s, slice_lag_s = _lower_bound_s(record), slowest_slice_s(record)
    infeasible = not can_recover(record, breaking(record), row, _needed_s(record), FAILED_OR_SHED_LIMIT_RATIO)
    return IncidentMeasures(
        fault=incident.fault,
        silent=incident.silent,
        onset_at_s=incident.onset_at_s,
        breach_s=breach_s,
        mitigated=not bool((broken & used).any()),
        detected=acted is not None,
        detection_lag_s=_since(record, acted),
        recovered=recovered is not None,
        mttr_s=mttr_s,
        visible_s=visible_s,
        violation_lag_s=max(0.0, mttr_s - breach_s),
        visible_lag_s=max(0.0, mttr_s - visible_s),
        slice_lag_s=slice_lag_s,
        lower_bound_s=lower_bound_s,
        excess_s=math.nan if math.isnan(lower_bound_s) else max(0.0, slice_lag_s - lower_bound_s),
        infeasible=infeasible,
        regret_ratio=regret_ratio(record, breaking(record), row, RECOVERY_S) if infeasible else math.nan,
    )


def _lower_bound_s(record: EpisodeRecord) -> float:
    """Least time in which evidence of the fault can arrive and be answered."""
    if not math.isfinite(record.evidence_interval_s):
        return math.nan  # this very object, so that equal incidents compare equal
    return record.evidence_interval_s + record.tick_s


def _visible_row(record: EpisodeRecord, broken: NDArray[np.bool_], start: int) -> int | None:
    """First row in which a pair of ``broken`` [T - start, R, S] breaks the contract and telemetry arrives."""
    visible = broken.any(axis=2) & ~record.blind[start:]
    seen = np.flatnonzero(visible.any(axis=1))
    return start + int(seen[0]) if seen.size else None


def _since(record: EpisodeRecord, row: int | None) -> float:
    """Seconds from the onset to the start of ``row``, to the horizon for None."""
    assert record.incident is not None
    at_s = record.horizon_s if row is None else row * record.tick_s
    return max(0.0, at_s - record.incident.onset_at_s)
