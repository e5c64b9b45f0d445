"""Serving-path terms: known ones are found behind a fake server that streams."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import cast

import httpx
import pytest

from contracts.documents.step_time import StepTime
from contracts.errors import MeasurementError
from live.measure.backend import Session, StepPlan
from live.measure.steps.serving import BLOCKS, ROUNDS, engine_sums, measure_serving, stream_load
from live.measure.steps.streamed_answers import Streamed, stream_at_once
from live.measure.steps.times import measure_served

STEP = StepTime(
    base_ms=4.0,
    per_prefill_token_ms=0.05,
    per_decode_sequence_ms=0.6,
    per_context_token_ms=0.001,
    relative_error=0.0,
    measured_points=8,
)
#: Added per request, step and token, ms; the engine sees a quarter of the first.
ADDED = (12.0, 1.5, 0.4)


@dataclass
class StreamingFake:
    """Streams by the step model plus ``ADDED``, slower now and then, and counts as vLLM does."""

    slow: float = 0.0
    metrics: bool = True
    calls: int = 0
    sums: dict[str, float] = field(default_factory=lambda: dict.fromkeys(("queue", "prefill", "decode"), 0.0))
    finished: int = 0

    def stream(self, prompts: list[list[int]], tokens: int) -> list[Streamed]:
        """Stream equal answers."""
        request_ms, step_ms, token_ms = ADDED
        self.calls += 1
        late = self.slow * (self.calls % 3)
        many, prompt = len(prompts), len(prompts[0])
        first = STEP.base_ms + step_ms + STEP.per_prefill_token_ms * many * prompt
        context = prompt + 0.5 * tokens
        each = STEP.base_ms + step_ms
        each += many * (STEP.per_decode_sequence_ms + token_ms + STEP.per_context_token_ms * context)
        rest = (tokens - 1) * each
        for name, value in zip(self.sums, (0.25 * request_ms, first, rest), strict=True):
            self.sums[name] += many * value / 1000.0
        self.finished += many
        return [Streamed(first_ms=first + request_ms + late, rest_ms=rest * (1.0 + 0.01 * late))] * many

    def exported(self) -> str:
        """The three histograms that are read."""
        if not self.metrics:
            return ""
        lines = []
        for name, value in self.sums.items():
            full = f"vllm:request_{name}_time_seconds"
            lines += [f"# TYPE {full} histogram", f'{full}_bucket{{le="+Inf"}} {self.finished}']
            lines += [f"{full}_sum {value}", f"{full}_count {self.finished}"]
        return "\n".join([*lines, ""])


def test_known_terms_are_found() -> None:
    """Terms that a calm server adds are found, with no width, and the engine's share of the delay."""
    found = measure_serving(StreamingFake(), STEP, (1, 2, 4))
    terms = found.request_overhead_ms, found.step_overhead_ms, found.token_overhead_ms
    assert terms == pytest.approx(ADDED, rel=1e-6)
    assert found.half_widths is not None
    assert found.half_widths.request_overhead_ms == pytest.approx(0.0, abs=1e-6)
    # The engine's own first token has a quarter of the request's delay; the step's wait it has whole.
    assert found.outside_engine_ratio == pytest.approx(0.75, rel=1e-6)
    assert [point.concurrent for point in found.points] == [1, 1, 2, 4]
    assert found.points[-1].engine_inter_token_ms == pytest.approx(found.points[-1].inter_token_ms)


def test_a_slower_round_widens_and_hardly_moves() -> None:
    """If every third request is slowed, the fastest rounds count and the terms stay close."""
    found = measure_serving(StreamingFake(slow=2.0), STEP, (1, 2, 4))
    assert found.step_overhead_ms == pytest.approx(ADDED[1], abs=0.5)
    assert found.half_widths is not None
    assert found.half_widths.request_overhead_ms > 0.0


def test_a_server_without_metrics_keeps_its_terms() -> None:
    """Without histograms the terms are the same, and the engine's share is unknown."""
    found = measure_serving(StreamingFake(metrics=False), STEP, (1, 2, 4))
    assert found.request_overhead_ms == pytest.approx(ADDED[0], rel=1e-6)
    assert found.outside_engine_ratio is None
    assert found.points[0].engine_first_ms is None


def test_no_more_requests_are_sent_than_planned() -> None:
    """One to warm up, and the planned rounds and blocks of each kind."""
    server = StreamingFake()
    measure_serving(server, STEP, (1, 2))
    assert server.calls == 3 * (1 + BLOCKS * ROUNDS)
    assert stream_load((1, 2))[0] == 4 * (1 + BLOCKS * ROUNDS)
    assert stream_load(()) == (0, 0)


def test_one_number_of_streams_is_refused() -> None:
    """Step and token cannot be distinguished by one stream alone."""
    with pytest.raises(MeasurementError, match="a few at a time"):
        measure_serving(StreamingFake(), STEP, (1,))


def test_what_is_no_prometheus_text_says_nothing() -> None:
    """A page without Prometheus text gives no counters, and no error."""
    assert engine_sums("<html>{") == {}


def _client(content: bytes, status: int = 200) -> httpx.Client:
    def answer(request: httpx.Request) -> httpx.Response:
        assert json.loads(request.content)["stream"] is True
        return httpx.Response(status, content=content)

    return httpx.Client(base_url="http://toy", transport=httpx.MockTransport(answer))


def test_streams_are_timed_to_first_and_last_token() -> None:
    """Two prompts are two answers, the clock is read at every token, and the usage line is not counted."""
    chunk = b'data: {"choices": [{"text": "a"}]}\n\n'
    whole = 2 * chunk + b'data: {"choices": [], "usage": {"completion_tokens": 2}}\n\ndata: [DONE]\n\n'
    ticks = iter([0.0, 1.0, 3.0])
    with _client(whole) as client:
        (found,) = stream_at_once(client, "m", [[1]], 2, clock=lambda: next(ticks))
        assert (found.first_ms, found.rest_ms) == (1000.0, 2000.0)
        assert len(stream_at_once(client, "m", [[1], [2]], 2)) == 2


@pytest.mark.parametrize(
    ("content", "status", "told"),
    [
        (b'{"choices": [{"text": "a"}]}', 200, "no token as a stream"),
        (b"", 500, "HTTP 500"),
        (b"data: {broken\n\n", 200, "JSONDecodeError"),
        (b'data: {"choices": [{}], "usage": {"completion_tokens": 1}}\n\n', 200, "1 of 2 tokens"),
        (b"data: [1]\n\n", 200, "AttributeError"),
    ],
)
def test_what_is_no_stream_is_refused(content: bytes, status: int, told: str) -> None:
    """The error for another answer names what the server did."""
    with _client(content, status) as client, pytest.raises(MeasurementError, match=told):
        stream_at_once(client, "m", [[1]], 2)


def test_a_session_that_cannot_stream_has_no_terms() -> None:
    """Sessions without streams, and plans without this part, give no terms; a failure is a note."""

    class Failing(StreamingFake):
        def stream(self, prompts: list[list[int]], tokens: int) -> list[Streamed]:
            raise MeasurementError(f"no {tokens} tokens to {len(prompts)} prompts")

    asks = StepPlan(streams=(1, 2))
    assert measure_served(cast(Session, object()), asks, STEP) == (None, [])
    serving, notes = measure_served(cast(Session, Failing()), asks, STEP)
    assert serving is None
    assert "was not measured" in notes[0]
