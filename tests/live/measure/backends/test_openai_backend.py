"""The OpenAI-compatible back end against a fake server that speaks HTTP in this process."""

from __future__ import annotations

import httpx
import numpy as np
import pytest

from contracts.errors import DocumentError, MeasurementError
from contracts.metrics import COLUMN_NAMES
from live.measure.backend import TopScores
from live.measure.backends.openai_backend import OpenaiBackend
from live.measure.kernels import slow_doses
from live.measure.measurement import MeasurePlan
from live.measure.profile import KernelMeter
from tests.support.servers.bigram_server import TABLE, VOCABULARY, FakeServer, prompts, reached, reference


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


def test_a_server_is_tried_out_on_the_longest_prompt() -> None:
    """Fewer positions than it needs are refused by their number; a server that cannot score it is told."""

    class Short(FakeServer):
        def __call__(self, request: httpx.Request) -> httpx.Response:
            if request.url.path == "/v1/models":
                return httpx.Response(200, json={"data": [{"id": "toy", "max_model_len": 9}]})
            return super().__call__(request)

    longest = prompts()[0]
    with pytest.raises(DocumentError, match=r"http://server: .*the server's 9 positions, got 10: prompt 0"):
        OpenaiBackend(reached(Short())).try_out(longest)
    with pytest.raises(MeasurementError, match="4 log-probabilities, 20 wanted"):
        OpenaiBackend(reached(FakeServer(top_k=4, own=False))).try_out(longest)
    OpenaiBackend(reached(FakeServer())).try_out(longest)
