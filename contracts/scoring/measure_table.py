"""The scalar measures of E5 by name: what the report and ``e5.json`` list, and in which unit.

A *count* becomes a rate per slice-month with exact Poisson limits; everything else becomes a mean
with bootstrap limits. NaN stands for "not applicable here" (no incident, nothing offered).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from contracts.scoring.measures import EpisodeMeasures


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One scalar measure."""

    name: str  # in results
    unit: str
    label: str  # for people
    better: Literal["low", "high", "none"]
    value: Callable[[EpisodeMeasures], float]
    is_count: bool = False  # becomes a rate per slice-month


def _of_incident(name: str) -> Callable[[EpisodeMeasures], float]:
    """Field ``name`` of the incident as a number; NaN without an incident."""
    return lambda episode: math.nan if episode.incident is None else float(getattr(episode.incident, name))


def _of_recovery(name: str) -> Callable[[EpisodeMeasures], float]:
    """The same of a recovery, which only a feasible incident can have."""
    value = _of_incident(name)
    return lambda episode: math.nan if _infeasible(episode) == 1.0 else value(episode)


def _infeasible(episode: EpisodeMeasures) -> float:
    """1 where not even the optimum recovers, else 0; NaN without an incident."""
    return math.nan if episode.incident is None else float(episode.incident.infeasible)


def _lag(episode: EpisodeMeasures) -> float:
    """Detection lag, censored at the horizon; NaN without an incident or when mitigated before it."""
    found = episode.incident
    return math.nan if found is None or found.mitigated else found.detection_lag_s


def _missed(episode: EpisodeMeasures) -> float:
    """1 when no action was taken before the horizon; NaN as for ``_lag``."""
    found = episode.incident
    return math.nan if found is None or found.mitigated else float(not found.detected)


def _unrecovered(episode: EpisodeMeasures) -> float:
    """1 when the incident lasted to the horizon; NaN without a feasible incident."""
    recovered = _of_recovery("recovered")(episode)
    return math.nan if math.isnan(recovered) else 1.0 - recovered


MEASURES: tuple[Measure, ...] = (
    Measure(
        name="quality_preservation",
        unit="ratio",
        label="quality preserved",
        better="high",
        value=lambda episode: episode.quality.preservation,
    ),
    Measure(name="mttr_s", unit="s", label="MTTR", better="low", value=_of_recovery("mttr_s")),
    Measure(name="unrecovered", unit="ratio", label="unrecovered", better="low", value=_unrecovered),
    Measure(name="infeasible", unit="ratio", label="infeasible", better="none", value=_infeasible),
    Measure(
        name="regret_ratio",
        unit="ratio",
        label="regret, infeasible",
        better="low",
        value=_of_incident("regret_ratio"),
    ),
    Measure(name="detection_lag_s", unit="s", label="detection lag", better="low", value=_lag),
    Measure(name="detection_missed", unit="ratio", label="not detected", better="low", value=_missed),
    Measure(
        name="already_mitigated",
        unit="ratio",
        label="already mitigated",
        better="none",
        value=_of_incident("mitigated"),
    ),
    Measure(
        name="breach_s", unit="s", label="onset to breach", better="none", value=_of_incident("breach_s")
    ),
    Measure(
        name="violation_lag_s",
        unit="s",
        label="breach to recovery",
        better="low",
        value=_of_recovery("violation_lag_s"),
    ),
    Measure(
        name="visible_lag_s",
        unit="s",
        label="visible breach to recovery",
        better="low",
        value=_of_recovery("visible_lag_s"),
    ),
    Measure(
        name="slice_lag_s",
        unit="s",
        label="slowest slice, visible breach to recovery",
        better="low",
        value=_of_recovery("slice_lag_s"),
    ),
    Measure(
        name="lower_bound_s",
        unit="s",
        label="lower bound",
        better="none",
        value=_of_incident("lower_bound_s"),
    ),
    Measure(
        name="excess_s",
        unit="s",
        label="beyond the lower bound",
        better="low",
        value=_of_recovery("excess_s"),
    ),
    Measure(
        name="failed_ratio_incident",
        unit="ratio",
        label="failed in incident",
        better="low",
        value=lambda episode: episode.service.failed_ratio_incident,
    ),
    Measure(
        name="failed_ratio",
        unit="ratio",
        label="failed overall",
        better="low",
        value=lambda episode: episode.service.failed_ratio,
    ),
    Measure(
        name="goodput_ratio",
        unit="ratio",
        label="goodput",
        better="high",
        value=lambda episode: episode.service.goodput_ratio,
    ),
    Measure(
        name="useful_ratio",
        unit="ratio",
        label="useful tokens",
        better="high",
        value=lambda episode: episode.service.useful_ratio,
    ),
    Measure(
        name="failed_or_exposed_ratio",
        unit="ratio",
        label="failed or exposed",
        better="low",
        value=lambda episode: episode.service.failed_or_exposed_ratio,
    ),
    Measure(
        name="quality_loss",
        unit="TV/token",
        label="quality loss",
        better="low",
        value=lambda episode: episode.quality.loss,
    ),
    Measure(
        name="quality_loss_served",
        unit="TV/token",
        label="loss of served tokens",
        better="low",
        value=lambda episode: episode.quality.loss_served,
    ),
    Measure(
        name="exposed_total",
        unit="answers",
        label="exposures from onset",
        better="low",
        value=lambda episode: episode.exposure.total,
    ),
    Measure(
        name="forbidden_dispatched",
        unit="attempts",
        label="sent where the plan forbids",
        better="low",
        value=lambda episode: episode.exposure.forbidden_dispatched,
    ),
    Measure(
        name="exposed",
        unit="answers",
        label="exposed answers",
        better="low",
        value=lambda episode: episode.exposure.exposed,
    ),
    Measure(
        name="exposed_in_flight",
        unit="answers",
        label="exposed in flight",
        better="low",
        value=lambda episode: episode.exposure.in_flight,
    ),
    Measure(
        name="exposed_ratio",
        unit="ratio",
        label="exposed share",
        better="low",
        value=lambda episode: episode.exposure.ratio,
    ),
    Measure(
        name="false_switches_per_slice_month",
        unit="1/slice-month",
        label="false switches",
        better="low",
        value=lambda episode: episode.switches.false_switches,
        is_count=True,
    ),
    Measure(
        name="false_switches_in_rotation_per_slice_month",
        unit="1/slice-month",
        label="false switches in rotation",
        better="low",
        value=lambda episode: episode.switches.false_switches_in_rotation,
        is_count=True,
    ),
    Measure(
        name="false_quarantines_per_slice_month",
        unit="1/slice-month",
        label="of these quarantines",
        better="low",
        value=lambda episode: episode.switches.false_quarantines,
        is_count=True,
    ),
    Measure(
        name="true_switches_per_slice_month",
        unit="1/slice-month",
        label="true switches",
        better="none",
        value=lambda episode: episode.switches.true_switches,
        is_count=True,
    ),
    Measure(
        name="capacity_moves_per_slice_month",
        unit="1/slice-month",
        label="capacity moves",
        better="none",
        value=lambda episode: episode.switches.capacity_moves,
        is_count=True,
    ),
    Measure(
        name="weight_moved",
        unit="half L1",
        label="weight moved",
        better="low",
        value=lambda episode: episode.switches.weight_moved,
    ),
    Measure(
        name="accelerator_s",
        unit="s",
        label="accelerator time",
        better="low",
        value=lambda episode: episode.service.accelerator_s,
    ),
    Measure(
        name="probe_tokens",
        unit="tokens",
        label="probe tokens",
        better="low",
        value=lambda episode: episode.service.probe_tokens,
    ),
    Measure(
        name="known_good_ratio",
        unit="ratio",
        label="on known-good",
        better="none",
        value=lambda episode: episode.service.known_good_ratio,
    ),
)

#: What reports call each measure.
MEASURE_LABELS = {measure.name: measure.label for measure in MEASURES}
