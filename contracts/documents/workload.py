"""Workload of a scenario: process of arrivals, shares of slices, and lengths of prompts and answers."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from contracts.documents.envelope import Name, NonNegative, Positive, PositiveCount, Ratio, Strict, Uri


class SliceShare(Strict):
    """Share of the offered requests that belong to one slice."""

    slice: Name
    """Name of a slice."""
    share: Ratio
    """Share of all offered requests, 0..1; the shares add up to 1."""


class TokenLengths(Strict):
    """Distribution of a token count; ``sigma`` is the log-normal's shape (of the logarithm)."""

    distribution: Literal["lognormal", "fixed"] = "lognormal"
    """Distribution of the count; fixed: always the mean."""
    mean: Positive
    """Mean count of tokens."""
    sigma: NonNegative = 0.0
    """Standard deviation of the count's logarithm; 0: always the mean."""
    max_tokens: PositiveCount = 32768
    """Largest count; greater draws are cut to it."""


class GammaArrivals(Strict):
    """Gamma-distributed gaps; coefficient of variation 1 is Poisson, more is burstier."""

    gap_cv: Positive
    """Coefficient of variation of the gaps between requests, a ratio."""


class DiurnalArrivals(Strict):
    """Sinusoidal rate: rate_rps * (1 + amplitude_ratio * sin(2 pi (t - phase_s) / period_s))."""

    period_s: Positive
    """Time from one peak to the next, s."""
    amplitude_ratio: Ratio
    """Share of the mean rate by which it rises and falls, 0..1."""
    phase_s: NonNegative = 0.0
    """Time at which the rate rises through its mean, s."""


class SurgeArrivals(Strict):
    """Rate multiplied by ``factor`` from ``at_s`` for ``duration_s``."""

    at_s: NonNegative
    """Time from the start to the surge, s."""
    duration_s: Positive
    """Time that the surge lasts, s."""
    factor: Positive
    """Factor of the rate during the surge."""


class DeclaredTokens(Strict):
    """Mean token counts from which the controller derives capacities."""

    prompt_tokens: Positive
    """Mean tokens of a prompt, a count."""
    output_tokens: Positive
    """Mean tokens of an answer, a count."""


class TokenDrift(Strict):
    """Linear change of token counts, from no change at 0 s to these factors at the horizon."""

    prompt_factor: Positive = 1.0
    """Factor of prompt tokens at the horizon."""
    output_factor: Positive = 1.0
    """Factor of answer tokens at the horizon."""


class Workload(Strict):
    """Requests that arrive. The block that ``arrivals`` names must be present (none for poisson)."""

    rate_rps: Positive
    """Mean rate of all requests, requests per second."""
    arrivals: Literal["poisson", "gamma", "diurnal", "surge", "trace"] = "poisson"
    """Process of the arrivals."""
    gamma: GammaArrivals | None = None
    """Settings of gamma arrivals; absent for others."""
    diurnal: DiurnalArrivals | None = None
    """Settings of diurnal arrivals; absent for others."""
    surge: SurgeArrivals | None = None
    """Settings of surge arrivals; absent for others."""
    trace_uri: Uri | None = None
    """Trace in the Azure LLM format, scaled to ``rate_rps``; absent unless arrivals is trace."""
    slice_mix: Annotated[tuple[SliceShare, ...], Field(min_length=1, max_length=16)]
    """Shares of the slices."""
    prompt_tokens: TokenLengths
    """Distribution of the tokens of a prompt."""
    output_tokens: TokenLengths
    """Distribution of the tokens of an answer."""
    declared: DeclaredTokens | None = None
    """Token counts that the controller is told; absent: the means above. Simulated requests never use
    them."""
    drift: TokenDrift | None = None
    """Change of token counts over the episode; absent: none."""
    session_share: Ratio = 0.0
    """Share of requests that belong to a session, 0..1."""
