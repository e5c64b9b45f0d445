"""Step times of a server that is seen from outside: requests of known work, timed as a whole.

A request of B prompts and D tokens each is B prefills and, but for the first token, D - 1 decode steps of B
sequences. Requests differ in B, in the prompts' length and in D, so that the fit of ``step_model`` can tell
what each part takes, and what client, network and the server's interface add to a request.

No prompt is sent twice, to this server or another, because a server remembers prefixes: a repeated prompt
measures its cache. Every kind of request is sent in several stretches of time, one after the other, which is
how the fit learns how much the server drifts. Within a stretch the least time counts, because whatever else
the server or the machine does only adds to it; so more rounds make each stretch truer.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from contracts.documents.profile import StepPoint
from contracts.errors import MeasurementError
from contracts.rng import stream
from live.measure.backend import StepPlan
from live.measure.step_model import fit_step_time, widest_prediction

#: A prefill of more tokens than this is cut into several steps by most servers.
MOST_PREFILL_TOKENS = 1024
#: Ordinary tokens of any vocabulary lie in this range.
_TOKENS = (16, 240)

#: Sends prompts (token ids) and wants so many tokens of each.
Send = Callable[[list[list[int]], int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One kind of request: prompts, tokens of each, tokens that are wanted of each."""

    sequences: int
    context: int
    tokens: int

    def point(self, measured_ms: float) -> StepPoint:
        """What it is made of, and the time that it took."""
        decoded = self.tokens - 1
        attended = decoded * self.context + decoded * (decoded + 1) // 2
        return StepPoint(
            prefill_tokens=self.sequences * self.context,
            decode_sequences=self.sequences * decoded,
            context_tokens=self.sequences * attended,
            measured_ms=measured_ms,
            steps=self.tokens,
            sequences=self.sequences,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLoad:
    """The load that timing steps puts on a server, at most."""

    sequences: int  # at a time
    requests: int
    tokens: int  # prefilled and decoded, in all


def requests_of(plan: StepPlan, most_tokens: int = 0) -> tuple[Request, ...]:
    """Kinds of request: one token, and one more than ``decode_steps``, of every batch and context.

    Those that a server of ``most_tokens`` positions (0: unknown) has no room for are left out.
    """
    longest = most_tokens - plan.decode_steps - 1 if most_tokens else max(plan.contexts)
    return tuple(
        Request(sequences=batch, context=context, tokens=tokens)
        for batch in plan.batches
        for context in plan.contexts
        if context <= longest and batch * context <= MOST_PREFILL_TOKENS
        for tokens in (1, 1 + plan.decode_steps)
    )


def load_of(plan: StepPlan) -> StepLoad:
    """What ``plan`` sends at most."""
    kinds, times = requests_of(plan), 1 + plan.rounds * plan.most_blocks  # one to warm up
    return StepLoad(
        sequences=max((kind.sequences for kind in kinds), default=0),
        requests=times * len(kinds),
        tokens=times * sum(kind.sequences * (kind.context + kind.tokens) for kind in kinds),
    )


def time_requests(
    send: Send, plan: StepPlan, most_tokens: int = 0, clock: Callable[[], float] = time.perf_counter
) -> list[StepPoint]:
    """One point per kind of request and stretch, until predictions are sure enough or blocks run out.

    Raises MeasurementError where the server has no room for the shortest context.
    """
    kinds = requests_of(plan, most_tokens)
    if not kinds:
        raise MeasurementError(f"a server of {most_tokens} positions has no room for {min(plan.contexts)}")
    fresh = FreshPrompts()
    for kind in kinds:  # the first request of a size is slow: memory, compilation
        send(fresh.of(kind), kind.tokens)
    blocks: list[list[float]] = []
    points: list[StepPoint] = []
    while len(blocks) < plan.most_blocks:
        timed = [[_time_ms(send, kind, fresh, clock) for kind in kinds] for _ in range(plan.rounds)]
        blocks.append([min(times) for times in zip(*timed, strict=True)])
        points = _by_stretch(kinds, blocks, plan.blocks)
        if len(blocks) >= plan.blocks and _sure(points, plan.wanted_half_width):
            break
    return points


def _time_ms(send: Send, kind: Request, fresh: FreshPrompts, clock: Callable[[], float]) -> float:
    prompts = fresh.of(kind)
    started = clock()
    send(prompts, kind.tokens)
    return (clock() - started) * 1000.0


def _by_stretch(kinds: tuple[Request, ...], blocks: list[list[float]], stretches: int) -> list[StepPoint]:
    """Least time of each kind in each of so many stretches of equally many blocks, more or less."""
    parts = np.array_split(np.array(blocks), min(stretches, len(blocks)))
    return [
        kind.point(float(least))
        for part in parts
        for kind, least in zip(kinds, part.min(axis=0), strict=True)
    ]


def _sure(points: list[StepPoint], wanted: float) -> bool:
    try:
        return widest_prediction(fit_step_time(points)) <= wanted
    except MeasurementError:
        return False


class FreshPrompts:
    """Prompts that nobody has sent before: random tokens of a seed from the system."""

    def __init__(self) -> None:
        self._rng = stream(secrets.randbits(62), "step-prompts")

    def of(self, kind: Request) -> list[list[int]]:
        """Prompts for one request of ``kind``."""
        drawn = self._rng.integers(*_TOKENS, size=(kind.sequences, kind.context))
        return [[int(token) for token in prompt] for prompt in drawn]
