"""When a fault acts and how it is injected into a live server: blocks that a scheduled fault may have."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from contracts.documents.envelope import Count, Name, NonNegative, Positive, PositiveCount, Strict, Text

HttpStatus = Annotated[int, Field(ge=400, le=599)]
Bits = Annotated[int, Field(ge=2, le=16)]
BitPlace = Annotated[int, Field(ge=0, le=31)]


class PromptResidue(Strict):
    """Prompts whose length modulo ``block_tokens`` lies in ``lowest..highest``."""

    block_tokens: PositiveCount
    """The modulus, tokens."""
    lowest: Count = 0
    """Smallest residue that counts, tokens."""
    highest: Count
    """Largest residue that counts, tokens."""


class Trigger(Strict):
    """The conditions under which a fault acts; all that are given must hold, and one at least is given."""

    min_generated_tokens: PositiveCount | None = None
    """Only for tokens after this many of the same answer."""
    min_batch_size: PositiveCount | None = None
    """Only in engine steps of at least this many requests."""
    slice: Name | None = None
    """Only for requests of this slice."""
    prompt_residue: PromptResidue | None = None
    """Only for prompts of these lengths."""
    prefix_hit: bool = False
    """Only for requests whose prompt begins with cached blocks."""
    after_cancel: bool = False
    """Only after a client went away before its answer was complete."""
    after_structured_output: bool = False
    """Only after a request with a grammar."""

    @property
    def conditions(self) -> tuple[str, ...]:
        """Names of the conditions that are given."""
        return tuple(name for name in type(self).model_fields if getattr(self, name))


class LiveInjection(Strict):
    """What an injection into a live server needs to know; the simulator reads measured conditions instead."""

    layers: Text | None = None
    """Regular expression over layer names; absent: all decoder layers."""
    bits: Bits | None = None
    """Of a requantised weight."""
    relative: NonNegative | None = None
    """Noise in standard deviations of what it is added to."""
    factor: Positive | None = None
    """Of scaled weights."""
    count: PositiveCount | None = None
    """Bits that flip."""
    bit: BitPlace | None = None
    """Which bit flips, 0 the least significant."""
    extra_ms: NonNegative | None = None
    """Added to every engine step."""
    status: HttpStatus | None = None
    """Of answers that are errors."""
    fields: Annotated[tuple[Name, ...], Field(min_length=1, max_length=16)] | None = None
    """Fields that answers lose."""
    events: PositiveCount | None = None
    """Messages of a stream before it is cut."""
    token: Count | None = None
    """The token that is repeated."""
    seed: Count | None = None
    """Of what is drawn."""
    mean_kl_nats: Positive | None = None
    """Instead of a size: find by bisection what gives this mean KL to the replica's own clean answers."""
