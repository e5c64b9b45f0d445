"""The work of E5: one job is one scenario under one configuration, all its seeds in lock-step.

A job depends on nothing but its own fields, so the order, the number of processes and the batch size
change no result. The baseline configuration's jobs come first: its healthy rows are everybody's quality
baseline.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Protocol

import numpy as np

from contracts.errors import LostWorkerError
from contracts.scoring.episode import EpisodeRecord, truncate
from contracts.scoring.measures import EpisodeMeasures, measure_episode
from contracts.scoring.quality import SliceQuality, healthy_quality, pool_quality
from controller.decision import Decision
from scripts.e5.configurations import BASELINE_CONFIGURATION, Configuration
from scripts.e5.example import timeline
from scripts.e5.report.plots import Timeline
from scripts.e5.suite import SuiteEntry
from scripts.guard import die_with
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
    """What a job leaves: measures by seed, the healthy baseline it used, and the example if kept.

    until_fault_end: the measures up to the fault's end where that is before the horizon, because the
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
    """Keep the health that the controller of the first fleet believes, tick by tick."""
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


class Kept(Protocol):
    """Where finished jobs are kept, for a run that goes on later."""

    def load(self, job: Job) -> JobResult | None:
        """What ``job`` left; None where it must be run."""

    def save(self, job: Job, result: JobResult) -> None:
        """Keep ``result`` of ``job``."""


def run_jobs(jobs: list[Job], workers: int, kept: Kept | None = None) -> Iterator[JobResult]:
    """Results in the order in which they finish: baseline jobs first, then the rest with their baseline.

    With one worker everything runs in this process. On interruption pending jobs are dropped. What ``kept``
    has is not run again.
    """
    first = [job for job in jobs if job.configuration.name == BASELINE_CONFIGURATION]
    rest = [job for job in jobs if job.configuration.name != BASELINE_CONFIGURATION]
    healthy: dict[str, SliceQuality] = {}
    with _Workers(workers) as run:
        for result in _resumed(run, first, kept):
            healthy[result.scenario] = result.healthy
            yield result
        yield from _resumed(run, [replace(job, healthy=healthy[job.entry.name]) for job in rest], kept)


def _resumed(
    run: Callable[[Iterable[Job]], Iterator[JobResult]], jobs: list[Job], kept: Kept | None
) -> Iterator[JobResult]:
    """Results of ``jobs``, the kept ones first."""
    if kept is None:
        yield from run(jobs)
        return
    todo: dict[tuple[str, str], Job] = {}
    for job in jobs:
        found = kept.load(job)
        if found is None:
            todo[job.entry.name, job.configuration.name] = job
        else:
            yield found
    for result in run(todo.values()):
        kept.save(todo[result.scenario, result.configuration], result)
        yield result


class _Workers:
    """Calls ``run_job`` on many jobs, in this process or in several."""

    def __init__(self, workers: int) -> None:
        self._pool = None
        self._others = set(multiprocessing.active_children())
        if workers > 1:
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(
                workers, mp_context=context, initializer=_begin_worker, initargs=(os.getpid(),)
            )

    def __enter__(self) -> Callable[[Iterable[Job]], Iterator[JobResult]]:
        return self._run

    def __exit__(self, kind: object, *_: object) -> None:
        if self._pool is None:
            return
        if kind is not None:
            # Nobody waits for the jobs that run: what they would leave is dropped anyway.
            for process in set(multiprocessing.active_children()) - self._others:
                process.terminate()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _run(self, jobs: Iterable[Job]) -> Iterator[JobResult]:
        if self._pool is None:
            yield from map(run_job, jobs)
            return
        pending = {self._pool.submit(run_job, job) for job in jobs}
        while pending:
            done, pending = wait(pending, return_when=FIRST_COMPLETED)
            for future in done:
                try:
                    yield future.result()
                except BrokenProcessPool:
                    raise LostWorkerError(
                        "a process of E5 was killed, most likely for memory; run with fewer --jobs or a "
                        "smaller --batch (finished jobs are kept in parts/)"
                    ) from None


def _begin_worker(parent: int) -> None:
    """Ctrl-C and HUP reach the whole process group; only the parent acts on them. No worker outlives it."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    die_with(parent)
