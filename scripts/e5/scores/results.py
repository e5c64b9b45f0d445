"""From the measures of all episodes to the tables of ``e5.json``.

Axes of every matrix: seeds (the clusters of the bootstrap) by scenarios. Independent of the order in which
episodes finished.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contracts.loading.files import plain
from contracts.scoring.intervals import (
    Interval,
    clustered_mean,
    paired_difference,
    paired_ratio,
    poisson_rate,
)
from contracts.scoring.measure_table import MEASURES, Measure
from contracts.scoring.measures import EpisodeMeasures
from scripts.e5.suite import GROUPS

#: Measures of the paired comparison of every policy with each of these configurations.
COMPARED = ("quality_preservation", "mttr_s", "failed_ratio_incident", "goodput_ratio", "weight_moved")
COMPARED_WITH = ("fixed-bare", "fixed", "breaker", "hysteresis")
#: Times of recovery given as ratios to this configuration's, scenario by scenario.
RATIO_TO = "hysteresis"
RATIOS = ("mttr_s", "violation_lag_s", "visible_lag_s", "slice_lag_s", "excess_s")
#: Per-slice measures: name in results, tuple of an episode.
BY_SLICE: dict[str, Callable[[EpisodeMeasures], tuple[float, ...]]] = {
    "quality_preservation": lambda episode: episode.quality.preservation_by_slice,
    "quality_loss": lambda episode: episode.quality.loss_by_slice,
    "quality_loss_served": lambda episode: episode.quality.loss_served_by_slice,
    "contract_kept_ratio": lambda episode: episode.kept_by_slice,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Episodes:
    """All episodes of a run; ``groups`` maps a group to its scenarios, in suite order.

    policies: configurations that ran on every scenario; sweep: settings that ran on part of the suite.
    """

    policies: tuple[str, ...]
    sweep: tuple[str, ...]
    scenarios: tuple[str, ...]
    groups: dict[str, tuple[str, ...]]
    slices: tuple[str, ...]
    seeds: tuple[int, ...]
    cells: dict[tuple[str, str, int], EpisodeMeasures]

    def of(self, policy: str, scenarios: Sequence[str]) -> list[list[EpisodeMeasures | None]]:
        """Episodes [seed][scenario]; None where the run has none (a sweep runs on part of the suite)."""
        return [[self.cells.get((policy, name, seed)) for name in scenarios] for seed in self.seeds]

    def matrix(self, policy: str, scenarios: Sequence[str], measure: Measure) -> NDArray[np.float64]:
        """Float64 [seeds, scenarios] of one measure, NaN where not applicable or not run."""
        rows = self.of(policy, scenarios)
        return np.array([[math.nan if e is None else measure.value(e) for e in row] for row in rows])


def interval_json(interval: Interval) -> dict[str, float | int | None]:
    """``{mean, ci_low, ci_high, n}`` with null for unknown values."""
    found: dict[str, float | int | None] = plain(asdict(interval))
    return found


def summarise(episodes: Episodes, policy: str, scenarios: Sequence[str]) -> dict[str, Any]:
    """Every measure of one policy over ``scenarios``."""
    return {
        measure.name: interval_json(_interval(episodes, policy, scenarios, measure)) for measure in MEASURES
    }


def _interval(episodes: Episodes, policy: str, scenarios: Sequence[str], measure: Measure) -> Interval:
    if not measure.is_count:
        return clustered_mean(episodes.matrix(policy, scenarios, measure), name=measure.name)
    found = [e for row in episodes.of(policy, scenarios) for e in row if e is not None]
    exposure = sum(episode.switches.slice_months for episode in found)
    return poisson_rate(round(sum(measure.value(episode) for episode in found)), exposure)


def by_slice(episodes: Episodes, policy: str, scenarios: Sequence[str]) -> dict[str, Any]:
    """Per slice the measures of ``BY_SLICE`` of one policy over ``scenarios``."""
    return {
        name: {
            measure: interval_json(_slice_interval(episodes, policy, scenarios, measure, index))
            for measure in BY_SLICE
        }
        for index, name in enumerate(episodes.slices)
    }


def _slice_interval(
    episodes: Episodes, policy: str, scenarios: Sequence[str], measure: str, index: int
) -> Interval:
    read = BY_SLICE[measure]
    rows = episodes.of(policy, scenarios)
    values = np.array([[math.nan if e is None else read(e)[index] for e in row] for row in rows])
    return clustered_mean(values, name=measure)


def differences(episodes: Episodes, policy: str, scenarios: Sequence[str]) -> dict[str, Any]:
    """Paired differences of ``policy`` to the configurations of ``COMPARED_WITH``, per measure of
    ``COMPARED``.
    """
    measures = [measure for measure in MEASURES if measure.name in COMPARED]
    return {
        configuration: {
            measure.name: interval_json(
                paired_difference(
                    episodes.matrix(policy, scenarios, measure),
                    episodes.matrix(configuration, scenarios, measure),
                    name=measure.name,
                )
            )
            for measure in measures
        }
        for configuration in COMPARED_WITH
        if configuration in episodes.policies and configuration != policy
    }


def ratios(episodes: Episodes, policy: str, scenarios: Sequence[str]) -> dict[str, Any]:
    """Paired ratios of the sums of ``RATIOS`` to those of ``RATIO_TO``."""
    measures = [measure for measure in MEASURES if measure.name in RATIOS]
    return {
        measure.name: interval_json(
            paired_ratio(
                episodes.matrix(policy, scenarios, measure),
                episodes.matrix(RATIO_TO, scenarios, measure),
                name=measure.name,
            )
        )
        for measure in measures
    }


def all_ratios(episodes: Episodes) -> dict[str, Any]:
    """Ratios of every policy over the silent numeric scenarios together ("all") and one by one."""
    names = episodes.groups.get("silent_numeric", ())
    if RATIO_TO not in episodes.policies or not names:
        return {}
    sets = {"all": names, **{name: (name,) for name in names}}
    return {
        key: {p: ratios(episodes, p, group) for p in episodes.policies if p != RATIO_TO}
        for key, group in sets.items()
    }


def tables(episodes: Episodes, early: dict[tuple[str, str, int], EpisodeMeasures]) -> dict[str, Any]:
    """All tables: results overall, per group and scenario, per slice, and paired differences.

    ``early`` holds the episodes up to their fault's end, for scenarios whose fault ends early.
    """
    groups = {name: episodes.groups[name] for name in GROUPS if episodes.groups.get(name)}
    policies = episodes.policies
    until_end = replace(episodes, cells=early)
    ended = tuple(name for name in episodes.scenarios if any(key[1] == name for key in early))
    return {
        "results": {p: summarise(episodes, p, episodes.scenarios) for p in policies},
        "groups": {g: {p: summarise(episodes, p, names) for p in policies} for g, names in groups.items()},
        "scenarios": {n: {p: summarise(episodes, p, (n,)) for p in policies} for n in episodes.scenarios},
        "slices": {g: {p: by_slice(episodes, p, names) for p in policies} for g, names in groups.items()},
        "ratios": all_ratios(episodes),
        "until_fault_end": {n: {p: summarise(until_end, p, (n,)) for p in policies} for n in ended},
        "differences": {
            g: {p: differences(episodes, p, names) for p in policies} for g, names in groups.items()
        },
    }


def front(points: dict[str, tuple[float, float]]) -> tuple[str, ...]:
    """Names of the points that no other dominates on both coordinates (less is better), by the first one."""
    known = {name: xy for name, xy in points.items() if all(math.isfinite(v) for v in xy)}
    best = [
        name
        for name, (x, y) in known.items()
        if not any(u <= x and v <= y and (u, v) != (x, y) for u, v in known.values())
    ]
    return tuple(sorted(best, key=lambda name: known[name]))
