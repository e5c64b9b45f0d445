"""One policy against all others in a finished run of E5, as numbers; ``policy_table`` shows them.

Differences are candidate minus other, paired by seed and scenario, with bootstrap limits clustered by seed,
over all scenarios and by group of scenarios; false switches of a configuration by itself have exact Poisson
limits. *Dominated*: another configuration is no worse in every mean and better in one. The quality lost is
E5's quality loss over the incident window, as a ratio to the informed references: of step faults, of every
other shape, and of every scenario alone. *Probe tokens* of a configuration are compared with those of
``fixed-bare``, on scenarios where no replica dies or starts.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contracts.errors import DocumentError, refusal
from contracts.scoring.intervals import (
    Interval,
    clustered_mean,
    paired_difference,
    paired_ratio,
    poisson_rate,
)
from scripts.e5.configurations import BASELINE_CONFIGURATION, INFORMED
from scripts.e5.scores.parts import read_episodes
from scripts.e5.suite import GROUPS, SuiteEntry, expand_suite, load_suite

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedMeasure:
    """A measure of the comparison. lower: less is better; path: where a part file keeps it."""

    name: str
    lower: bool
    path: tuple[str, str]


MEASURES = (
    ComparedMeasure(name="mttr_s", lower=True, path=("incident", "mttr_s")),
    ComparedMeasure(name="quality_preservation", lower=False, path=("quality", "preservation")),
    ComparedMeasure(name="false_switches_per_slice_month", lower=True, path=("switches", "false_switches")),
    ComparedMeasure(name="failed_ratio", lower=True, path=("service", "failed_ratio")),
)


#: Shown beside them, without effect on verdicts: kernels judged by the replicas that serve.
SHOWN = (
    *MEASURES,
    ComparedMeasure(
        name="false_switches_in_rotation", lower=True, path=("switches", "false_switches_in_rotation")
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Episodes by (configuration, scenario, seed) as plain measures, and the scenarios in suite order."""

    episodes: dict[tuple[str, str, int], dict[str, Any]]
    entries: tuple[SuiteEntry, ...]
    seeds: tuple[int, ...]
    configurations: tuple[str, ...]

    def matrix(self, configuration: str, path: tuple[str, str], names: list[str]) -> Floats:
        """Float64 [seeds, scenarios]; NaN where there is none."""
        return np.array(
            [[self._value(configuration, name, seed, path) for name in names] for seed in self.seeds]
        )

    def _value(self, configuration: str, name: str, seed: int, path: tuple[str, str]) -> float:
        episode = self.episodes.get((configuration, name, seed), {})
        part = episode.get(path[0]) or {}
        value = part.get(path[1])
        if value is None or (path == ("incident", "mttr_s") and part.get("infeasible")):
            return math.nan
        return value / part["slice_months"] if path[0] == "switches" else float(value)


def load_run(out: Path, suite: Path | None) -> Run:
    """The run whose parts are in ``out``; DocumentError for missing or damaged parts."""
    document, file = load_suite(suite)
    entries = expand_suite(document, file)
    names = {entry.name for entry in entries}
    rows = [row for part in sorted(out.glob("parts/*/*.json")) for row in read_episodes(part)]
    episodes = {
        (row["policy"], row["scenario"], row["seed"]): row for row in rows if row["scenario"] in names
    }
    if not episodes:
        raise _refusal(str(out), "parts of a run of this suite", "none", "run selvage e5 --suite ... first")
    return Run(
        episodes=episodes,
        entries=entries,
        seeds=tuple(sorted({seed for _, _, seed in episodes})),
        configurations=tuple(dict.fromkeys(row["policy"] for row in rows)),
    )


def whole_configurations(run: Run) -> list[str]:
    """Configurations that ran on every scenario with every seed."""
    names = [entry.name for entry in run.entries]
    return [
        configuration
        for configuration in run.configurations
        if all((configuration, name, seed) in run.episodes for name in names for seed in run.seeds)
    ]


def compare(run: Run, candidate: str) -> dict[str, Any]:
    """The whole comparison, JSON-ready except for NaN."""
    configurations = whole_configurations(run)
    _refuse_absent(candidate, configurations)
    names = [entry.name for entry in run.entries]
    means = {configuration: _means(run, configuration, names) for configuration in configurations}
    others = [configuration for configuration in configurations if configuration != candidate]
    rivals = [configuration for configuration in others if not is_reference(configuration)]
    references = [configuration for configuration in others if is_reference(configuration)]
    differences = {one: _differences(run, candidate, one, names) for one in others}
    return {
        "candidate": candidate,
        "seeds": len(run.seeds),
        "scenarios": names,
        "means": means,
        "differences": differences,
        "groups": {group: _group(run, candidate, mine) for group, mine in _groups(run).items()},
        "verdicts": {one: verdict(differences[one]) for one in others},
        "dominated_by": [one for one in rivals if dominates(means[one], means[candidate])],
        "quality_lost_to": {one: _quality_lost_to(run, candidate, one) for one in references},
        "probe_tokens_to_bare": {one: _probe_ratio(run, one) for one in configurations},
    }


def _refuse_absent(candidate: str, configurations: list[str]) -> None:
    if candidate not in configurations:
        there = " or ".join(configurations) or "a configuration on every scenario"
        raise _refusal("--candidate", there, candidate, "name one")


def _means(run: Run, configuration: str, names: list[str]) -> dict[str, float]:
    """Mean of every compared measure over the scenarios ``names``."""
    return {m.name: _mean(run.matrix(configuration, m.path, names)) for m in MEASURES}


def _differences(run: Run, candidate: str, configuration: str, names: list[str]) -> dict[str, dict[str, Any]]:
    return {
        m.name: asdict(
            paired_difference(
                run.matrix(candidate, m.path, names),
                run.matrix(configuration, m.path, names),
                name=f"{candidate}|{configuration}|{m.name}",
            )
        )
        for m in SHOWN
    }


def _groups(run: Run) -> dict[str, list[str]]:
    """Scenarios by group, in the order of the groups."""
    found = {group: [entry.name for entry in run.entries if entry.group == group] for group in GROUPS}
    return {group: names for group, names in found.items() if names}


def _group(run: Run, candidate: str, names: list[str]) -> dict[str, Any]:
    """Every configuration's measures on the scenarios ``names``, and the candidate's differences to it."""
    configurations = whole_configurations(run)
    return {
        "configurations": {
            configuration: {m.name: asdict(_alone(run, configuration, m, names)) for m in SHOWN}
            for configuration in configurations
        },
        "differences": {
            configuration: _differences(run, candidate, configuration, names)
            for configuration in configurations
            if configuration != candidate
        },
    }


def _alone(run: Run, configuration: str, measure: ComparedMeasure, names: list[str]) -> Interval:
    if measure.path[0] != "switches":
        return clustered_mean(
            run.matrix(configuration, measure.path, names), name=f"{configuration}|{measure.name}"
        )
    rows = [run.episodes[configuration, name, seed]["switches"] for name in names for seed in run.seeds]
    return poisson_rate(sum(row[measure.path[1]] for row in rows), sum(row["slice_months"] for row in rows))


def is_reference(configuration: str) -> bool:
    """Whether the configuration is given the faults: it is not meant to be beaten."""
    return configuration.partition(":")[0] == INFORMED


def verdict(differences: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Per measure: better, worse, or undecided, by the limits of the paired difference."""
    words = {}
    for measure in MEASURES:
        low, high = (differences[measure.name][side] for side in ("ci_low", "ci_high"))
        better, worse = (high < 0.0, low > 0.0) if measure.lower else (low > 0.0, high < 0.0)
        words[measure.name] = "better" if better else "worse" if worse else "no difference shown"
    return words


def dominates(one: dict[str, float], other: dict[str, float]) -> bool:
    """``one`` is no worse in every mean and better in one."""
    signed = [(1.0 if m.lower else -1.0) * (one[m.name] - other[m.name]) for m in MEASURES]
    return all(value <= 0.0 for value in signed) and any(value < 0.0 for value in signed)


def shape_of(entry: SuiteEntry) -> str:
    """Shape of a scenario's faults, ``none`` or ``mixed``."""
    shapes = {fault.shape for fault in entry.scenario().spec.faults}
    return "none" if not shapes else shapes.pop() if len(shapes) == 1 else "mixed"


def _quality_lost_to(run: Run, candidate: str, reference: str) -> dict[str, Any]:
    """Ratios of the quality lost to the reference's, by shape of the fault and by scenario."""
    incident = [entry for entry in run.entries if entry.group not in ("control", "near_miss")]
    shapes: dict[str, list[str]] = {}
    for entry in incident:
        shapes.setdefault(shape_of(entry), []).append(entry.name)
    parts = {"by_shape": shapes, "by_scenario": {entry.name: [entry.name] for entry in incident}}
    return {
        part: {name: asdict(_loss_ratio(run, candidate, reference, mine)) for name, mine in groups.items()}
        for part, groups in parts.items()
    }


def _loss_ratio(run: Run, candidate: str, reference: str, names: list[str]) -> Interval:
    path = ("quality", "loss")
    both = (run.matrix(candidate, path, names), run.matrix(reference, path, names))
    return paired_ratio(*both, name=f"{candidate}|{reference}|loss|{','.join(names)}")


def _probe_ratio(run: Run, configuration: str) -> float:
    """Probe tokens of ``configuration`` over those of the bare configuration, in scenarios in which no
    replica dies.
    """
    steady = [
        entry.name
        for entry in run.entries
        if not any(fault.kind in ("crash", "hang") for fault in entry.scenario().spec.faults)
        and not any(
            change.kind in ("rolling_restart", "scale_up", "scale_down")
            for change in entry.scenario().spec.changes
        )
    ]
    path = ("service", "probe_tokens")
    return _mean(run.matrix(configuration, path, steady)) / _mean(
        run.matrix(BASELINE_CONFIGURATION, path, steady)
    )


def _mean(values: Floats) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else math.nan


def _refusal(path: str, expected: str, actual: str, next_step: str) -> DocumentError:
    return refusal("selvage e5", expected, actual, next_step, path=path)
