"""Step times of a server, measured from outside: requests of known work, timed as a whole.

A request of B prompts and D tokens each is B prefills and, after the first token, D - 1 decode steps of B
sequences. Requests differ in B, in the prompts' length and in D, so that the fit of ``step_model`` can
separate the time of each part, and what client, network and the server's interface add to a request.

No prompt is sent twice, to this server or another, because servers cache prefixes: a repeated prompt would
measure the cache. In every round the kinds of requests come in a new random order, so that drift of the
server and bursts of other load affect all kinds alike; cheap kinds come more often. Rounds are spread over a
least time. They continue until the predicted step times are certain enough, or until a stated time is over.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from contracts.documents.step_time import StepPoint
from contracts.errors import MeasurementError
from contracts.rng import stream
from contracts.units import MS_PER_S
from live.measure.backend import StepPlan
from live.measure.steps.model import fit_step_time, widest_prediction
from live.measure.steps.spread import LEAST_BLOCKS

#: Most servers split a prefill of more tokens than this into several steps.
MOST_PREFILL_TOKENS = 1024
_MOST_TURNS = 4
#: Range of ordinary tokens in every vocabulary.
_TOKENS = (16, 240)

#: Sends prompts (token ids) and requests this many tokens of each.
Send = Callable[[list[list[int]], int], None]


class TooFewRoundsError(MeasurementError):
    """The stated time was over before the spread between rounds was known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestKind:
    """One kind of request: number of prompts, tokens per prompt, requested tokens per prompt."""

    sequences: int
    context: int
    tokens: int

    @property
    def all_tokens(self) -> int:
        """Number of tokens that are prefilled and decoded."""
        return self.sequences * (self.context + self.tokens)

    def point(self, measured_ms: float) -> StepPoint:
        """The work of such a request with its measured time."""
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
    """Upper limits of the load that timing puts on a server."""

    sequences: int  # at a time
    requests: int
    tokens: int  # prefilled and decoded, in all
    seconds: float  # no request begins later; infinite: no cap


@dataclass(frozen=True, slots=True, kw_only=True)
class PassingTime:
    """A clock in seconds, and a function that waits."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


def requests_of(plan: StepPlan, most_tokens: int = 0) -> tuple[RequestKind, ...]:
    """Kinds of requests for every batch and context: with one token, and with ``decode_steps`` + 1 tokens.

    Kinds that do not fit a server with ``most_tokens`` positions (0: unknown) are left out.
    """
    longest = most_tokens - plan.decode_steps - 1 if most_tokens else max(plan.contexts)
    return tuple(
        RequestKind(sequences=batch, context=context, tokens=tokens)
        for batch in plan.batches
        for context in plan.contexts
        if context <= longest and batch * context <= MOST_PREFILL_TOKENS
        for tokens in (1, 1 + plan.decode_steps)
    )


def turns_of(kinds: Sequence[RequestKind]) -> tuple[int, ...]:
    """How often each of ``kinds`` comes in a round: more often with fewer tokens, at most four times."""
    dearest = max((kind.all_tokens for kind in kinds), default=0)
    return tuple(min(_MOST_TURNS, round(math.sqrt(dearest / kind.all_tokens))) for kind in kinds)


def load_of(plan: StepPlan) -> StepLoad:
    """The most that ``plan`` sends."""
    kinds = requests_of(plan)
    times = [1 + plan.rounds * plan.most_blocks * turns for turns in turns_of(kinds)]  # one to warm up
    return StepLoad(
        sequences=max((kind.sequences for kind in kinds), default=0),
        requests=sum(times),
        tokens=sum(often * kind.all_tokens for often, kind in zip(times, kinds, strict=True)),
        seconds=plan.most_seconds,
    )


def time_requests(
    send: Send,
    plan: StepPlan,
    most_tokens: int = 0,
    clock: Callable[[], float] = time.perf_counter,
    pace: PassingTime | None = None,
    seed: int | None = None,
) -> list[StepPoint]:
    """One point per kind of request and block, until predictions are certain enough, or time or blocks run
    out.

    ``seed`` of the order of requests; without it the system provides one. Raises MeasurementError if the
    server has no room for the shortest context, TooFewRoundsError if it is too slow for enough blocks.
    """
    kinds = requests_of(plan, most_tokens)
    if not kinds:
        raise MeasurementError(f"a server of {most_tokens} positions has no room for {min(plan.contexts)}")
    rounds = _Rounds(send=send, plan=plan, kinds=kinds, clock=clock, pace=pace or PassingTime(), seed=seed)
    began_at_s = rounds.pace.now()
    rounds.warm_up()
    points: list[StepPoint] = []
    done = 0
    while done < plan.most_blocks:
        rounds.wait_until(began_at_s + plan.least_seconds * done / plan.blocks)
        block = rounds.block(began_at_s + plan.most_seconds)
        if block is None:
            break
        points, done = points + block, done + 1
        if done >= plan.blocks and _sure(points, plan.wanted_half_width):
            break
    _refuse_too_few(done, plan)
    return points


def _refuse_too_few(blocks: int, plan: StepPlan) -> None:
    """TooFewRoundsError if too few blocks ended in time to estimate their spread."""
    least = min(plan.blocks, LEAST_BLOCKS)
    if blocks < least:
        message = f"only {blocks} of at least {least} blocks of {plan.rounds} rounds ended within"
        raise TooFewRoundsError(f"{message} {plan.most_seconds:g} s; allow more by --step-seconds")


class _Rounds:
    """Rounds of requests of every kind to one server."""

    def __init__(
        self,
        *,
        send: Send,
        plan: StepPlan,
        kinds: tuple[RequestKind, ...],
        clock: Callable[[], float],
        pace: PassingTime,
        seed: int | None,
    ) -> None:
        self.pace = pace
        self._send, self._plan, self._clock = send, plan, clock
        self._kinds = kinds
        self._round = np.repeat(np.arange(len(kinds)), turns_of(kinds))
        self._fresh = FreshPrompts()
        self._order = stream(secrets.randbits(62) if seed is None else seed, "step-order")

    def warm_up(self) -> None:
        """Warm up: the first request of a size is slow because of memory allocation and compilation."""
        for kind in self._kinds:
            self._send(self._fresh.of(kind), kind.tokens)

    def wait_until(self, until_at_s: float) -> None:
        """Wait until then without sending requests."""
        left_s = until_at_s - self.pace.now()
        if left_s > 0.0:
            self.pace.sleep(left_s)

    def block(self, ends_at_s: float) -> list[StepPoint] | None:
        """A point of every kind over the block's rounds; None if the time ran out before the block's end."""
        times: list[list[float]] = [[] for _ in self._kinds]
        for _ in range(self._plan.rounds):
            for index in self._order.permutation(self._round):
                if self.pace.now() >= ends_at_s:
                    return None
                times[index].append(self._time_ms(self._kinds[index]))
        typical = min if self._plan.least else median
        return [kind.point(float(typical(took))) for kind, took in zip(self._kinds, times, strict=True)]

    def _time_ms(self, kind: RequestKind) -> float:
        prompts = self._fresh.of(kind)
        started = self._clock()
        self._send(prompts, kind.tokens)
        return (self._clock() - started) * MS_PER_S


def _sure(points: list[StepPoint], wanted: float) -> bool:
    try:
        return widest_prediction(fit_step_time(points)) <= wanted
    except MeasurementError:
        return False


class FreshPrompts:
    """Prompts that were never sent before: random tokens of a seed from the system."""

    def __init__(self) -> None:
        self._rng = stream(secrets.randbits(62), "step-prompts")

    def of(self, kind: RequestKind) -> list[list[int]]:
        """Prompts for one request of ``kind``."""
        drawn = self._rng.integers(*_TOKENS, size=(kind.sequences, kind.context))
        return [[int(token) for token in prompt] for prompt in drawn]
