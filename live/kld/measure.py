"""Compares a running server with a reference, by the fastest route that the server offers.

``reduced``: the server's plug-in reads the reference file itself and returns a few numbers per position.
``rows``: the plug-in returns whole rows, which are reduced here (the server cannot read the file).
``public``: the twenty most probable tokens of a default server; divergences are then lower bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from contracts.errors import MeasurementError
from live.kld.positions import PromptPositions, from_reduced, from_rows, from_top
from live.kld.server import KldServer, PluginOffer, batches, connect, rows_fit
from live.measure.backend import TopScores
from live.measure.backends.openai_backend import OpenaiBackend
from live.measure.endpoint import Endpoint
from live.measure.prompts import Prompt
from live.measure.reference import AnyReference, ReferenceScores

_PROMPTS_PER_REQUEST, _POSITIONS_PER_REQUEST = 64, 4096
#: Called with the number of positions done since the last call.
OnPositions = Callable[[int], None]


class ComparisonRoute(StrEnum):
    """How positions are compared."""

    REDUCED = "reduced"
    ROWS = "rows"
    PUBLIC = "public"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The chosen route, and why no faster one is available."""

    route: ComparisonRoute
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A server and the reference for a list of prompts. token: of the server's plug-in."""

    endpoint: Endpoint
    token: str
    prompts: Sequence[Prompt]
    reference: AnyReference

    def choose(self, wanted: ComparisonRoute | None = None) -> Choice:
        """The fastest available route, or ``wanted``; MeasurementError if ``wanted`` is not available."""
        with connect(self.endpoint, self.token) as server:
            choice = self._quickest(server)
        order = list(ComparisonRoute)
        if wanted is None or wanted is choice.route:
            return choice
        if order.index(wanted) < order.index(choice.route):
            raise MeasurementError(f"{self.endpoint.base} does not offer the route {wanted}: {choice.reason}")
        return Choice(route=wanted, reason="as was asked")

    def run(self, route: ComparisonRoute, on_positions: OnPositions) -> list[PromptPositions]:
        """Compare every prompt."""
        if route is ComparisonRoute.PUBLIC:
            return list(self._public(on_positions))
        with connect(self.endpoint, self.token) as server:
            offer, reason = server.offer()
            if offer is None or not isinstance(self.reference, ReferenceScores):
                raise MeasurementError(f"{self.endpoint.base} does not offer the route {route}: {reason}")
            by = self._reduced if route is ComparisonRoute.REDUCED else self._rows
            return list(by(server, offer, self.reference, on_positions))

    def _quickest(self, server: KldServer) -> Choice:
        offer, reason = server.offer()
        if offer is None:
            return Choice(route=ComparisonRoute.PUBLIC, reason=reason)
        reference = self.reference
        if not isinstance(reference, ReferenceScores):
            return Choice(
                route=ComparisonRoute.PUBLIC, reason="the reference knows its most probable tokens alone"
            )
        if offer.vocabulary != reference.rows.shape[1]:
            message = f"the reference has {reference.rows.shape[1]} tokens, the server {offer.vocabulary}"
            raise MeasurementError(f"{message}: they are no two kernels of one model")
        try:
            server.reduced(self.prompts[:1], reference, [0])
        except MeasurementError as error:
            fits = rows_fit(self.prompts, offer.vocabulary)
            return Choice(route=ComparisonRoute.ROWS if fits else ComparisonRoute.PUBLIC, reason=str(error))
        return Choice(route=ComparisonRoute.REDUCED)

    def _reduced(
        self, server: KldServer, offer: PluginOffer, reference: ReferenceScores, on_positions: OnPositions
    ) -> Iterator[PromptPositions]:
        most = min(offer.most_prompts, _PROMPTS_PER_REQUEST)
        positions = min(offer.most_positions, _POSITIONS_PER_REQUEST)
        for batch in batches(self.prompts, most, positions):
            members = [self.prompts[index] for index in batch]
            for prompt, values in zip(members, server.reduced(members, reference, batch), strict=True):
                yield from_reduced(prompt, values)
            on_positions(sum(prompt.positions for prompt in members))

    def _rows(
        self, server: KldServer, offer: PluginOffer, reference: ReferenceScores, on_positions: OnPositions
    ) -> Iterator[PromptPositions]:
        for index, prompt in enumerate(self.prompts):
            yield from_rows(prompt, reference.of(index), server.rows(prompt, offer.vocabulary))
            on_positions(prompt.positions)

    def _public(self, on_positions: OnPositions) -> Iterator[PromptPositions]:
        backend = OpenaiBackend(self.endpoint)
        with backend.start(backend.kernels[0]) as session:
            for index, scores in enumerate(session.score(self.prompts)):
                prompt = self.prompts[index]
                if not isinstance(scores, TopScores):
                    raise MeasurementError("the server answered no list of its most probable tokens")
                yield from_top(prompt, self.reference.of(index), scores)
                on_positions(prompt.positions)
