"""E5's measures: pure functions of one ``EpisodeRecord``.

The incident window runs from the row of the fault onset to the horizon, for every policy alike. Of
an episode without an incident (no fault, or a fault that never broke the contract) the incident
measures are not applicable: NaN, and left out of means by ``contracts.intervals``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from contracts.episode import EpisodeRecord
from contracts.incident_measures import (
    IncidentMeasures,
    has_incident,
    measure_incident,
    onset_row,
    outside_contract,
    outside_slo,
)
from contracts.switches import SwitchMeasures, measure_switches

#: Amplification is judged over so long: shares of fewer requests are noise.
_AMPLIFIED_OVER_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceQuality:
    """Sums over a window, per slice: what quality is computed from, and what may be pooled.

    offered_tokens, answered_tokens: float64 [S]. lost_tokens: float64 [S], tokens of shed and failed
    requests. excess_tv_tokens: float64 [S].
    """

    offered_tokens: NDArray[np.float64]
    answered_tokens: NDArray[np.float64]
    lost_tokens: NDArray[np.float64]
    excess_tv_tokens: NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityMeasures:
    """Quality of the window. Tuples hold one number per slice, the others weigh slices by offered tokens.

    loss: excess TV per offered token, a lost token counting as 1. preservation: (1 - loss) over
    (1 - loss) of the healthy baseline. loss_served: mean excess TV of answered tokens alone.
    """

    loss: float
    preservation: float
    loss_served: float
    loss_by_slice: tuple[float, ...]
    preservation_by_slice: tuple[float, ...]
    loss_served_by_slice: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExposureMeasures:
    """Answers on hard-clause slices by a replica that violates, from the onset on.

    ``exposed`` leaves out those in flight at the last change, which stand in ``in_flight``; ``total`` is
    both. ``ratio`` is ``exposed`` over all answers on hard-clause slices (NaN without any).
    forbidden_dispatched: attempts sent, in the whole episode, to a cell that the plan then in force knew to
    be forbidden (NaN where the world does not count them).
    """

    exposed: float
    in_flight: float
    ratio: float
    total: float = math.nan
    forbidden_dispatched: float = math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceMeasures:
    """Requests over the whole episode and in the incident, and what serving them cost.

    failed_ratio: (failed + shed) / offered. failed_ratio_incident: the same from the onset on (NaN
    without an incident). goodput_ratio: answers inside their SLO / offered. known_good_ratio: answers
    by the known-good kernel / answers.
    """

    failed_ratio: float
    failed_ratio_incident: float
    goodput_ratio: float
    accelerator_s: float
    probe_tokens: float
    known_good_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeMeasures:
    """All numbers of one episode; ``kept_by_slice`` is ``contract_kept_per_slice``."""

    scenario: str
    policy: str
    seed: int
    incident: IncidentMeasures | None
    service: ServiceMeasures
    quality: QualityMeasures
    exposure: ExposureMeasures
    switches: SwitchMeasures
    kept_by_slice: tuple[float, ...]


def failed_ratio(record: EpisodeRecord, from_row: int = 0) -> float:
    """(failed + shed) / offered requests from ``from_row`` on; NaN when nothing was offered."""
    lost = record.failed[from_row:].sum() + record.shed[from_row:].sum()
    return _ratio(float(lost), float(record.offered[from_row:].sum()))


def slice_quality(record: EpisodeRecord, from_row: int = 0, to_row: int | None = None) -> SliceQuality:
    """Token sums of the rows [from_row, to_row).

    The tokens a lost request would have had are not known: each counts the slice's mean offered tokens
    per request, over the whole episode.
    """
    span = slice(from_row, to_row)
    requests = np.maximum(record.offered.sum(axis=0), 1)
    per_request = record.offered_tokens.sum(axis=0) / requests
    lost = (record.failed[span] + record.shed[span]).sum(axis=0)
    return SliceQuality(
        offered_tokens=record.offered_tokens[span].sum(axis=0),
        answered_tokens=record.answered_tokens[span].sum(axis=0),
        lost_tokens=lost * per_request,
        excess_tv_tokens=record.excess_tv_tokens[span].sum(axis=0),
    )


def pool_quality(parts: list[SliceQuality]) -> SliceQuality:
    """Sum of several windows, e.g. the healthy windows of all seeds."""
    return SliceQuality(
        offered_tokens=np.sum([part.offered_tokens for part in parts], axis=0),
        answered_tokens=np.sum([part.answered_tokens for part in parts], axis=0),
        lost_tokens=np.sum([part.lost_tokens for part in parts], axis=0),
        excess_tv_tokens=np.sum([part.excess_tv_tokens for part in parts], axis=0),
    )


def healthy_quality(record: EpisodeRecord) -> SliceQuality:
    """The window before the fault (the whole episode where there is none).

    Of the *fixed* arm, whose table is the home table, this is the healthy baseline: every slice on
    its home kernel, nothing injected, same arrivals as every other policy.
    """
    return slice_quality(record, 0, onset_row(record))


def loss_per_slice(quality: SliceQuality) -> NDArray[np.float64]:
    """Float64 [S]: (excess TV tokens + lost tokens) / offered tokens, NaN where none were offered.

    Tokens are counted where requests end, so requests in flight at the onset are in, those still in
    flight at the horizon are not.
    """
    return _ratios(quality.excess_tv_tokens + quality.lost_tokens, quality.offered_tokens)


def served_loss_per_slice(quality: SliceQuality) -> NDArray[np.float64]:
    """Float64 [S]: mean excess TV of answered tokens alone, NaN where none were answered."""
    return _ratios(quality.excess_tv_tokens, quality.answered_tokens)


def preservation_per_slice(quality: SliceQuality, healthy: SliceQuality) -> NDArray[np.float64]:
    """Float64 [S]: (1 - loss in the window) / (1 - loss of the healthy baseline), per slice.

    1 is as good as the healthy fleet; above 1 is possible, because a fallback kernel may be better
    than home.
    """
    return _ratios(1.0 - loss_per_slice(quality), 1.0 - loss_per_slice(healthy))


def contract_kept_per_slice(record: EpisodeRecord) -> NDArray[np.float64]:
    """Float64 [S]: share of rows in which the slice is inside the contract and its SLO."""
    inside = ~(outside_contract(record) | outside_slo(record))
    out: NDArray[np.float64] = inside.mean(axis=0)
    return out


def truncate(record: EpisodeRecord, end_s: float) -> EpisodeRecord:
    """The record up to ``end_s``: for the measures until the fault's end, where an undo heals all."""
    rows = min(len(record.table), math.ceil(end_s / record.tick_s - 1e-9))
    cut = {
        field.name: getattr(record, field.name)[:rows]
        for field in fields(record)
        if isinstance(getattr(record, field.name), np.ndarray)
        and field.name not in ("replica_kernel", "hard_slices")
    }
    return replace(record, horizon_s=rows * record.tick_s, **cut)


def measure_episode(record: EpisodeRecord, healthy: SliceQuality) -> EpisodeMeasures:
    """All measures of ``record``; ``healthy`` is the baseline of ``preservation_per_slice``.

    The window of quality, exposure and incident failures starts at the fault onset; without a fault
    it is the whole episode.
    """
    start = onset_row(record) if record.incident is not None else 0
    return EpisodeMeasures(
        scenario=record.scenario,
        policy=record.policy,
        seed=record.seed,
        incident=measure_incident(record),
        service=measure_service(record),
        quality=measure_quality(slice_quality(record, start), healthy),
        exposure=measure_exposure(record, start),
        switches=measure_switches(record),
        kept_by_slice=tuple(contract_kept_per_slice(record).tolist()),
    )


def measure_quality(quality: SliceQuality, healthy: SliceQuality) -> QualityMeasures:
    """Loss and preservation of a window, per slice and weighted by offered tokens."""
    loss, kept = loss_per_slice(quality), preservation_per_slice(quality, healthy)
    offered = quality.offered_tokens
    return QualityMeasures(
        loss=_weighted(loss, offered),
        preservation=_weighted(kept, offered),
        loss_served=_ratio(float(quality.excess_tv_tokens.sum()), float(quality.answered_tokens.sum())),
        loss_by_slice=tuple(loss.tolist()),
        preservation_by_slice=tuple(kept.tolist()),
        loss_served_by_slice=tuple(served_loss_per_slice(quality).tolist()),
    )


def measure_exposure(record: EpisodeRecord, from_row: int) -> ExposureMeasures:
    """Exposure from ``from_row`` on."""
    total = float(record.exposed[from_row:].sum())
    in_flight = float(record.exposed_in_flight[from_row:].sum())
    answered = float(record.answered[from_row:, record.hard_slices].sum())
    exposed = total - in_flight
    return ExposureMeasures(
        exposed=exposed,
        in_flight=in_flight,
        ratio=_ratio(exposed, answered),
        total=total,
        forbidden_dispatched=forbidden_dispatched(record),
    )


def forbidden_dispatched(record: EpisodeRecord) -> float:
    """Attempts sent to a cell that the plan in force knew to be forbidden; NaN where nobody counted."""
    if record.dispatched is None or record.forbidden is None:
        return math.nan
    closed = record.forbidden[:, :, record.replica_kernel].transpose(0, 2, 1)
    return float(record.dispatched[closed].sum())


def amplification(record: EpisodeRecord, fault_free: EpisodeRecord) -> float:
    """By how much the share of a slice's traffic sent to a violating kernel exceeds the fault-free run's.

    Both of one policy and one seed, with the same arrivals. Per row from the first action against the fault
    on: of all attempts, the share sent to (kernel, slice) that violates then, less the same cells' share
    without the fault; the largest sum over a minute, so that single requests do not count. 0 or less: no
    amplification. NaN where the fault was not detected or nobody counted.
    """
    found = measure_incident(record)
    if found is None or not found.detected or record.dispatched is None or fault_free.dispatched is None:
        return math.nan
    start = onset_row(record) + math.ceil(found.detection_lag_s / record.tick_s)
    span = max(1, round(_AMPLIFIED_OVER_S / record.tick_s))
    parts = []
    for episode in (record, fault_free):
        assert episode.dispatched is not None
        wrong = (episode.dispatched * record.violating).sum(axis=(1, 2))
        parts.append(_over(wrong, span) / np.maximum(_over(episode.dispatched.sum(axis=(1, 2)), span), 1))
    excess = (parts[0] - parts[1])[start + span :]
    return float(excess.max()) if excess.size else math.nan


def _over(counts: NDArray[np.int64], span: int) -> NDArray[np.int64]:
    """Sum of the last ``span`` rows at every row [T]."""
    total = np.cumsum(counts)
    out: NDArray[np.int64] = total - np.concatenate([np.zeros(span, total.dtype), total[:-span]])
    return out


def measure_service(record: EpisodeRecord) -> ServiceMeasures:
    """Failures, goodput and cost."""
    by_replica = record.answered_by.sum(axis=(0, 2))
    known_good = float(by_replica[record.replica_kernel == record.known_good].sum())
    good = float(record.answered.sum() - record.slo_missed.sum())
    failed_incident = failed_ratio(record, onset_row(record)) if has_incident(record) else math.nan
    return ServiceMeasures(
        failed_ratio=failed_ratio(record),
        failed_ratio_incident=failed_incident,
        goodput_ratio=_ratio(good, float(record.offered.sum())),
        accelerator_s=float(record.accelerator_s.sum()),
        probe_tokens=float(record.probe_tokens.sum()),
        known_good_ratio=_ratio(known_good, float(by_replica.sum())),
    )


def _ratio(part: float, whole: float) -> float:
    """``part / whole``; NaN for an empty whole."""
    return part / whole if whole > 0 else math.nan


def _ratios(part: NDArray[np.float64], whole: NDArray[np.float64]) -> NDArray[np.float64]:
    """Elementwise ``_ratio``."""
    out: NDArray[np.float64] = np.divide(part, whole, out=np.full(part.shape, np.nan), where=whole > 0)
    return out


def _weighted(values: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
    """Mean of ``values`` weighted by ``weights``, where both are known."""
    known = np.isfinite(values) & (weights > 0)
    return _ratio(float((values[known] * weights[known]).sum()), float(weights[known].sum()))
