"""The work of a certification in parts that may run in several processes and change no result.

A part is one scenario with some seeds: the policy drives by itself while the supervisor only counts
(``watch_only``), or nobody moves anything, which is what harm is measured against.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.meta import CompiledMeta
from contracts.scoring.episode import EpisodeRecord
from contracts.scoring.incident_measures import measure_incident
from contracts.scoring.measures import measure_service
from contracts.scoring.switches import measure_switches
from controller.options import ControllerSetup
from policies.certify.certificate import EpisodeEvidence, ServiceShares
from policies.registry import make_configuration
from policies.supervised import under
from scripts.e5.configurations import BASELINE_CONFIGURATION
from scripts.e5.jobs import compiled
from scripts.e5.suite import SuiteEntry
from simulator.drive import ControllerDriver
from simulator.fleet import run_episodes
from simulator.world.compiled_scenario import CompiledScenario

Still = dict[tuple[str, int], ServiceShares]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One scenario with some seeds. spec: "" for the fleet in which nobody moves."""

    suite: str  # "incidents" or "quiet"
    entry: SuiteEntry
    seeds: tuple[int, ...]
    spec: str
    meta: CompiledMeta

    @property
    def fleet_s(self) -> float:
        """Simulated seconds of all fleets together."""
        return compiled(self.entry).horizon_s * len(self.seeds)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartResult:
    """What a part leaves: evidence of the policy, or what a fleet served that nobody moved."""

    part: Part
    episodes: tuple[EpisodeEvidence, ...]
    still: Still


def make(spec: str, world: CompiledScenario, meta: CompiledMeta) -> ControllerSetup:
    """The configuration ``spec`` for ``world``, watched and never demoted; ValueError for an unknown one."""
    return under(meta, make_configuration(spec, world.setup), watch_only=True)


def run_part(part: Part) -> PartResult:
    """Run ``part``."""
    world = compiled(part.entry)
    setup = make(part.spec, world, part.meta) if part.spec else _still(world)
    driver = ControllerDriver(setup)
    records = run_episodes(world, driver, part.seeds, batch=len(part.seeds))
    if not part.spec:
        found = {(record.scenario, record.seed): _shares(record) for record in records}
        return PartResult(part=part, episodes=(), still=found)
    assert driver.state is not None
    memory = driver.state.supervisor
    episodes = tuple(_evidence(record, memory, fleet) for fleet, record in enumerate(records))
    return PartResult(part=part, episodes=episodes, still={})


def _still(world: CompiledScenario) -> ControllerSetup:
    return make_configuration(BASELINE_CONFIGURATION, world.setup)


def run_parts(parts: Iterable[Part], jobs: int) -> Iterator[PartResult]:
    """Results as they finish; with one job everything runs in this process."""
    if jobs <= 1:
        yield from map(run_part, parts)
        return
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        for done in as_completed([pool.submit(run_part, part) for part in parts]):
            yield done.result()


def _evidence(record: EpisodeRecord, memory: dict[str, NDArray[np.generic]], fleet: int) -> EpisodeEvidence:
    """What the truth of the record and the supervisor's counters say of one episode."""

    def total(name: str) -> float:
        return float(np.asarray(memory[name][fleet], dtype=np.float64).sum())

    return EpisodeEvidence(
        scenario=record.scenario,
        seed=record.seed,
        incident=measure_incident(record),
        slice_hours=len(record.slices) * len(record.table) * record.tick_s / 3600.0,
        false_switches=measure_switches(record).false_switches,
        moves=int(total("moves")),
        turns=int(total("turns")),
        shed_requests=total("shed_requests"),
        offered_requests=total("offered_requests"),
        empty_ticks=int(total("empty_ticks")),
        demoted=bool(memory["demotions"][fleet]),
        service=_shares(record),
    )


def _shares(record: EpisodeRecord) -> ServiceShares:
    found = measure_service(record)
    return ServiceShares(
        useful_ratio=found.useful_ratio, failed_or_exposed_ratio=found.failed_or_exposed_ratio
    )
