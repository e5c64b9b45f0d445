"""Experiment E5: run a suite under several configurations, score it, and collect the results in one object.

The composition root that joins worlds and policies. It decides nothing: configurations come from
``policies.registry``, the world from ``simulator``, the measures from ``contracts``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from contracts.documents import Suite
from contracts.loading.files import plain, sha256_of
from contracts.loading.loader import document_sha256
from contracts.loading.uris import resolve_uri
from contracts.plugins import loaded_sha256
from contracts.scoring.measures import EpisodeMeasures
from contracts.scoring.timeline import Timeline
from contracts.workload.azure_trace import load_trace
from policies.supervised import meta_sha256
from scripts.e5.configurations import Configuration, parse_configurations, route_configuration
from scripts.e5.report.page import ReportInput, render
from scripts.e5.report.plots import FrontPoint, front_points
from scripts.e5.route import read_route, refuse_other_pool
from scripts.e5.run.jobs import Job, JobResult, compiled, run_jobs
from scripts.e5.run.kept import KeptJobs
from scripts.e5.run.subjects import (
    broken_at_rest,
    observed_without_certificate,
    policy_hashes,
    pool_name,
    route_bound,
    route_sha256,
    scenario_facts,
    uncovered,
)
from scripts.e5.scores.budget import budgets
from scripts.e5.scores.harm import harm
from scripts.e5.scores.results import Episodes, tables
from scripts.e5.suite import GROUPS, SuiteEntry, expand_suite, load_suite
from scripts.output import ready_folder, write_json, write_whole
from scripts.provenance import git_sha, machine_facts, sources_sha256
from scripts.workers import Workers

#: Version of the layout of ``e5.json``.
FORMAT = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of the command line; None means the suite's value."""

    out: Path
    suite: Path | None = None
    policies: tuple[str, ...] | None = None
    route_policy: str = ""
    """A RoutePolicy document that is an additional configuration; "" for none."""
    meta: str = ""
    """The MetaContract of every configuration except the baseline's and a document's; "" for none."""
    seeds: int | None = None
    jobs: int = 1
    backend: str = "loky"
    batch: int | None = None
    trace: Path | None = None
    command: str = "selvage e5"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """A checked run: every scenario compiles, every configuration is known, before anything runs."""

    suite: Suite
    entries: tuple[SuiteEntry, ...]
    configurations: tuple[Configuration, ...]
    sweep: tuple[Configuration, ...]
    sweep_entries: tuple[str, ...]
    seeds: tuple[int, ...]
    fewer: dict[str, int]
    """Seeds of the configurations that run on fewer, the first of ``seeds``."""
    example: str
    jobs: tuple[Job, ...]


def plan_run(options: Options) -> RunPlan:
    """Load and check everything; DocumentError for a suite, trace or policy that cannot run."""
    suite, file = load_suite(options.suite)
    if options.trace is not None:
        load_trace(options.trace)
    entries = expand_suite(suite, file, options.trace)
    configurations = parse_configurations(options.policies or suite.spec.policies, options.meta)
    if route := _route_of(suite, file, options):
        configurations = (*configurations, route_configuration(route))
    sweep = _swept(suite, options.meta, {configuration.policy for configuration in configurations})
    for entry in entries:
        compiled(entry)
    for configuration in (*configurations, *sweep):
        _check(configuration, entries)
    seeds = tuple(range(suite.spec.seed, suite.spec.seed + (options.seeds or suite.spec.seeds)))
    swept = suite.spec.sweep_scenarios or tuple(entry.name for entry in entries)
    example = next((e.name for e in entries if e.group == "silent_numeric"), entries[0].name)
    plan = RunPlan(
        suite=suite,
        entries=entries,
        configurations=configurations,
        sweep=sweep,
        sweep_entries=swept,
        seeds=seeds,
        fewer=_fewer_seeds(suite, options, seeds),
        example=example,
        jobs=(),
    )
    return replace(plan, jobs=_jobs(plan, options.batch or len(seeds)))


def _jobs(plan: RunPlan, batch: int) -> tuple[Job, ...]:
    """Every configuration on every scenario, the sweep on its own ones."""
    return tuple(
        Job(
            entry=entry,
            configuration=configuration,
            seeds=plan.seeds[: plan.fewer.get(configuration.name, len(plan.seeds))],
            batch=batch,
            keep_example=entry.name == plan.example and configuration in plan.configurations,
        )
        for configuration in (*plan.configurations, *plan.sweep)
        for entry in plan.entries
        if configuration in plan.configurations or entry.name in plan.sweep_entries
    )


def _route_of(suite: Suite, file: Path, options: Options) -> str:
    """The RoutePolicy that runs: the requested one, else the suite's if its own configurations run."""
    if options.route_policy or options.policies or suite.spec.route_policy is None:
        return options.route_policy
    return str(resolve_uri(suite.spec.route_policy, file))


def _fewer_seeds(suite: Suite, options: Options, seeds: tuple[int, ...]) -> dict[str, int]:
    """Seeds of the configurations that run on fewer than all; none if configurations were requested."""
    told = suite.spec.fewer_seeds
    if told is None or options.policies or told.seeds >= len(seeds):
        return {}
    return dict.fromkeys(told.policies, told.seeds)


def _swept(suite: Suite, meta: str, policies: set[str]) -> tuple[Configuration, ...]:
    """Settings of the suite's sweep, for those ``policies`` that run."""
    if not suite.spec.sweep:
        return ()
    return tuple(one for one in parse_configurations(suite.spec.sweep, meta)[1:] if one.policy in policies)


def _check(configuration: Configuration, entries: tuple[SuiteEntry, ...]) -> None:
    """Refuse settings that the policy does not know, and a document that does not fit some scenario."""
    if not configuration.route:
        configuration.check(compiled(entries[0]).setup)
        return
    for entry in entries:
        route = read_route(configuration.route, compiled(entry))
        refuse_other_pool(route.document, configuration.route, entry.scenario(), entry.file)


def run(plan: RunPlan, options: Options, on_done: Callable[[JobResult], None]) -> tuple[dict[str, Any], str]:
    """Run ``plan``; the content of ``e5.json`` and the report page.

    ``on_done`` is called after each job. Each job's measures are kept in ``out/parts`` at once, so
    that an interrupted run keeps its finished jobs; these are in ``out/jobs``, and the same run resumes from
    them. Parts of another run are removed first.
    """
    results: list[JobResult] = []
    kept = KeptJobs(options.out)
    for part in (options.out / "parts").glob("*/*.json"):
        part.unlink()
    for result in run_jobs(list(plan.jobs), Workers(jobs=options.jobs, backend=options.backend), kept):
        _keep_part(options.out, result)
        results.append(result)
        on_done(result)
    kept.tidy()
    episodes = _episodes(plan, results)
    early = {(r.configuration, r.scenario, e.seed): e for r in results for e in r.until_fault_end}
    content = {"format": FORMAT, "header": header(plan, options), **tables(episodes, early)}
    content["harm"] = harm(episodes)
    points = front_points((*plan.configurations, *plan.sweep), plan.sweep_entries, episodes)
    first = compiled(plan.entries[0])
    configurations = (*plan.configurations, *plan.sweep)
    content["budgets"] = budgets(
        (configuration.name, configuration.setup(first).detector) for configuration in configurations
    )
    content["front"] = [_plain(point) for point in points]
    report = ReportInput(
        content=content,
        policies=tuple(configuration.name for configuration in plan.configurations),
        timelines=_timelines(plan, results),
        points=points,
        example=plan.example,
    )
    return content, render(report)


def _episodes(plan: RunPlan, results: list[JobResult]) -> Episodes:
    groups = {g: tuple(e.name for e in plan.entries if e.group == g) for g in GROUPS}
    return Episodes(
        policies=tuple(configuration.name for configuration in plan.configurations),
        sweep=tuple(configuration.name for configuration in plan.sweep),
        scenarios=tuple(entry.name for entry in plan.entries),
        groups=groups,
        slices=compiled(plan.entries[0]).layout.slices,
        seeds=plan.seeds,
        cells={(r.configuration, r.scenario, e.seed): e for r in results for e in r.episodes},
    )


def _timelines(plan: RunPlan, results: list[JobResult]) -> tuple[Timeline, ...]:
    kept = {result.configuration: result.example for result in results if result.example is not None}
    return tuple(
        line for configuration in plan.configurations if (line := kept.get(configuration.name)) is not None
    )


def header(plan: RunPlan, options: Options) -> dict[str, Any]:
    """Facts that distinguish runs and allow this one to be repeated."""
    scenarios = {entry.name: compiled(entry) for entry in plan.entries}
    first = scenarios[plan.entries[0].name]
    return {
        "command": options.command,
        "seed": plan.seeds[0],
        "seeds": len(plan.seeds),
        "fewer_seeds": plan.fewer,
        "horizon_s": max(s.horizon_s for s in scenarios.values()),
        "tick_s": first.tick_s,
        "suite": plan.suite.metadata.name,
        "suite_sha256": document_sha256(plan.suite),
        "contract": first.contract.name,
        "contract_sha256": first.contract.sha256,
        "policies": [configuration.name for configuration in plan.configurations],
        "policy_sha256": policy_hashes((*plan.configurations, *plan.sweep)),
        "sweep": [configuration.name for configuration in plan.sweep],
        "meta_contract_sha256": meta_sha256(options.meta),
        "route_policy_sha256": route_sha256(plan.configurations),
        "route_policy_bound": route_bound(plan.configurations, plan.entries),
        "route_policy_uncertified": list(observed_without_certificate(plan.configurations, plan.entries)),
        "route_policy_uncovered": uncovered(plan.configurations, plan.entries),
        "pools": sorted({pool_name(entry) for entry in plan.entries}),
        "broken_at_rest": broken_at_rest(scenarios),
        "kernels": list(first.layout.kernels),
        "replicas": len(first.layout.replicas),
        "slices": list(first.layout.slices),
        "profile_sha256": dict(zip(first.layout.kernels, first.profile_sha256, strict=True)),
        "quality_estimator": first.measured_by.estimator,
        "measured_by": list(first.measured_by.notes),
        "trace": options.trace.name if options.trace else None,
        "trace_sha256": sha256_of(options.trace) if options.trace else None,
        "plugins_sha256": loaded_sha256(),
        "sources_sha256": sources_sha256(),
        "git_sha": git_sha(),
        "versions": machine_facts(),
        "scenarios": [scenario_facts(entry, scenarios[entry.name]) for entry in plan.entries],
    }


def write_results(out: Path, content: dict[str, Any], page: str) -> None:
    """Write ``e5.json`` and ``report.html`` into ``out``, each whole or not at all."""
    ready_folder(out)
    write_json(out / "e5.json", content, indent=1)
    write_whole(out / "report.html", page)


def _keep_part(out: Path, result: JobResult) -> None:
    folder = out / "parts" / result.scenario
    ready_folder(folder)
    configuration = re.sub(r"[^a-zA-Z0-9.-]+", "_", result.configuration)
    write_json(folder / f"{configuration}.json", [asdict(episode) for episode in result.episodes], indent=1)


def _plain(value: EpisodeMeasures | FrontPoint) -> Any:
    return plain(asdict(value))
