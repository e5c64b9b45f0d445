"""Step time of a profile: the model of one engine step, and the measured points behind it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from contracts.documents.envelope import Count, NonNegative, PositiveCount, Strict


class StepPoint(Strict):
    """One measured engine step, or the sums over the steps of one timed request."""

    prefill_tokens: Count
    """Prompt tokens computed in the step, a count."""
    decode_sequences: Count
    """Sequences that decoded a token, a count."""
    context_tokens: Count
    """Context tokens that the decoding sequences attended to, a count."""
    measured_ms: NonNegative
    """Measured time, ms."""
    steps: PositiveCount | None = None
    """Number of engine steps in this point; absent: one."""
    sequences: PositiveCount | None = None
    """Sequences of the timed request; absent where the engine itself was timed."""


class StepHalfWidths(Strict):
    """Half-widths of the 95 % confidence intervals of the coefficients."""

    base_ms: NonNegative
    """Half-width of base_ms, ms."""
    per_prefill_token_ms: NonNegative
    """Half-width of per_prefill_token_ms, ms."""
    per_decode_sequence_ms: NonNegative
    """Half-width of per_decode_sequence_ms, ms."""
    per_context_token_ms: NonNegative
    """Half-width of per_context_token_ms, ms."""


class StepPrediction(Strict):
    """The model's step time at one operating point, with its half-width at 95 % confidence."""

    prefill_tokens: Count
    """Prompt tokens computed in the step, a count."""
    decode_sequences: Count
    """Sequences that decode a token, a count."""
    context_tokens: Count
    """Context tokens that the decoding sequences attend to, a count."""
    predicted_ms: NonNegative
    """Step time by the model, ms."""
    half_width_ms: NonNegative
    """Half-width of predicted_ms, ms."""


class StepTime(Strict):
    """Time of one engine step, ms: base + per token prefilled + per sequence decoded + per context token."""

    base_ms: NonNegative
    """Time of a step without tokens, ms."""
    per_prefill_token_ms: NonNegative
    """Time that each prefilled token adds, ms."""
    per_decode_sequence_ms: NonNegative
    """Time that each decoded sequence adds, ms."""
    per_context_token_ms: NonNegative
    """Time that each token of context adds, ms."""
    relative_error: NonNegative
    """Median of |fitted - measured| / measured over the measured points."""
    measured_points: Count
    """Number of measured points behind the fit."""
    points: Annotated[tuple[StepPoint, ...], Field(max_length=512)] = ()
    """Measured points; empty in profiles that keep none."""
    half_widths: StepHalfWidths | None = None
    """Uncertainty of the coefficients; absent in older profiles."""
    predictions: Annotated[tuple[StepPrediction, ...], Field(max_length=16)] | None = None
    """Step times at typical operating points; absent in older profiles."""
    dropped_points: Count | None = None
    """Number of points left out because their measured time was zero; absent in older profiles."""
    per_request_ms: NonNegative | None = None
    """Time that a timed request takes beside its steps (client, network, server interface), ms; absent: not
    fitted."""
    per_sequence_ms: NonNegative | None = None
    """Time that each sequence of a timed request adds to per_request_ms, ms; absent: not fitted."""
