"""E5's measures: pure functions of one ``EpisodeRecord``, and the form in which files keep them.

The incident window runs from the row of the fault onset to the horizon, for every policy alike. Of
an episode without an incident (no fault, or a fault that never broke the contract) the incident
measures are not applicable: NaN, and left out of means by ``contracts.scoring.intervals``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from contracts.loading.files import plain
from contracts.scoring.episode import EpisodeRecord
from contracts.scoring.incident_measures import (
    IncidentMeasures,
    has_incident,
    measure_incident,
    onset_row,
    outside_contract,
    outside_slo,
)
from contracts.scoring.quality import QualityMeasures, SliceQuality, measure_quality, ratio_of, slice_quality
from contracts.scoring.switches import SwitchMeasures, measure_switches

#: Amplification is judged over so long: shares of fewer requests are noise.
_AMPLIFIED_OVER_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExposureMeasures:
    """Answers on hard slices by a replica that violates, from the onset on."""

    exposed: float  # answers, without those in flight at the last change
    in_flight: float  # answers that were in flight at the last change
    ratio: float  # exposed over all answers on hard slices; NaN without any
    total: float  # exposed and in_flight
    forbidden_dispatched: float  # attempts, in the whole episode, to a cell that the plan in force forbade


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceMeasures:
    """Requests over the whole episode and in the incident, and what serving them cost."""

    failed_ratio: float  # (failed + shed) / offered
    failed_ratio_incident: float  # the same from the onset on; NaN without an incident
    goodput_ratio: float  # answers inside their SLO / offered
    useful_ratio: float  # useful / offered tokens
    failed_or_exposed_ratio: float  # (failed + shed + exposed answers) / offered
    accelerator_s: float
    probe_tokens: float
    known_good_ratio: float  # answers by the known-good kernel / answers


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeMeasures:
    """All numbers of one episode."""

    scenario: str
    policy: str
    seed: int
    incident: IncidentMeasures | None
    service: ServiceMeasures
    quality: QualityMeasures
    exposure: ExposureMeasures
    switches: SwitchMeasures
    kept_by_slice: tuple[float, ...]  # ``contract_kept_per_slice``


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


def contract_kept_per_slice(record: EpisodeRecord) -> NDArray[np.float64]:
    """Float64 [S]: share of rows in which the slice is inside the contract and its SLO."""
    inside = ~(outside_contract(record) | outside_slo(record))
    out: NDArray[np.float64] = inside.mean(axis=0)
    return out


def failed_ratio(record: EpisodeRecord, from_row: int = 0) -> float:
    """(failed + shed) / offered requests from ``from_row`` on; NaN when nothing was offered."""
    failed_or_shed = record.failed[from_row:].sum() + record.shed[from_row:].sum()
    return ratio_of(float(failed_or_shed), float(record.offered[from_row:].sum()))


def measure_exposure(record: EpisodeRecord, from_row: int) -> ExposureMeasures:
    """Exposure from ``from_row`` on."""
    total = float(record.exposed[from_row:].sum())
    in_flight = float(record.exposed_in_flight[from_row:].sum())
    answered = float(record.answered[from_row:, record.hard_slices].sum())
    exposed = total - in_flight
    return ExposureMeasures(
        exposed=exposed,
        in_flight=in_flight,
        ratio=ratio_of(exposed, answered),
        total=total,
        forbidden_dispatched=forbidden_dispatched(record),
    )


def forbidden_dispatched(record: EpisodeRecord) -> float:
    """Attempts sent to a cell that the plan in force knew to be forbidden."""
    closed = record.forbidden[:, :, record.replica_kernel].transpose(0, 2, 1)
    return float(record.dispatched[closed].sum())


def amplification(record: EpisodeRecord, fault_free: EpisodeRecord) -> float:
    """By how much the share of a slice's traffic sent to a violating kernel exceeds the fault-free run's.

    Both of one policy and one seed, with the same arrivals. Per row from the first action against the fault
    on: of all attempts, the share sent to (kernel, slice) that violates then, less the same cells' share
    without the fault; the largest sum over a minute, so that single requests do not count. 0 or less: no
    amplification. NaN where the fault was not detected.
    """
    found = measure_incident(record)
    if found is None or not found.detected:
        return math.nan
    start = onset_row(record) + math.ceil(found.detection_lag_s / record.tick_s)
    span = max(1, round(_AMPLIFIED_OVER_S / record.tick_s))
    shares = []
    for episode in (record, fault_free):
        wrong = (episode.dispatched * record.violating).sum(axis=(1, 2))
        shares.append(_over(wrong, span) / np.maximum(_over(episode.dispatched.sum(axis=(1, 2)), span), 1))
    excess = (shares[0] - shares[1])[start + span :]
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
    failed_or_exposed = float(record.failed.sum() + record.shed.sum() + record.exposed.sum())
    return ServiceMeasures(
        failed_ratio=failed_ratio(record),
        failed_ratio_incident=failed_incident,
        goodput_ratio=ratio_of(good, float(record.offered.sum())),
        useful_ratio=ratio_of(float(record.useful_tokens.sum()), float(record.offered_tokens.sum())),
        failed_or_exposed_ratio=ratio_of(failed_or_exposed, float(record.offered.sum())),
        accelerator_s=float(record.accelerator_s.sum()),
        probe_tokens=float(record.probe_tokens.sum()),
        known_good_ratio=ratio_of(known_good, float(by_replica.sum())),
    )


_MEASURES = TypeAdapter(EpisodeMeasures)
_ABSENT = ("incident",)
"""Fields whose null says that there is none."""


def measures_plain(measures: EpisodeMeasures) -> dict[str, Any]:
    """``measures`` as JSON holds them."""
    found: dict[str, Any] = plain(asdict(measures))
    return found


def measures_of(found: Mapping[str, Any]) -> EpisodeMeasures:
    """What ``measures_plain`` wrote; ValueError for anything else."""
    return _MEASURES.validate_python(_known(dict(found)))


def _known(value: Any, name: str = "") -> Any:
    """``value`` with NaN for null."""
    if isinstance(value, dict):
        return {key: _known(inner, key) for key, inner in value.items()}
    if isinstance(value, list):
        return [_known(inner) for inner in value]
    return float("nan") if value is None and name not in _ABSENT else value
