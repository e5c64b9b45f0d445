"""E5 on real servers: the same object and page as in the simulator, from episodes of a live fleet."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from typing import Any

import typer

from contracts.documents import KernelContract
from contracts.loading.files import json_text, plain
from contracts.loading.loader import document_sha256, load_as
from scripts.drill.local import drilled_fleet
from scripts.e5.experiment import FORMAT, write_results
from scripts.e5.front import front_points
from scripts.e5.harm import harm
from scripts.e5.report.page import ReportInput, render
from scripts.e5.results import Episodes, tables
from scripts.e5.subjects import policy_hashes
from scripts.e5.suite import GROUPS
from scripts.e5.terminal import print_tables
from scripts.e5_local.episodes import EpisodeResult, Fleet, KeptEpisodes, run_episodes
from scripts.e5_local.plan import Entry, Episode, LocalOptions, LocalPlan, plan_local
from scripts.output import ready_folder
from scripts.progress import told
from scripts.provenance import git_sha, machine_facts, sources_sha256
from scripts.setup.warm import warm

_LOWER_BOUND = (
    "servers return their 20 likeliest tokens: measured KL is a lower bound, its quality loss a bound"
)


def run_local(options: LocalOptions, *, as_json: bool = False) -> None:
    """Run what ``options`` ask for on one fleet, write ``e5.json`` and the report, print the tables or JSON.

    Raises DocumentError for bad input, LiveError and DrillError where the fleet does not take part; what was
    finished until then is kept, and the same command goes on from it.
    """
    plan = plan_local(options)
    ready_folder(options.out)
    kept = KeptEpisodes(options.out)
    todo = [one for one in plan.episodes if kept.load(one) is None]
    _say(f"{len(plan.episodes)} episodes, {len(plan.episodes) - len(todo)} kept from before")
    _say(f"this will take about {plan.expected_s(len(todo)) / 60.0:.0f} minutes, one episode after the other")
    if todo:
        with told("compiling", len(todo)) as progress:
            warm(lambda done, known: progress.update(f"compiling {done} of {known}"))
    results = _run_all(plan, options, kept, todo)
    content, page = summary(plan, results, options.command)
    write_results(options.out, content, page)
    _say(f"{options.out / 'report.html'}")
    if as_json:
        typer.echo(json_text(content))
    else:
        print_tables(content, tuple(one.name for one in plan.configurations))


def _run_all(
    plan: LocalPlan, options: LocalOptions, kept: KeptEpisodes, todo: list[Episode]
) -> list[EpisodeResult]:
    """Every episode, on a fleet that is brought up where something is to be run."""
    with ExitStack() as stack:
        if todo:
            stack.enter_context(drilled_fleet(plan.entries[0].drill.fleet, options.folder, _say))
        progress = stack.enter_context(told("running", len(plan.episodes)))
        fleet = Fleet(options.folder, options.out)
        return run_episodes(
            plan.episodes,
            _announced(fleet.run, progress.update),
            kept,
            lambda _: progress.update(advance=1.0),
        )


def _announced(
    run: Callable[[Episode], EpisodeResult], show: Callable[[str], None]
) -> Callable[[Episode], EpisodeResult]:
    """``run`` that says what begins and what came of it."""

    def running(episode: Episode) -> EpisodeResult:
        show(episode.name)
        began_s = time.monotonic()
        found = run(episode)
        _say(f"{episode.name}: {found.verdict} after {time.monotonic() - began_s:.0f} s: {found.reason}")
        return found

    return running


def summary(plan: LocalPlan, results: list[EpisodeResult], command: str) -> tuple[dict[str, Any], str]:
    """The content of ``e5.json`` and the report page."""
    episodes = _episodes(plan, results)
    points = front_points(plan.configurations, episodes.scenarios, episodes)
    content = {
        "format": FORMAT,
        "header": _header(plan, results, command),
        **tables(episodes, {}),
        "harm": harm(episodes),
        "budgets": {},
        "front": [plain(asdict(point)) for point in points],
    }
    example = next((e.name for e in plan.entries if e.group == "silent_numeric"), plan.entries[0].name)
    report = ReportInput(
        content=content,
        policies=episodes.policies,
        timelines=tuple(_lines(plan, results, example)),
        points=points,
        example=example,
    )
    return content, render(report)


def _episodes(plan: LocalPlan, results: list[EpisodeResult]) -> Episodes:
    return Episodes(
        policies=tuple(one.name for one in plan.configurations),
        sweep=(),
        scenarios=tuple(one.name for one in plan.entries),
        groups={group: tuple(e.name for e in plan.entries if e.group == group) for group in GROUPS},
        slices=plan.entries[0].drill.fleet.slices,
        seeds=plan.seeds,
        cells={
            (one.episode.configuration.name, one.episode.entry.name, one.episode.seed): one.measures
            for one in results
            if one.measures is not None
        },
    )


def _lines(plan: LocalPlan, results: list[EpisodeResult], example: str) -> list[Any]:
    """Timelines of the example's first seed, policy by policy."""
    first = plan.seeds[0]
    shown = [o for o in results if (o.episode.entry.name, o.episode.seed) == (example, first)]
    return [one.line for one in shown if one.measures is not None]


def _header(plan: LocalPlan, results: list[EpisodeResult], command: str) -> dict[str, Any]:
    """Everything that is needed to tell runs apart and to run this one again."""
    first = plan.entries[0]
    layout = first.drill.fleet.layout()
    contract = load_as(KernelContract, first.drill.contract_file)
    unusable = [one for one in results if one.measures is None]
    return {
        "target": "local",
        "command": command,
        "seed": plan.seeds[0],
        "seeds": len(plan.seeds),
        "horizon_s": max(one.read.plan.undo_at_s for one in plan.entries),
        "tick_s": 1.0,
        "contract": contract.metadata.name,
        "contract_sha256": document_sha256(contract),
        "policies": [one.name for one in plan.configurations],
        "policy_sha256": policy_hashes(plan.configurations),
        "sweep": [],
        "pools": [first.drill.fleet.pool],
        "broken_at_rest": [],
        "kernels": list(layout.kernels),
        "replicas": len(layout.replicas),
        "slices": list(layout.slices),
        "measured_by": [
            _LOWER_BOUND,
            *(f"{one.episode.name} does not count: {one.reason}" for one in unusable),
        ],
        "served_by": sorted({name for one in results for name in one.served_by}),
        "sources_sha256": sources_sha256("live"),
        "git_sha": git_sha(),
        "versions": machine_facts(),
        "scenarios": [_facts(entry) for entry in plan.entries],
        "episodes": [_told(one) for one in results],
    }


def _facts(entry: Entry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "group": entry.group,
        "description": entry.read.drill.spec.description,
        "sha256": document_sha256(entry.read.drill),
        "pool_sha256": document_sha256(entry.read.pool),
    }


def _told(result: EpisodeResult) -> dict[str, Any]:
    """One episode as drills judge it."""
    return {
        "name": result.episode.name,
        "verdict": result.verdict,
        "reason": result.reason,
        "evidence": list(result.evidence),
        "requests": result.requests,
        "counts": result.measures is not None,
    }


def _say(text: str) -> None:
    typer.echo(text, err=True)
