"""One episode of E5 on real servers: run on the fleet, measured, kept, and read again by a later run."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from contracts.loading.files import json_text, plain, sha256_of
from contracts.loading.loader import document_sha256
from contracts.scoring.measures import EpisodeMeasures
from faults.drill.outcome import Verdict
from live.control.journal import CONTROL
from live.drill.between import come_to_rest, keep_decisions
from live.fleet.control import require_up
from live.fleet.state import FleetFolder
from scripts.drill.inputs import NOBODY, input_hashes
from scripts.drill.local import Driver, LocalRun, run_on
from scripts.drill.report import content_of, write_report
from scripts.e5.configurations import BASELINE_CONFIGURATION
from scripts.e5.example import timeline
from scripts.e5.report.plots import Timeline
from scripts.e5_local.plan import Episode
from scripts.kept import KeptResults, configuration_key
from scripts.output import ready_folder, write_whole
from scripts.provenance import cores, cpu_model, sources_sha256

_MEASURES = TypeAdapter(EpisodeMeasures)


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeResult:
    """What an episode leaves. measures None: it was no experiment, and ``reason`` says why."""

    episode: Episode
    measures: EpisodeMeasures | None
    verdict: str
    reason: str
    evidence: tuple[str, ...]
    requests: int
    line: Timeline
    served_by: tuple[str, ...]  # versions of servers and gateway


class KeptEpisodes:
    """Finished episodes of one run; one that was no experiment is not kept, and runs again."""

    def __init__(self, out: Path) -> None:
        self._kept = KeptResults(out / "kept")

    def load(self, episode: Episode) -> EpisodeResult | None:
        """What ``episode`` left; None where it must be run."""
        found = self._kept.load(self._key(episode))
        with suppress(ValueError, KeyError, TypeError):
            return None if found is None else _read(found, episode)
        return None

    def save(self, result: EpisodeResult) -> None:
        """Keep ``result``."""
        if result.measures is not None:
            self._kept.save(self._key(result.episode), _plain(result))

    def _key(self, episode: Episode) -> str:
        drill = episode.entry.drill
        return self._kept.key(
            episode.entry.name,
            [document_sha256(drill.read.drill), document_sha256(drill.read.pool)],
            sha256_of(drill.contract_file),
            configuration_key(episode.configuration),
            episode.seed,
            [sources_sha256("live"), cpu_model(), cores()],
        )


class Fleet:
    """The fleet that runs every episode, one after the other."""

    def __init__(self, folder: FleetFolder, out: Path) -> None:
        self._folder, self._out = folder, out

    def run(self, episode: Episode) -> EpisodeResult:
        """Bring the fleet to rest, run ``episode`` on it, keep what it left; errors as drills have."""
        place = self._out / "episodes" / episode.name
        shutil.rmtree(place, ignore_errors=True)
        ready_folder(place)
        told: list[str] = []
        inputs = input_hashes(episode.entry.drill.read, episode.configuration.spec)
        drill, policy = episode.entry.drill, episode.configuration.name
        come_to_rest(self._folder, drill.fleet, told.append)
        keep_decisions(self._folder.path / CONTROL, self._out / "episodes" / "before")
        healer = NOBODY if policy == BASELINE_CONFIGURATION else policy
        try:
            done = run_on(
                drill, self._folder, Driver(policy=healer, seed=episode.seed, name=policy), told.append
            )
        finally:
            keep_decisions(self._folder.path / CONTROL, place)
            write_whole(place / "told.txt", "".join(f"{line}\n" for line in told))
        self._report(place, episode, done, inputs)
        return result_of(episode, done, self._versions())

    def _report(self, place: Path, episode: Episode, done: LocalRun, inputs: dict[str, Any]) -> None:
        policy, read = episode.configuration.name, episode.entry.read
        content = content_of(read, done.outcome, "local", policy, episode.seed, inputs)
        write_report(place, content, done.outcome)
        rows = (f"{json_text(plain(asdict(one)))}\n" for one in done.requests)
        write_whole(place / "requests.jsonl", "".join(rows))

    def _versions(self) -> tuple[str, ...]:
        state = require_up(self._folder)
        servers = sorted({f"vLLM {one.version}" for one in state.servers if one.version})
        return (*servers, *([state.gateway.version] if state.gateway.version else []))


def result_of(episode: Episode, done: LocalRun, served_by: tuple[str, ...] = ()) -> EpisodeResult:
    """``done`` as E5 counts it: to the undo, which heals everybody."""
    outcome = done.outcome
    usable = outcome.verdict is not Verdict.INVALID and not outcome.run.stopped
    record = outcome.run.record
    unknown = np.full((len(record.table), len(record.kernels), len(record.slices)), np.nan)
    return EpisodeResult(
        episode=episode,
        measures=outcome.measures if usable else None,
        verdict=outcome.verdict.value,
        reason=outcome.reason,
        evidence=tuple(one.evidence for one in outcome.run.faults),
        requests=int(record.offered.sum()),
        line=timeline(record, unknown, episode.configuration.name),
        served_by=served_by,
    )


def run_episodes(
    episodes: Iterable[Episode],
    run: Callable[[Episode], EpisodeResult],
    kept: KeptEpisodes,
    on_done: Callable[[EpisodeResult], None],
) -> list[EpisodeResult]:
    """Results in the given order; what ``kept`` has is not run again."""
    results = []
    for episode in episodes:
        found = kept.load(episode)
        if found is None:
            found = run(episode)
            kept.save(found)
        results.append(found)
        on_done(found)
    return results


def _plain(result: EpisodeResult) -> dict[str, Any]:
    line = {name: np.asarray(value).tolist() for name, value in asdict(result.line).items()}
    assert result.measures is not None
    return {
        "measures": asdict(result.measures),
        "told": [result.verdict, result.reason, list(result.evidence), result.requests],
        "line": line,
        "served_by": list(result.served_by),
    }


def _read(found: dict[str, Any], episode: Episode) -> EpisodeResult:
    line, (verdict, reason, evidence, requests) = found["line"], found["told"]
    arrays = {name: np.array(line[name], dtype=np.float64) for name in _ARRAYS}
    return EpisodeResult(
        episode=episode,
        measures=_MEASURES.validate_python(found["measures"]),
        verdict=str(verdict),
        reason=str(reason),
        evidence=tuple(evidence),
        requests=int(requests),
        line=Timeline(
            policy=line["policy"],
            kernels=tuple(line["kernels"]),
            onset_s=line["onset_s"],
            recovered_s=line["recovered_s"],
            **arrays,
        ),
        served_by=tuple(found["served_by"]),
    )


_ARRAYS = ("at_s", "weights", "health", "quality")
