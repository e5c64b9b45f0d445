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
    """Modulus of the prompt length, tokens."""
    lowest: Count = 0
    """Smallest residue at which the fault acts, tokens."""
    highest: Count
    """Largest residue at which the fault acts, tokens."""


class Trigger(Strict):
    """Conditions under which a fault acts; at least one is given, and all given ones must hold."""

    min_generated_tokens: PositiveCount | None = None
    """Tokens of an answer after which the fault acts on its further tokens; absent: on all tokens."""
    min_batch_size: PositiveCount | None = None
    """Fewest requests in an engine step on which the fault acts; absent: on steps of any size."""
    slice: Name | None = None
    """Slice on whose requests alone the fault acts; absent: every slice."""
    prompt_residue: PromptResidue | None = None
    """Prompt lengths at which the fault acts; absent: all lengths."""
    prefix_hit: bool = False
    """True: the fault acts only on requests whose prompt begins with cached blocks."""
    after_cancel: bool = False
    """True: the fault acts only after a client disconnected before its answer was complete."""
    after_structured_output: bool = False
    """True: the fault acts only after a request with a grammar."""

    @property
    def conditions(self) -> tuple[str, ...]:
        """Names of the conditions that are given."""
        return tuple(name for name in type(self).model_fields if getattr(self, name))


class LiveInjection(Strict):
    """Settings for injecting into a live server; the simulator uses measured conditions instead."""

    layers: Text | None = None
    """Regular expression that selects layers by name; absent: all decoder layers."""
    bits: Bits | None = None
    """Bits per requantised weight, 2..16; absent: the injector's default."""
    relative: NonNegative | None = None
    """Noise as a multiple of the standard deviation of the noised values; absent: the injector's default."""
    factor: Positive | None = None
    """Factor by which weights are scaled; absent: the injector's default."""
    count: PositiveCount | None = None
    """Number of bits to flip; absent: the injector's default."""
    bit: BitPlace | None = None
    """Position of the bit to flip, 0 for the least significant; absent: the injector's default."""
    extra_ms: NonNegative | None = None
    """Delay added to every engine step, ms; absent: the injector's default."""
    status: HttpStatus | None = None
    """HTTP status of injected error answers, 400..599; absent: the injector's default."""
    fields: Annotated[tuple[Name, ...], Field(min_length=1, max_length=16)] | None = None
    """Fields removed from answers; absent: the injector's default."""
    events: PositiveCount | None = None
    """Messages of a stream that are sent before it is cut; absent: the injector's default."""
    token: Count | None = None
    """Id of the token that is repeated; absent: the injector's default."""
    seed: Count | None = None
    """Seed of the injector's random draws; absent: the injector's default."""
    mean_kl_nats: Positive | None = None
    """Target mean KL to the replica's own clean answers, nats, found by bisection; absent: no search."""
