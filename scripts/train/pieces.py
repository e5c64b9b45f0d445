"""Episodes of a search in parallel pieces; the score is that of one process, bit by bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from pydantic import TypeAdapter

from contracts.loading.untrusted import MALFORMED
from policies.train.recipe import RewardRecipe
from scripts.e5.configurations import configuration_key, parse_configuration
from scripts.partial_results import KeptResults, world_facts
from scripts.train.validation import (
    Drawn,
    EpisodeSet,
    Row,
    ValidationScore,
    draw,
    measured_rows,
    score_of,
)
from scripts.workers import Run

_SCORE = TypeAdapter(ValidationScore)


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Fleets ``first`` to ``last``, the last left out, of draw ``number`` under ``configuration`` and the
    meta-contract ``meta`` ("": none).
    """

    configuration: str
    episodes: EpisodeSet
    reward: RewardRecipe
    number: int
    first: int
    last: int
    meta: str = ""


@lru_cache(maxsize=2)
def _drawn(episodes: EpisodeSet) -> tuple[Drawn, ...]:
    return draw(episodes)


def run_piece(piece: Piece) -> list[Row]:
    """The row of each of its episodes, in order."""
    whole = _drawn(piece.episodes)[piece.number]
    mine = slice(piece.first, piece.last)
    part = replace(whole, episodes=whole.episodes[mine], seeds=whole.seeds[mine])
    return measured_rows(parse_configuration(piece.configuration, piece.meta), part, piece.reward)


@dataclass(frozen=True, slots=True, kw_only=True)
class PiecewiseSearch:
    """Common facts of every score of a search. pieces: into how many each draw is cut; changes no result.
    meta: URI of the meta-contract of every configuration; "" for none.
    """

    episodes: EpisodeSet
    reward: RewardRecipe
    run: Run
    kept: KeptResults
    pieces: int = 1
    meta: str = ""
    on_done: Callable[[float], None] = lambda _: None
    """Called with the share of one configuration's episodes that has finished."""

    def score(self, configuration: str) -> ValidationScore:
        """ValidationScore of ``configuration``, kept or run."""
        return self.scores([configuration])[configuration]

    def scores(self, configurations: Sequence[str]) -> dict[str, ValidationScore]:
        """ValidationScores of ``configurations``, with all their pieces in parallel."""
        found = {one: self._load(one) for one in configurations}
        todo = [piece for one, score in found.items() if score is None for piece in self._cut(one)]
        rows: dict[int, list[Row]] = {}
        for place, result in self.run(run_piece, todo):
            rows[place] = result
            self.on_done(
                (todo[place].last - todo[place].first) / (self.episodes.fleets * self.episodes.rounds)
            )
        for one in [one for one, score in found.items() if score is None]:
            mine = [row for place in sorted(rows) if todo[place].configuration == one for row in rows[place]]
            score = found[one] = score_of(mine, self.reward)
            self.kept.save(self._key(one), score.plain())
        return {one: score for one, score in found.items() if score is not None}

    def _cut(self, configuration: str) -> list[Piece]:
        fleets = self.episodes.fleets
        size = -(-fleets // self.pieces)
        return [
            Piece(
                configuration=configuration,
                episodes=self.episodes,
                reward=self.reward,
                number=number,
                first=first,
                last=min(fleets, first + size),
                meta=self.meta,
            )
            for number in range(self.episodes.rounds)
            for first in range(0, fleets, size)
        ]

    def _key(self, configuration: str) -> str:
        worlds = [world_facts(part.base.compiled) for part in _drawn(self.episodes)]
        chosen = configuration_key(parse_configuration(configuration, self.meta))
        return self.kept.key(chosen, worlds, repr(self.episodes), self.reward.model_dump(mode="json"))

    def _load(self, configuration: str) -> ValidationScore | None:
        return read_score(self.kept.load(self._key(configuration)))


def read_score(plain: Any) -> ValidationScore | None:
    """The score stored as ``plain``; None if it must be measured."""
    with suppress(*MALFORMED):
        return None if plain is None else _SCORE.validate_python(plain)
    return None
