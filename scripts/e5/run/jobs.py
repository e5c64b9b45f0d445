"""The work of E5: one job is one scenario under one configuration, all its seeds in lock-step.

A job depends on nothing but its own fields, so the order, the number of processes and the batch size change
no result. The baseline configuration's jobs come first: its healthy rows are the quality baseline of all
others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Protocol

import numpy as np

from contracts.scoring.episode import EpisodeRecord, truncate
from contracts.scoring.measures import EpisodeMeasures, measure_episode
from contracts.scoring.quality import SliceQuality, healthy_quality, pool_quality
from contracts.scoring.timeline import Timeline, timeline
from controller.decision import Decision
from scripts.e5.configurations import BASELINE_CONFIGURATION, Configuration
from scripts.e5.suite import SuiteEntry
from scripts.workers import Run, Workers, open_workers
from simulator.fleet import run_episodes
from simulator.world.compiled_scenario import CompiledScenario
from simulator.world.scenario import compile_scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One scenario under one configuration.

    batch: fleets advanced in lock-step. healthy: the scenario's quality baseline; None for the job of
    the baseline configuration, which measures it. keep_example: also return the first seed's timeline.
    """

    entry: SuiteEntry
    configuration: Configuration
    seeds: tuple[int, ...]
    batch: int
    healthy: SliceQuality | None = None
    keep_example: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    """Result of a job: measures by seed, the healthy baseline it used, and the example if kept.

    until_fault_end: the measures up to the fault's end if that is before the horizon, because the
    end of a fault heals every policy; else empty.
    """

    scenario: str
    configuration: str
    episodes: tuple[EpisodeMeasures, ...]
    until_fault_end: tuple[EpisodeMeasures, ...]
    healthy: SliceQuality
    example: Timeline | None


@lru_cache(maxsize=64)
def compiled(entry: SuiteEntry) -> CompiledScenario:
    """The scenario of ``entry``, ready to run; compiled once per process."""
    return compile_scenario(entry.scenario(), entry.file)


def run_job(job: Job) -> JobResult:
    """Run all seeds of ``job`` and score them."""
    scenario = compiled(job.entry)
    records: list[EpisodeRecord] = []
    example = None
    for start in range(0, len(job.seeds), job.batch):
        beliefs: list[np.ndarray[tuple[int, ...], np.dtype[np.float64]]] = []
        watch = _watch_first(beliefs) if job.keep_example and start == 0 else None
        driver = job.configuration.driver(scenario, watch)
        records += run_episodes(scenario, driver, job.seeds[start : start + job.batch], batch=job.batch)
        if watch is not None:
            example = timeline(records[0], _health(beliefs, records[0]), job.configuration.name)
    healthy = job.healthy or pool_quality([healthy_quality(record) for record in records])
    return JobResult(
        scenario=job.entry.name,
        configuration=job.configuration.name,
        episodes=tuple(measure_episode(record, healthy) for record in records),
        until_fault_end=tuple(
            measure_episode(truncate(record, record.incident.ends_at_s), healthy)
            for record in records
            if record.incident is not None and record.incident.ends_at_s < record.horizon_s
        ),
        healthy=healthy,
        example=example,
    )


def _watch_first(
    beliefs: list[np.ndarray[tuple[int, ...], np.dtype[np.float64]]],
) -> Callable[[Decision], None]:
    """Keep the health that the controller of the first fleet estimates, tick by tick."""
    return lambda decision: beliefs.append(decision.observation.health[0].copy())


def _health(
    beliefs: list[np.ndarray[tuple[int, ...], np.dtype[np.float64]]], record: EpisodeRecord
) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Float64 [T, K, S], zero before the first decision."""
    shape = (len(record.table), len(record.kernels), len(record.slices))
    health = np.zeros(shape)
    if beliefs:
        kept = np.stack(beliefs)[-shape[0] :]
        health[shape[0] - len(kept) :] = kept
    return health


class JobStore(Protocol):
    """Store of finished jobs, for a run that resumes later."""

    def load(self, job: Job) -> JobResult | None:
        """The stored result of ``job``; None if it must be run."""

    def save(self, job: Job, result: JobResult) -> None:
        """Keep ``result`` of ``job``."""


def run_jobs(jobs: list[Job], workers: Workers, kept: JobStore | None = None) -> Iterator[JobResult]:
    """Results in the order in which they finish: baseline jobs first, then the rest with their baseline.

    With one worker everything runs in this process. On interruption pending jobs are dropped. Jobs in
    ``kept`` are not run again.
    """
    first = [job for job in jobs if job.configuration.name == BASELINE_CONFIGURATION]
    rest = [job for job in jobs if job.configuration.name != BASELINE_CONFIGURATION]
    healthy: dict[str, SliceQuality] = {}
    with open_workers(workers) as run:
        for result in _resumed(run, first, kept):
            healthy[result.scenario] = result.healthy
            yield result
        yield from _resumed(run, [replace(job, healthy=healthy[job.entry.name]) for job in rest], kept)


def _resumed(run: Run, jobs: list[Job], kept: JobStore | None) -> Iterator[JobResult]:
    """Results of ``jobs``, the kept ones first."""
    todo: list[Job] = []
    for job in jobs:
        found = None if kept is None else kept.load(job)
        if found is None:
            todo.append(job)
        else:
            yield found
    for place, result in run(run_job, todo):
        if kept is not None:
            kept.save(todo[place], result)
        yield result
