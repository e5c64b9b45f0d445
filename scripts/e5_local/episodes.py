"""One episode of E5 on the fleet of this machine: run, measured, and kept with all its files."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from contracts.loading.files import json_text, plain
from contracts.scoring.timeline import timeline, unknown_health
from faults.drill.outcome import DrillVerdict
from live.control.journal import CONTROL
from live.drill.between import await_clean_fleet, keep_decisions
from live.fleet.control import require_up
from live.fleet.state import FleetFolder
from scripts.drill.inputs import NOBODY, input_hashes
from scripts.drill.local import DrilledPolicy, LocalDrill, LocalRun, run_on
from scripts.drill.report import content_of, write_report
from scripts.e5.configurations import BASELINE_CONFIGURATION
from scripts.e5_drills.plan import DrillEpisode
from scripts.e5_drills.results import EpisodeResult
from scripts.output import ready_folder, write_whole


class EpisodeFleet:
    """The fleet that runs every episode, one after the other. drills: by the names of entries."""

    def __init__(self, folder: FleetFolder, out: Path, drills: Mapping[str, LocalDrill]) -> None:
        self._folder, self._out, self._drills = folder, out, drills

    def run(self, episode: DrillEpisode) -> EpisodeResult:
        """Bring the fleet to rest, run ``episode`` on it, keep its results; errors as for drills."""
        place = self._out / "episodes" / episode.name
        shutil.rmtree(place, ignore_errors=True)
        ready_folder(place)
        told: list[str] = []
        drill, own = self._drills[episode.entry.name], episode.configuration
        inputs = input_hashes(drill.read, own.spec, own.meta)
        await_clean_fleet(self._folder, drill.fleet, told.append)
        keep_decisions(self._folder.path / CONTROL, self._out / "episodes" / "before")
        try:
            done = run_on(drill, self._folder, driver_of(episode), told.append)
        finally:
            keep_decisions(self._folder.path / CONTROL, place)
            write_whole(place / "told.txt", "".join(f"{line}\n" for line in told))
        self._report(place, episode, done, inputs)
        return result_of(episode, done, self._versions())

    def _report(self, place: Path, episode: DrillEpisode, done: LocalRun, inputs: dict[str, Any]) -> None:
        policy, read = episode.configuration.name, self._drills[episode.entry.name].read
        content = content_of(read, done.outcome, "local", policy, episode.seed, inputs)
        write_report(place, content, done.outcome)
        rows = (f"{json_text(plain(asdict(one)))}\n" for one in done.requests)
        write_whole(place / "requests.jsonl", "".join(rows))

    def _versions(self) -> tuple[str, ...]:
        state = require_up(self._folder)
        servers = sorted({f"vLLM {one.version}" for one in state.servers if one.version})
        return (*servers, *([f"Envoy {state.gateway.version}"] if state.gateway.version else []))


def driver_of(episode: DrillEpisode) -> DrilledPolicy:
    """The controller that heals in ``episode``, if any."""
    own = episode.configuration
    healer = NOBODY if own.name == BASELINE_CONFIGURATION else own.spec
    return DrilledPolicy(policy=healer, seed=episode.seed, name=own.name, meta=own.meta)


def result_of(episode: DrillEpisode, done: LocalRun, served_by: tuple[str, ...] = ()) -> EpisodeResult:
    """``done`` as an episode of E5: up to the undo, which ends every fault."""
    outcome = done.outcome
    usable = outcome.verdict is not DrillVerdict.INVALID and not outcome.run.stopped
    record = outcome.run.record
    return EpisodeResult(
        episode=episode,
        measures=outcome.measures if usable else None,
        verdict=outcome.verdict.value,
        reason=outcome.reason,
        evidence=tuple(one.evidence for one in outcome.run.faults),
        requests=int(record.offered.sum()),
        line=timeline(record, unknown_health(record), episode.configuration.name),
        served_by=served_by,
    )
