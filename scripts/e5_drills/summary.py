"""E5 on real servers: the same object and page as in the simulator, from drills as episodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import typer

from contracts.loading.files import json_text, plain
from contracts.loading.loader import document_sha256
from contracts.scoring.timeline import Timeline
from scripts.e5.report.page import ReportInput, render
from scripts.e5.report.plots import front_points
from scripts.e5.run.experiment import FORMAT
from scripts.e5.run.subjects import policy_hashes
from scripts.e5.run.terminal import print_tables
from scripts.e5.scores.harm import harm
from scripts.e5.scores.results import Episodes, tables
from scripts.e5.suite import GROUPS
from scripts.e5_drills.plan import DrillSuite, Entry
from scripts.e5_drills.results import EpisodeResult
from scripts.provenance import git_sha, machine_facts, sources_sha256

LOWER_BOUND = (
    "servers return their 20 likeliest tokens: measured KL is a lower bound, its quality loss a bound"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderFacts:
    """Facts of the header beside the suite. layers: additional layers whose sources decide a result."""

    command: str
    layers: tuple[str, ...] = ("live",)
    notes: tuple[str, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)


def summary(
    suite: DrillSuite, results: Sequence[EpisodeResult], told: HeaderFacts
) -> tuple[dict[str, Any], str]:
    """The content of ``e5.json`` and the report page."""
    episodes = _episodes(suite, results)
    points = front_points(suite.configurations, episodes.scenarios, episodes)
    content = {
        "format": FORMAT,
        "header": _header(suite, results, told),
        **tables(episodes, {}),
        "harm": harm(episodes),
        "budgets": {},
        "front": [plain(asdict(point)) for point in points],
    }
    example = next((e.name for e in suite.entries if e.group == "silent_numeric"), suite.entries[0].name)
    report = ReportInput(
        content=content,
        policies=episodes.policies,
        timelines=tuple(_lines(suite, results, example)),
        points=points,
        example=example,
    )
    return content, render(report)


def show(content: dict[str, Any], suite: DrillSuite, *, as_json: bool) -> None:
    """Print the tables of ``content``, or all of it as JSON."""
    if as_json:
        typer.echo(json_text(content))
    else:
        print_tables(content, tuple(one.name for one in suite.configurations))


def _episodes(suite: DrillSuite, results: Sequence[EpisodeResult]) -> Episodes:
    return Episodes(
        policies=tuple(one.name for one in suite.configurations),
        sweep=(),
        scenarios=tuple(one.name for one in suite.entries),
        groups={group: tuple(e.name for e in suite.entries if e.group == group) for group in GROUPS},
        slices=suite.layout.slices,
        seeds=suite.seeds,
        cells={
            (one.episode.configuration.name, one.episode.entry.name, one.episode.seed): one.measures
            for one in results
            if one.measures is not None
        },
    )


def _lines(suite: DrillSuite, results: Sequence[EpisodeResult], example: str) -> list[Timeline]:
    """Timelines of the example's first seed, policy by policy."""
    first = suite.seeds[0]
    shown = [o for o in results if (o.episode.entry.name, o.episode.seed) == (example, first)]
    return [one.line for one in shown if one.measures is not None and one.line is not None]


def _header(suite: DrillSuite, results: Sequence[EpisodeResult], told: HeaderFacts) -> dict[str, Any]:
    """Facts that distinguish runs and allow this one to be repeated."""
    first = suite.entries[0]
    unusable = [one for one in results if one.measures is None]
    return {
        "target": suite.target,
        "command": told.command,
        "seed": suite.seeds[0],
        "seeds": len(suite.seeds),
        "horizon_s": max(one.plan.undo_at_s for one in suite.entries),
        "tick_s": 1.0,
        "contract": first.contract.metadata.name,
        "contract_sha256": document_sha256(first.contract),
        "meta_contract_sha256": suite.meta_sha256,
        "policies": [one.name for one in suite.configurations],
        "policy_sha256": policy_hashes(suite.configurations),
        "sweep": [],
        "pools": [first.pool.metadata.name],
        "broken_at_rest": [],
        "kernels": list(suite.layout.kernels),
        "replicas": len(suite.layout.replicas),
        "slices": list(suite.layout.slices),
        "measured_by": [
            LOWER_BOUND,
            *told.notes,
            *(f"{one.episode.name} does not count: {one.reason}" for one in unusable),
        ],
        "served_by": sorted({name for one in results for name in one.served_by}),
        "sources_sha256": sources_sha256(*told.layers),
        "git_sha": git_sha(),
        "versions": machine_facts(),
        "scenarios": [_facts(entry) for entry in suite.entries],
        "episodes": [_episode_json(one) for one in results],
        **told.facts,
    }


def _facts(entry: Entry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "group": entry.group,
        "description": entry.drill.spec.description,
        "sha256": document_sha256(entry.drill),
        "pool_sha256": document_sha256(entry.pool),
    }


def _episode_json(result: EpisodeResult) -> dict[str, Any]:
    """One episode with the drill's verdict."""
    return {
        "name": result.episode.name,
        "verdict": result.verdict,
        "reason": result.reason,
        "evidence": list(result.evidence),
        "requests": result.requests,
        "counts": result.measures is not None,
    }
