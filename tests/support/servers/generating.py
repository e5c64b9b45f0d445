"""A server that generates greedily by rule, behind an in-process transport, with conditional damage.

The next token and its list follow from the previous tokens by arithmetic, so cold and hit answers are equal
without damage.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np

from contracts.compiled.contract import FleetLayout
from live.measure.prompts import Prompt
from live.probe.answers import Line
from live.probe.generation import GenerationPlan, Lengths, short_prompts
from live.probe.golden_answers import GoldenAnswers, key
from live.probe.kinds import Asking, Echo, GenerationPrompt, ProbeKind
from live.probe.prober import ProbePlan, Prober
from live.probe.schedule import ProbeBudget

VOCABULARY = 500
LOGS = [math.log(0.5), *(math.log(0.45 / 19) - 0.001 * at for at in range(19))]
GOLDEN = [
    Prompt(
        id=at,
        slice=name,
        split="probe",
        document="d",
        token_ids=(0, *(5 + (7 * at + 3 * place) % 400 for place in range(70))),
        text="",
    )
    for at, name in enumerate(("sql", "sql", "prose", "prose"))
]
LENGTHS = Lengths(block=8, context=256, answer=6, per_slice=8)


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts that a condition may use."""

    prompt_tokens: int
    hit: bool
    generated: int
    cancelled: bool
    grammar: bool
    seen_grammar: bool


@dataclass
class FakeServer:
    """Answers as a healthy server does unless ``damage`` holds: then another token is chosen.

    cuts: streams end after so many tokens without a stop reason. names: writes the request's id into answers.
    crosses: answers name another request and no prompt. renames: requests get other names. swaps: all but the
    first part of an answer is that of another probe of the same prompt. nan: log-probabilities are none.
    """

    damage: Callable[[Facts], bool] = lambda _: False
    cuts: int = 0
    names: bool = True
    crosses: bool = False
    renames: bool = False
    swaps: bool = False
    nan: bool = False
    ignores_grammar: bool = False
    seen: set[tuple[str, int]] = field(default_factory=set)
    cancelled: bool = False
    seen_grammar: bool = False
    asked: list[dict[str, Any]] = field(default_factory=list)

    def client(self) -> httpx.Client:
        """A client of this server."""
        return httpx.Client(transport=httpx.MockTransport(self.respond))

    def respond(self, request: httpx.Request) -> httpx.Response:
        """An answer to one request."""
        if request.url.path == "/metrics":
            return httpx.Response(200, text='vllm:cache_config_info{a="b",block_size="8"} 1.0\n')
        if request.url.path == "/v1/models":
            return httpx.Response(200, text='{"data": [{"id": "m", "max_model_len": 256}]}')
        body = json.loads(request.content)
        self.asked.append(body)
        if not body.get("stream"):
            return httpx.Response(200, json=self._scored(body))
        return httpx.Response(200, content=self._stream(body))

    def _stream(self, body: dict[str, Any]) -> Iterator[bytes]:
        prompt, salt = list(body["prompt"]), body.get("cache_salt", "")
        first = (salt, hash(tuple(prompt[:8])))
        pattern = body.get("structured_outputs", {}).get("regex", "")
        facts = Facts(
            prompt_tokens=len(prompt),
            hit=len(prompt) > 8 and first in self.seen,
            generated=0,
            cancelled=self.cancelled,
            grammar=bool(pattern),
            seen_grammar=self.seen_grammar,
        )
        self.seen.add(first)
        text = '{"sound": true, "size": 7}' if pattern and not self.ignores_grammar else "no"
        made = 0
        finished = False
        try:
            for made in range(body["max_tokens"]):
                if self.cuts and made == self.cuts:
                    break
                row, chosen = self._next(prompt, self.damage(_later(facts, made)))
                prompt.append(chosen)
                last = made + 1 == body["max_tokens"]
                yield _event(body, row, chosen, text if last else "", made == 0, last, self)
            finished = True
            yield b"data: [DONE]\n\n"
        finally:
            self.cancelled |= not finished
            self.seen_grammar |= bool(pattern)

    def _next(self, tokens: list[int], damaged: bool) -> tuple[dict[int, float], int]:
        start = (sum(tokens[-12:]) * 31 + len(tokens)) % VOCABULARY
        row = {(start + 11 * at) % VOCABULARY: value for at, value in enumerate(LOGS)}
        return row, list(row)[7] if damaged else start

    def _scored(self, body: dict[str, Any]) -> dict[str, Any]:
        tokens = list(body["prompt"])
        rows: list[Any] = [None]
        for at in range(1, len(tokens)):
            row, _ = self._next(tokens[:at], False)
            rows.append({str(token): {"logprob": value} for token, value in row.items()})
        return {"choices": [{"prompt_logprobs": rows}]}


def _later(facts: Facts, generated: int) -> Facts:
    return Facts(
        facts.prompt_tokens, facts.hit, generated, facts.cancelled, facts.grammar, facts.seen_grammar
    )


def _event(
    body: dict[str, Any],
    row: dict[int, float],
    chosen: int,
    text: str,
    first: bool,
    last: bool,
    server: FakeServer,
) -> bytes:
    name = "other" if server.crosses or server.renames else body["request_id"]
    name = "probe-other" if server.swaps and not first else name
    own = np.nan if server.nan else row[chosen]
    choice = {
        "text": text,
        "logprobs": {
            "tokens": [f"token_id:{chosen}"],
            "token_logprobs": [own],
            "top_logprobs": [{f"token_id:{token}": value for token, value in row.items()}],
        },
        "finish_reason": "length" if last else None,
        "prompt_token_ids": body["prompt"] if first and server.names and not server.crosses else None,
    }
    event = {"id": f"cmpl-{name}" if server.names else "", "choices": [choice]}
    return b"data: " + json.dumps(event).encode() + b"\n\n"


def golden() -> GoldenAnswers:
    """A healthy server's answers to every short prompt."""
    asking = asking_of(FakeServer(), GoldenAnswers(answers={}))
    answers = {}
    for prompt in prompts():
        found = asking.answer(prompt.question(), {})
        assert found is not None
        answers[key(prompt.question())] = found
    return GoldenAnswers(answers=answers)


def prompts() -> list[GenerationPrompt]:
    """The short prompts."""
    return short_prompts(GOLDEN, LENGTHS)


def asking_of(server: FakeServer, right: GoldenAnswers, echo: Echo | None = None) -> Asking:
    """Probing parameters for ``server``."""
    line = Line(server.client(), "http://server", "m")
    return Asking(line=line, limit_s=5.0, golden=right, echo=echo or Echo())


def plan_of(kind: ProbeKind, right: GoldenAnswers, tokens_per_s: float = 1000.0) -> GenerationPlan:
    """A plan of ``kind`` over the short prompts."""
    budget = ProbeBudget(tokens_per_s=tokens_per_s)
    return GenerationPlan(kind=kind, prompts=prompts(), golden=right, budget=budget, limit_s=5.0)


def lane_prober(*kinds: ProbeKind) -> Prober:
    """A prober of one replica ``a-0`` that only sends probes of ``kinds``, as often as allowed."""
    layout = FleetLayout(
        kernels=("a",),
        slices=("sql", "prose"),
        replicas=("a-0",),
        replica_kernel=np.zeros(1, dtype=np.int64),
        probe_metrics=("kl_mean@top_k", "pair_gap"),
        known_good=0,
    )
    nothing = GoldenAnswers(answers={})
    plans = [plan_of(kind, nothing, tokens_per_s=1e6) for kind in kinds]
    plan = ProbePlan(prompts=[], references=[], budget=ProbeBudget(tokens_per_s=1.0), generation=plans)
    return Prober(layout, plan, {"a-0": "http://127.0.0.1:9"}, "m", began_at_s=0.0)
