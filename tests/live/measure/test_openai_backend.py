"""The OpenAI-compatible back end against a fake server that speaks HTTP in this process."""

from __future__ import annotations

import json
from dataclasses import dataclass

import httpx
import numpy as np
import pytest

from contracts.assess.samples import SPLITS
from contracts.errors import MeasurementError
from contracts.metrics import COLUMN_NAMES
from contracts.metrics.numeric import log_normalise
from contracts.rng import stream
from live.measure.backend import TopScores
from live.measure.endpoint import Endpoint
from live.measure.kernels import slow_doses
from live.measure.measured import MeasurePlan
from live.measure.openai_backend import OpenaiBackend
from live.measure.profile import KernelMeter
from live.measure.prompts import Prompt
from live.measure.reference import ReferenceScores

VOCABULARY = 60
TABLE = log_normalise(stream(4, "bigrams").normal(size=(VOCABULARY, VOCABULARY)) * 2)


@dataclass
class FakeServer:
    """A bigram model behind the completions route. ``style`` is what it supports."""

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
        """One answer with log-probabilities in the wanted form."""
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


def measured(server: FakeServer) -> np.ndarray:
    """Healthy values float64 [prompts, repeats, columns] of the server."""
    backend = OpenaiBackend(reached(server))
    meter = KernelMeter(backend, prompts(), reference(), lambda _: None)
    plan = MeasurePlan(steps=None)
    return meter.measure(backend.kernels[0], plan).conditions[0].values


@pytest.mark.parametrize("style", ["prompt_logprobs", "echo"])
def test_a_server_without_drift_shows_none(style: str) -> None:
    """Against the very distribution it serves, every top-k divergence is zero up to rounding."""
    values = measured(FakeServer(style=style))
    assert values[:, :, COLUMN_NAMES.index("kl_mean@top_k")].max() < 1e-6
    assert values[:, :, COLUMN_NAMES.index("top1_flip@top_k")].max() == 0.0


def test_only_top_k_columns_are_filled() -> None:
    """What a top-k answer cannot tell stays NaN: no full-vocabulary number is made up."""
    values = measured(FakeServer(drift=0.3))
    for index, name in enumerate(COLUMN_NAMES):
        assert np.isnan(values[:, :, index]).all() != name.endswith("@top_k"), name


def test_top_k_divergence_is_a_lower_bound() -> None:
    """KL over the top k and one rest bucket never exceeds KL over the whole vocabulary."""
    server = FakeServer(drift=0.3)
    values = measured(server)[:, 0, COLUMN_NAMES.index("kl_mean@top_k")]
    for value, prompt in zip(values, prompts(), strict=True):
        exact = 0.0
        for previous in prompt.token_ids[:-1]:
            row = FakeServer(drift=0.3, top_k=VOCABULARY).row(previous)
            served = np.array([row[t] for t in range(VOCABULARY)])
            exact += float(np.sum(np.exp(TABLE[previous]) * (TABLE[previous] - served)))
        assert 0.0 < value <= exact / prompt.positions + 1e-9


def test_both_request_styles_give_the_same_scores() -> None:
    """``prompt_logprobs`` and ``echo`` describe one distribution, so the scores agree."""
    scores = []
    for style in ("prompt_logprobs", "echo"):
        backend = OpenaiBackend(reached(FakeServer(style=style)))
        with backend.start(backend.kernels[0]) as session:
            scores.append(list(session.score(prompts())))
    for left, right in zip(*scores, strict=True):
        assert isinstance(left, TopScores)
        assert isinstance(right, TopScores)
        assert np.array_equal(left.token_ids, right.token_ids)
        assert np.array_equal(left.log_probs, right.log_probs)


def test_a_server_that_returns_too_few_log_probabilities_is_refused() -> None:
    """Fewer than k tokens per position is an error, not a smaller k."""
    with pytest.raises(MeasurementError, match="20 wanted"):
        measured(FakeServer(top_k=5))


def test_a_broken_answer_is_refused() -> None:
    """An answer that is no JSON ends the measurement with the route in the message."""
    with pytest.raises(MeasurementError, match="/v1/completions"):
        measured(FakeServer(style="broken"))


def test_faults_cannot_be_injected_from_outside() -> None:
    """A running server takes no injection, and says so."""
    backend = OpenaiBackend(reached(FakeServer()))
    assert backend.kernels[0].name == "toy-model-v1"
    with (
        backend.start(backend.kernels[0]) as session,
        pytest.raises(MeasurementError, match="cannot be injected"),
    ):
        session.inject(slow_doses()[0])
