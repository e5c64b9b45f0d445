"""Result of an episode of E5 on real servers: kept when finished, and read again by a later run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contracts.loading.loader import document_sha256
from contracts.scoring.measures import EpisodeMeasures, measures_of, measures_plain
from contracts.scoring.timeline import Timeline, timeline_of, timeline_plain
from scripts.e5.configurations import configuration_key
from scripts.e5_drills.plan import DrillEpisode
from scripts.partial_results import KeptResults


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeResult:
    """Result of an episode. measures None: it was not a valid experiment; ``reason`` says why."""

    episode: DrillEpisode
    measures: EpisodeMeasures | None
    verdict: str
    reason: str
    evidence: tuple[str, ...]
    requests: int
    line: Timeline | None
    served_by: tuple[str, ...]  # versions of servers and gateway


class KeptEpisodes:
    """Finished episodes of one run; an invalid one is not kept, and runs again.

    facts: other inputs than the documents: sources, machines, the cluster.
    """

    def __init__(self, out: Path, *facts: object) -> None:
        self._kept, self._facts = KeptResults(out / "kept"), facts

    def load(self, episode: DrillEpisode) -> EpisodeResult | None:
        """The stored result of ``episode``; None if it must be run."""
        found = self._kept.load(self._key(episode))
        with suppress(ValueError, KeyError, TypeError):
            return None if found is None else _read(found, episode)
        return None

    def save(self, result: EpisodeResult) -> None:
        """Keep ``result``."""
        if result.measures is not None:
            self._kept.save(self._key(result.episode), _plain(result))

    def _key(self, episode: DrillEpisode) -> str:
        entry = episode.entry
        return self._kept.key(
            entry.name,
            [document_sha256(entry.drill), document_sha256(entry.pool), document_sha256(entry.contract)],
            configuration_key(episode.configuration),
            episode.seed,
            list(self._facts),
        )


def run_episodes(
    episodes: Iterable[DrillEpisode],
    run: Callable[[DrillEpisode], EpisodeResult],
    kept: KeptEpisodes,
    on_done: Callable[[EpisodeResult], None],
) -> list[EpisodeResult]:
    """Results in the given order; episodes in ``kept`` are not run again."""
    results = []
    for episode in episodes:
        found = kept.load(episode)
        if found is None:
            found = run(episode)
            kept.save(found)
        results.append(found)
        on_done(found)
    return results


def announced(
    run: Callable[[DrillEpisode], EpisodeResult], show: Callable[[str], None], say: Callable[[str], None]
) -> Callable[[DrillEpisode], EpisodeResult]:
    """``run`` that reports the begin and the result of each episode."""

    def running(episode: DrillEpisode) -> EpisodeResult:
        show(episode.name)
        began_at_s = time.monotonic()
        found = run(episode)
        say(f"{episode.name}: {found.verdict} after {time.monotonic() - began_at_s:.0f} s: {found.reason}")
        return found

    return running


def _plain(result: EpisodeResult) -> dict[str, Any]:
    assert result.measures is not None
    return {
        "measures": measures_plain(result.measures),
        "told": [result.verdict, result.reason, list(result.evidence), result.requests],
        "line": None if result.line is None else timeline_plain(result.line),
        "served_by": list(result.served_by),
    }


def _read(found: dict[str, Any], episode: DrillEpisode) -> EpisodeResult:
    verdict, reason, evidence, requests = found["told"]
    return EpisodeResult(
        episode=episode,
        measures=measures_of(found["measures"]),
        verdict=str(verdict),
        reason=str(reason),
        evidence=tuple(map(str, evidence)),
        requests=int(requests),
        line=None if found["line"] is None else timeline_of(found["line"]),
        served_by=tuple(map(str, found["served_by"])),
    )
