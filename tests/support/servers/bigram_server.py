"""A bigram model behind the completions route, in this process, with its prompts and its reference."""

from __future__ import annotations

import json
from dataclasses import dataclass

import httpx
import numpy as np

from contracts.assess.samples import SPLITS
from contracts.metrics.numeric import log_normalise
from contracts.rng import stream
from live.measure.endpoint import Endpoint
from live.measure.prompts import Prompt
from live.measure.reference import ReferenceScores

VOCABULARY = 60
TABLE = log_normalise(stream(4, "bigrams").normal(size=(VOCABULARY, VOCABULARY)) * 2)


@dataclass
class FakeServer:
    """A bigram model behind the completions route. ``style``: the supported request form."""

    style: str = "prompt_logprobs"
    drift: float = 0.0
    top_k: int = 20
    own: bool = True

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/models":
            return httpx.Response(200, json={"data": [{"id": "org/Toy-Model.v1"}]})
        if request.url.path == "/version":
            return httpx.Response(200, json={"version": "9.9"})
        body = json.loads(request.content)
        if "prompt_logprobs" in body and self.style != "prompt_logprobs":
            return httpx.Response(400, json={"error": "unknown field"})
        if self.style == "broken":
            return httpx.Response(200, content=b"not json")
        return httpx.Response(200, json={"system_fingerprint": "toy", "choices": [self.choice(body)]})

    def choice(self, body: dict[str, object]) -> dict[str, object]:
        """One answer with log-probabilities in the requested form."""
        prompt = body["prompt"]
        assert isinstance(prompt, list)
        if isinstance(prompt[0], list) or not ({"prompt_logprobs", "echo"} & body.keys()):
            return {"text": "a"}
        rows = [self.row(previous) for previous in prompt[:-1]]
        if self.own:  # real servers add the prompt's own token to the list
            rows = [row | self.own_token(*pair) for row, *pair in zip(rows, prompt, prompt[1:], strict=False)]
        if "prompt_logprobs" in body:
            named = [{str(t): {"logprob": v, "rank": 1} for t, v in row.items()} for row in rows]
            return {"text": "a", "prompt_logprobs": [None, *named]}
        tops = [{f"token_id:{t}": v for t, v in row.items()} for row in rows]
        return {"text": "a", "logprobs": {"top_logprobs": [None, *tops, {"token_id:1": -1.0}]}}

    def values(self, previous: int) -> np.ndarray:
        """Log-probabilities of every token after ``previous``."""
        noise = stream(5, "drift", previous).normal(size=VOCABULARY) * self.drift
        return np.asarray(log_normalise((TABLE[previous] + noise)[None])[0])

    def own_token(self, previous: int, token: int) -> dict[int, float]:
        """The prompt's own next token."""
        return {token: float(self.values(previous)[token])}

    def row(self, previous: int) -> dict[int, float]:
        """The top k after token ``previous``."""
        values = self.values(previous)
        return {int(t): float(values[t]) for t in np.argsort(-values)[: self.top_k]}


def prompts() -> list[Prompt]:
    """Six prompts over three splits."""
    return [
        Prompt(
            id=i,
            slice="toy",
            split=SPLITS[i % 3],
            document="",
            token_ids=tuple(int(t) for t in stream(6, "prompt", i).integers(VOCABULARY, size=9)),
            text="",
        )
        for i in range(6)
    ]


def reference() -> ReferenceScores:
    """Full log-probabilities of the undrifted bigram model."""
    rows = np.concatenate([TABLE[list(p.token_ids[:-1])] for p in prompts()]).astype(np.float32)
    starts = np.arange(7, dtype=np.int64) * 8
    return ReferenceScores(rows=rows, starts=starts, sha256="0" * 64, versions=())


def reached(server: FakeServer) -> Endpoint:
    """The fake server by its URL."""
    return Endpoint(url="http://server/v1", transport=httpx.MockTransport(server))
