"""Summary of ``selvage simulate``: totals and measures per seed, means with limits, a table.

With one seed there are no limits, because the variation between seeds is unknown.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from contracts.assess.limits import mean_limits
from contracts.loading.files import plain
from contracts.plugins import loaded_sha256
from contracts.scoring.episode import EpisodeRecord
from contracts.scoring.measure_table import MEASURES, Measure
from contracts.scoring.measures import EpisodeMeasures, measure_episode
from contracts.scoring.quality import healthy_quality, pool_quality
from simulator.world.compiled_scenario import CompiledScenario

#: Measures that the printed table shows; ``--json`` has them all.
SHOWN = (
    "quality_preservation",
    "mttr_s",
    "detection_lag_s",
    "failed_ratio",
    "exposed",
    "false_switches",
)


def summarise(scenario: CompiledScenario, policy: str, records: list[EpisodeRecord]) -> dict[str, Any]:
    """Header, totals and measures per seed, their means and 95 % limits; null where not applicable."""
    healthy = pool_quality([healthy_quality(record) for record in records])
    measured = [measure_episode(record, healthy) for record in records]
    episodes = [
        {"seed": record.seed, **_totals(record), **_values(measures)}
        for record, measures in zip(records, measured, strict=True)
    ]
    return {
        "scenario": scenario.name,
        "scenario_sha256": scenario.sha256,
        "contract_sha256": scenario.contract.sha256,
        "profile_sha256": list(scenario.profile_sha256),
        "pool_sha256": scenario.pool_sha256,
        "trace_sha256": scenario.trace_sha256,
        "plugins_sha256": loaded_sha256(),
        "quality_estimator": scenario.measured_by.estimator,
        "measured_by": list(scenario.measured_by.notes),
        "policy": policy,
        "seeds": [record.seed for record in records],
        "horizon_s": scenario.horizon_s,
        "broken_at_rest": [asdict(broken) for broken in scenario.at_rest],
        "episodes": episodes,
        "mean": {key: _mean([episode[key] for episode in episodes]) for key in episodes[0] if key != "seed"},
        "limits": {
            key: _limits([episode[key] for episode in episodes]) for key in episodes[0] if key != "seed"
        },
    }


def _totals(record: EpisodeRecord) -> dict[str, float]:
    names = ("offered", "answered", "failed", "shed", "slo_missed", "exposed")
    return {f"{name}_requests": float(getattr(record, name).sum()) for name in names}


def _values(measures: EpisodeMeasures) -> dict[str, float | None]:
    values = {_plain(measure): float(measure.value(measures)) for measure in MEASURES}
    shown: dict[str, float | None] = plain(values)
    return shown


def _plain(measure: Measure) -> str:
    """A count of one episode is a count; only an experiment makes it a rate."""
    return measure.name.removesuffix("_per_slice_month") if measure.is_count else measure.name


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _limits(values: list[float | None]) -> list[float] | None:
    """95 % limits of the mean over seeds; None where fewer than two have a value."""
    known = np.array([value for value in values if value is not None], dtype=np.float64)
    if known.size < 2:
        return None
    found = mean_limits(known, 0.975)
    return [found.low, found.high]


def print_table(summary: dict[str, Any]) -> None:
    """``summary`` for people: means over seeds, with 95 % limits from two seeds on."""
    units = {measure.name: "episodes" if measure.is_count else measure.unit for measure in MEASURES}
    labels = {_plain(measure): f"{measure.label} ({units[measure.name]})" for measure in MEASURES}
    table = Table(title=f"{summary['scenario']}, {summary['policy']}, {seed_count_text(summary['seeds'])}")
    other = summary.get("would_have")
    head = "mean" if len(summary["seeds"]) == 1 else "mean (95 % limits)"
    heads = (head,) if other is None else ("observed, nothing executed", "had it been enforced")
    table.add_column("measure")
    for head in heads:
        table.add_column(head, justify="right")
    shown = [summary] if other is None else [summary, other]
    for name in summary["mean"]:
        if name in SHOWN or name.endswith("_requests"):
            table.add_row(
                labels.get(name, name.replace("_", " ")),
                *(_cell(one["mean"][name], one["limits"][name]) for one in shown),
            )
    if other is not None:
        table.add_row("first decision to act after (s)", _number(_mean(other["decision_lag_s"])), "")
    Console().print(table)
    for line in summary["measured_by"]:
        typer.echo(f"note: {line}")


def seed_count_text(seeds: list[int]) -> str:
    """How many there are, in words."""
    return "1 seed" if len(seeds) == 1 else f"{len(seeds)} seeds"


def _cell(mean: float | None, limits: list[float] | None) -> str:
    return _number(mean) if limits is None else f"{_number(mean)} ({limits[0]:.4g} to {limits[1]:.4g})"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.6g}"
