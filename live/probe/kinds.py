"""Kinds of generation probes: the requests that each sends, and what its answers measure.

Every kind uses the same path as users: sampling, streaming, and the prefix cache where its docstring says so.
A unique ``cache_salt`` guarantees that a request misses the prefix cache, and that the next one with the same
salt hits it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from contracts.errors import MeasurementError
from contracts.metrics.generation import GENERATION_COLUMNS, answer_broken, grammar_invalid, nonce_crossed
from live.measure.backends.openai_backend import TOP_K
from live.probe.answers import (
    NONCE,
    GreedyAnswer,
    Line,
    Question,
    YieldedError,
    ask,
    begin_and_leave,
    fresh_nonce,
)
from live.probe.compare import difference, largest_greedy_gap, worst_stretch_kl
from live.probe.golden_answers import GoldenAnswers
from live.probe.prefill import prompt_positions
from live.probe.schedule import Lane

#: JSON of a fixed form and bounded length, so that an answer within the grammar ends.
JSON_PATTERN = r'\{"sound": (true|false), "size": [0-9]{1,3}\}'
_JSON_TOKENS = 40
_CANCELLED_EVENTS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationPrompt:
    """The prompt of a probe. number: its id in the telemetry record."""

    number: int
    slice: str
    token_ids: tuple[int, ...]
    max_tokens: int

    def question(self, salt: str = "") -> Question:
        """The prompt as a question."""
        return Question(token_ids=self.token_ids, max_tokens=self.max_tokens, salt=salt)


@dataclass(slots=True)
class Echo:
    """Whether a server has ever returned a request id that it was given; for a server that never has, unknown
    ids are no evidence against it.
    """

    seen: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """How a probe sends its requests. limit_s: of each request; gives_way: whether to yield to others."""

    line: Line
    limit_s: float
    golden: GoldenAnswers
    echo: Echo
    gives_way: Callable[[], bool] = lambda: False

    def answer(self, question: Question, judged: dict[str, float]) -> GreedyAnswer | None:
        """The answer; None if it cannot be compared. What its form shows is stored in ``judged``."""
        nonce = fresh_nonce()
        found = ask(self.line, question, nonce, self.limit_s, self.gives_way)
        self.echo.seen |= nonce in found.named
        crossed = _crossed(found, nonce, self.echo)
        keep_worst(judged, "nonce_crossed", crossed)
        if crossed > 0.0:
            return None
        if found.stop_reason and not found.token_ids:
            raise MeasurementError("the answer holds no tokens with log-probabilities")
        keep_worst(judged, "answer_broken", answer_broken(found.stop_reason, found.sound))
        return None if found.broken else found


class ProbeKind(Protocol):
    """One kind of probe."""

    @property
    def name(self) -> str:
        """Name in options, metrics and reports."""

    @property
    def lane(self) -> Lane:
        """Short or long."""

    def cost_tokens(self, prompt: GenerationPrompt) -> int:
        """Largest cost of a probe, tokens of prompts and answers."""

    def probe(self, prompt: GenerationPrompt, asking: Asking) -> dict[str, float]:
        """Values by column of ``contracts.metrics.generation``; raises as ``live.probe.answers.ask``."""


@dataclass(frozen=True, slots=True)
class PairKind:
    """(b) One prompt three times: cold, from its own cache entry, and from the cache that all
    requests share.
    """

    name: str = "pair"
    lane: Lane = Lane.SHORT

    def cost_tokens(self, prompt: GenerationPrompt) -> int:
        """Three prompts and answers."""
        return 3 * _once(prompt)

    def probe(self, prompt: GenerationPrompt, asking: Asking) -> dict[str, float]:
        """Compare all three with the reference, and the last two with the first."""
        judged: dict[str, float] = {}
        salt = fresh_nonce()
        thrice = prompt.question(salt), prompt.question(salt), prompt.question()
        answers = [asking.answer(question, judged) for question in thrice]
        golden = asking.golden.of(prompt.question())
        for answer in answers:
            _against_golden(judged, golden, answer)
        for answer in answers[1:]:
            _of_a_pair(judged, answers[0], answer)
        return judged


@dataclass(frozen=True, slots=True)
class CancelKind:
    """(d) A request that its client cancels, then the same prompt to the end, under the present load."""

    name: str = "cancel"
    lane: Lane = Lane.SHORT

    def cost_tokens(self, prompt: GenerationPrompt) -> int:
        """The prompt twice, the answer, and the beginning of the cancelled answer."""
        return 2 * _once(prompt)

    def probe(self, prompt: GenerationPrompt, asking: Asking) -> dict[str, float]:
        """Compare the second answer with the reference."""
        judged: dict[str, float] = {}
        begin_and_leave(asking.line, prompt.question(fresh_nonce()), _CANCELLED_EVENTS, asking.limit_s)
        answer = asking.answer(prompt.question(fresh_nonce()), judged)
        _against_golden(judged, asking.golden.of(prompt.question()), answer)
        return judged


@dataclass(frozen=True, slots=True)
class TurnsKind:
    """(e) Two turns with a shared prefix: the second reads the blocks of the first prompt and answer."""

    name: str = "turns"
    lane: Lane = Lane.SHORT

    def cost_tokens(self, prompt: GenerationPrompt) -> int:
        """Three answers; the second turn's prompt contains the first prompt twice and the first answer."""
        return 3 * prompt.max_tokens + 5 * len(prompt.token_ids) + 2 * prompt.max_tokens

    def probe(self, prompt: GenerationPrompt, asking: Asking) -> dict[str, float]:
        """Compare the first turn with the reference, and the second with the same turn computed cold."""
        judged: dict[str, float] = {}
        salt = fresh_nonce()
        first = asking.answer(prompt.question(salt), judged)
        _against_golden(judged, asking.golden.of(prompt.question()), first)
        if first is None:
            return judged
        follow = (*prompt.token_ids, *first.token_ids, *prompt.token_ids[1:])
        hit, cold = (
            asking.answer(Question(token_ids=follow, max_tokens=prompt.max_tokens, salt=own), judged)
            for own in (salt, fresh_nonce())
        )
        _of_a_pair(judged, cold, hit)
        return judged


@dataclass(frozen=True, slots=True)
class LongKind:
    """(c) A long decode, judged token by token against the same tokens scored as a prompt.

    The comparison needs no reference, so it stays valid after a near tie has changed a token.
    """

    name: str = "long"
    lane: Lane = Lane.LONG

    def cost_tokens(self, prompt: GenerationPrompt) -> int:
        """The answer, and everything once more as a prompt."""
        return 2 * _once(prompt)

    def probe(self, prompt: GenerationPrompt, asking: Asking) -> dict[str, float]:
        """Compare the decoded log-probabilities with those of the prompt."""
        judged: dict[str, float] = {}
        answer = asking.answer(prompt.question(fresh_nonce()), judged)
        if answer is None:
            return judged
        keep_worst(judged, "greedy_gap", largest_greedy_gap(answer))
        if asking.gives_way():
            raise YieldedError
        whole = [*prompt.token_ids, *answer.token_ids]
        body: dict[str, Any] = {"prompt": whole[:-1], "max_tokens": 1, "temperature": 0.0}
        scored = asking.line.post(body | {"prompt_logprobs": TOP_K}, asking.limit_s)
        rows = prompt_positions(scored, len(whole) - 2)[len(prompt.token_ids) - 1 :]
        keep_worst(judged, "decode_kl@top_k", worst_stretch_kl(rows, answer.rows[: len(rows)]))
        return judged


@dataclass(frozen=True, slots=True)
class GrammarKind:
    """(f) An answer that must match a grammar."""

    name: str = "grammar"
    lane: Lane = Lane.SHORT

    def cost_tokens(self, prompt: GenerationPrompt) -> int:
        """One prompt, one answer."""
        return len(prompt.token_ids) + _JSON_TOKENS

    def probe(self, prompt: GenerationPrompt, asking: Asking) -> dict[str, float]:
        """Check whether the answer matches."""
        judged: dict[str, float] = {}
        question = Question(
            token_ids=prompt.token_ids, max_tokens=_JSON_TOKENS, salt=fresh_nonce(), pattern=JSON_PATTERN
        )
        answer = asking.answer(question, judged)
        if answer is not None:
            matches = re.fullmatch(JSON_PATTERN, answer.text) is not None
            keep_worst(judged, "grammar_invalid", grammar_invalid(matches))
        return judged


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeOffer:
    """A kind of probe. own: columns that only this kind measures; empty: any column without such a kind asks
    for it. share: its share of the tokens for generation probes.
    """

    kind: ProbeKind
    own: frozenset[str] = frozenset()
    share: float


OFFERS: tuple[ProbeOffer, ...] = (
    ProbeOffer(kind=PairKind(), share=0.5),
    ProbeOffer(kind=TurnsKind(), share=0.15),
    ProbeOffer(kind=CancelKind(), share=0.15),
    ProbeOffer(kind=LongKind(), own=frozenset({"decode_kl@top_k"}), share=0.15),
    ProbeOffer(kind=GrammarKind(), own=frozenset({"grammar_invalid"}), share=0.05),
)


def offers_for(columns: Sequence[str]) -> list[ProbeOffer]:
    """The offers that measure ``columns``; empty if they include no generation columns."""
    asked = set(columns) & set(GENERATION_COLUMNS)
    others = asked - frozenset().union(*(offer.own for offer in OFFERS))
    return [offer for offer in OFFERS if offer.own & asked or (not offer.own and others)]


def keep_worst(judged: dict[str, float], column: str, value: float) -> None:
    """Keep the worst value of a column within one probe; NaN is unknown and changes nothing."""
    if not math.isnan(value):
        judged[column] = max(value, judged.get(column, value))


def _crossed(found: GreedyAnswer, nonce: str, echo: Echo) -> float:
    """1 if the answer is to another prompt or another probe's id, or to another id with no prompt stated; NaN
    if the server states neither. Proxies may rename requests, so a stated prompt decides, but not for ids of
    probes, because one prompt is sent more than once.
    """
    if NONCE in found.named and nonce not in found.named:
        return 1.0
    if found.prompt_kept is not None:
        return float(not found.prompt_kept)
    if NONCE in found.named or (echo.seen and found.named):
        return nonce_crossed(nonce, found.named)
    return math.nan


def _against_golden(judged: dict[str, float], golden: GreedyAnswer, answer: GreedyAnswer | None) -> None:
    if answer is None:
        return
    found = difference(golden, answer)
    keep_worst(judged, "generation_kl@top_k", found.kl)
    keep_worst(judged, "generation_gap", found.gap)
    keep_worst(judged, "greedy_gap", largest_greedy_gap(answer))


def _of_a_pair(judged: dict[str, float], cold: GreedyAnswer | None, hit: GreedyAnswer | None) -> None:
    if cold is not None and hit is not None:
        found = difference(cold, hit)
        keep_worst(judged, "pair_kl@top_k", found.kl)
        keep_worst(judged, "pair_gap", found.gap)


def _once(prompt: GenerationPrompt) -> int:
    return len(prompt.token_ids) + prompt.max_tokens
