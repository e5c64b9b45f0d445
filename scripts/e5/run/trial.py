"""Expected duration of a run of E5: a trial of every policy on a short calm episode."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from scripts.e5.run.jobs import Job
from scripts.e5.suite import SuiteEntry
from simulator.drive import Driver
from simulator.fleet import run_episodes
from simulator.world.compiled_scenario import CompiledScenario
from simulator.world.scenario import compile_scenario

#: Simulated seconds of a trial.
TRIAL_S = 30.0
#: A run that is less than this many times as long as its trials is not estimated.
WORTH = 50.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The work of one policy: fleet-seconds of simulated time, and a job to try it with."""

    fleet_s: float
    job: Job


def estimated_s(jobs: Iterable[Job], workers: int, clock: Callable[[], float] = time.perf_counter) -> float:
    """Rough seconds that ``jobs`` will take on ``workers`` processes; 0 if a trial is not worthwhile.

    Everything must be compiled before, or the trials measure the compiler.
    """
    shares = _shares(jobs)
    tried_s = sum(TRIAL_S * _fleets(share.job) for share in shares)
    if sum(share.fleet_s for share in shares) < WORTH * tried_s:
        return 0.0
    each = (share.fleet_s * _cost(share.job, clock) for share in shares)
    return sum(each) / max(1, workers)


def _shares(jobs: Iterable[Job]) -> list[Share]:
    """Work by policy; settings of one policy cost the same."""
    by_policy: dict[str, list[Job]] = {}
    for job in jobs:
        by_policy.setdefault(job.configuration.policy, []).append(job)
    return [Share(fleet_s=sum(map(_fleet_s, same)), job=same[0]) for same in by_policy.values()]


def _fleet_s(job: Job) -> float:
    return float(job.entry.scenario().spec.horizon_s) * len(job.seeds)


def _fleets(job: Job) -> int:
    return min(job.batch, len(job.seeds))


def _cost(job: Job, clock: Callable[[], float]) -> float:
    """Seconds of this machine per fleet-second of ``job``."""
    return fleet_second_s(job.entry, job.seeds[: _fleets(job)], job.configuration.driver, clock)


def fleet_second_s(
    entry: SuiteEntry,
    seeds: Sequence[int],
    driver_of: Callable[[CompiledScenario], Driver],
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Seconds of this machine per fleet-second of ``entry`` with ``seeds`` together, by a trial."""
    world = _calm(entry)
    driver = driver_of(world)
    started = clock()
    run_episodes(world, driver, seeds, batch=len(seeds))
    return (clock() - started) / (world.horizon_s * len(seeds))


def _calm(entry: SuiteEntry) -> CompiledScenario:
    """The first seconds of the scenario without its events."""
    given = entry.scenario()
    calm = {"faults": (), "changes": (), "horizon_s": min(TRIAL_S, given.spec.horizon_s)}
    spec = given.spec.model_copy(update=calm)
    return compile_scenario(given.model_copy(update={"spec": spec}), entry.file)
