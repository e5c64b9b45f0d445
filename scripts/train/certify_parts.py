"""The work of a certification in parts that may run in several processes and change no result.

A part is one scenario with some seeds: the policy drives while the supervisor only counts (``watch_only``),
or a policy that never moves traffic drives, as the reference for harm.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.meta import CompiledMeta
from contracts.loading.untrusted import MALFORMED
from contracts.scoring.episode import EpisodeRecord
from contracts.scoring.incident_measures import measure_incident
from contracts.scoring.measures import measure_service
from contracts.scoring.switches import measure_switches
from controller.options import ControllerSetup
from policies.certify.certificate import EpisodeEvidence, ServiceShares
from policies.certify.evidence import EPISODES, SHARES
from policies.registry import configuration_sha256, make_configuration
from policies.supervised import supervised_setup
from scripts.e5.configurations import BASELINE_CONFIGURATION
from scripts.e5.run.jobs import compiled
from scripts.e5.suite import SuiteEntry
from scripts.partial_results import KeptResults, world_facts
from scripts.workers import Workers, open_workers
from simulator.drive import ControllerDriver
from simulator.fleet import run_episodes
from simulator.world.compiled_scenario import CompiledScenario

Still = dict[tuple[str, int], ServiceShares]


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificationPart:
    """One scenario with some seeds. spec: "" for the fleet without moves."""

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
    """Result of a part: evidence of the policy, or the service of the fleet without moves."""

    part: CertificationPart
    episodes: tuple[EpisodeEvidence, ...]
    still: Still


def make(spec: str, world: CompiledScenario, meta: CompiledMeta) -> ControllerSetup:
    """The configuration ``spec`` for ``world``, watched and never demoted; ValueError for an unknown one."""
    return supervised_setup(meta, make_configuration(spec, world.setup), watch_only=True)


def run_part(part: CertificationPart) -> PartResult:
    """Run ``part``."""
    world = compiled(part.entry)
    driver = driver_of(part, world)
    records = run_episodes(world, driver, part.seeds, batch=len(part.seeds))
    if not part.spec:
        found = {(record.scenario, record.seed): _shares(record) for record in records}
        return PartResult(part=part, episodes=(), still=found)
    assert driver.state is not None
    memory = driver.state.supervisor
    episodes = tuple(_evidence(record, memory, fleet) for fleet, record in enumerate(records))
    return PartResult(part=part, episodes=episodes, still={})


def driver_of(part: CertificationPart, world: CompiledScenario) -> ControllerDriver:
    """The driver of ``world`` in ``part``."""
    return ControllerDriver(make(part.spec, world, part.meta) if part.spec else _still(world))


def _still(world: CompiledScenario) -> ControllerSetup:
    return make_configuration(BASELINE_CONFIGURATION, world.setup)


def finished_parts(
    parts: Sequence[CertificationPart], kept: KeptResults
) -> tuple[list[PartResult], list[CertificationPart]]:
    """``(results, parts)``: results of ``parts`` in ``kept``, and the remaining parts."""
    found = [(part, _read(kept.load(_key(part, kept)), part)) for part in parts]
    done = [result for _, result in found if result is not None]
    return done, [part for part, result in found if result is None]


def run_parts(
    parts: Sequence[CertificationPart], workers: Workers, kept: KeptResults
) -> Iterator[PartResult]:
    """Results as they finish, stored in ``kept``; with one job everything runs in this process."""
    with open_workers(workers) as run:
        for place, result in run(run_part, parts):
            kept.save(_key(parts[place], kept), _plain(result))
            yield result


def _key(part: CertificationPart, kept: KeptResults) -> str:
    policy = configuration_sha256(part.spec) if part.spec else ""
    return kept.key(
        part.suite,
        part.entry.name,
        world_facts(compiled(part.entry)),
        list(part.seeds),
        policy,
        part.meta.sha256,
    )


def _plain(result: PartResult) -> dict[str, Any]:
    still = [[*place, asdict(shares)] for place, shares in sorted(result.still.items())]
    return {"episodes": [asdict(episode) for episode in result.episodes], "still": still}


def _read(plain: Any, part: CertificationPart) -> PartResult | None:
    """The stored result of ``part``; None if it must be run."""
    with suppress(*MALFORMED):
        if plain is not None:
            rows = [(str(name), int(seed), SHARES.validate_python(one)) for name, seed, one in plain["still"]]
            return PartResult(
                part=part,
                episodes=EPISODES.validate_python(plain["episodes"]),
                still={(name, seed): one for name, seed, one in rows},
            )
    return None


def _evidence(record: EpisodeRecord, memory: dict[str, NDArray[np.generic]], fleet: int) -> EpisodeEvidence:
    """Evidence of one episode, from the record's truth and the supervisor's counters."""

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
