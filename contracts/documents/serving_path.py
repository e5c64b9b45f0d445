"""Serving path of a profile: what a server adds to its engine's steps, and the measured points behind it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from contracts.documents.envelope import Count, NonNegative, PositiveCount, Strict


class ServingPoint(Strict):
    """Medians over concurrent streamed requests, by the client and by the engine's histograms."""

    concurrent: PositiveCount
    """Requests streamed at the same time, a count."""
    prompt_tokens: Count
    """Tokens of each prompt, a count."""
    answer_tokens: PositiveCount
    """Tokens of each answer, a count."""
    first_ms: NonNegative
    """Time to the first token by the client, ms."""
    inter_token_ms: NonNegative
    """Time between tokens by the client, ms."""
    engine_first_ms: NonNegative | None = None
    """Queue and prefill time by the engine's own histograms, ms; absent: the server exports none."""
    engine_inter_token_ms: NonNegative | None = None
    """Time between tokens by the engine's own histograms, ms; absent: the server exports none."""


class ServingHalfWidths(Strict):
    """Half-widths of the 95 % confidence intervals of the terms."""

    request_overhead_ms: NonNegative
    """Half-width of request_overhead_ms, ms."""
    step_overhead_ms: NonNegative
    """Half-width of step_overhead_ms, ms."""
    token_overhead_ms: NonNegative
    """Half-width of token_overhead_ms, ms."""


class ServingPath(Strict):
    """What serving adds to the engine's steps: API process, tokeniser, detokeniser, stream, shared cores.

    The request overhead delays tokens; the other two occupy the engine's loop and widen gaps between tokens.
    """

    request_overhead_ms: NonNegative = 0.0
    """Delay of a request's first and last token, ms; the engine does other work meanwhile."""
    step_overhead_ms: NonNegative = 0.0
    """Time between one engine step and the next, ms."""
    token_overhead_ms: NonNegative = 0.0
    """Time that each streamed token adds to the step that makes it, ms."""
    half_widths: ServingHalfWidths | None = None
    """Uncertainty of the terms; absent: not known."""
    outside_engine_ratio: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
    """Share of ``request_overhead_ms`` that the engine's own histograms do not include, 0..1; absent: not
    known."""
    points: Annotated[tuple[ServingPoint, ...], Field(max_length=64)] = ()
    """Measured points; empty in profiles that keep none."""
