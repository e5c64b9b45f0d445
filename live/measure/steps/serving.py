"""What serving adds to the steps of an engine: streamed requests through the server, one and a few at once.

Of N streams at once the engine makes N tokens in a step, so the time between two tokens less the step that
the model predicts is ``step_overhead + token_overhead * N``; of one stream alone, the first token less its
own step is ``request_overhead``. The engine's own histograms (queue, prefill and decode time of requests) say
how much of that the engine knows of: the rest is the API process, the network and the client.

Times are wall times. A machine that is busy with other things adds to all of them, so the least of a block
counts, and the spread between the blocks makes the half-widths.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls
from scipy.stats import t as student_t

from contracts.documents.serving_path import ServingHalfWidths, ServingPath, ServingPoint
from contracts.documents.step_time import StepTime
from contracts.errors import MeasurementError
from contracts.units import CONFIDENCE
from live.errors import LiveError
from live.exposition import read_samples, sample_sums
from live.measure.steps.streamed_answers import Streamed
from live.measure.steps.timed_requests import FreshPrompts, RequestKind

ANSWER_TOKENS = 33
#: Prompt of all streams, and a longer one of a stream alone; short, so that prefills hardly widen gaps.
PROMPT_TOKENS, LONG_PROMPT_TOKENS = 32, 192
BLOCKS, ROUNDS = 4, 2
#: vLLM's histograms per request; sum divided by count is a mean in seconds.
_ENGINE_FIRST = ("vllm:request_queue_time_seconds", "vllm:request_prefill_time_seconds")
_ENGINE_DECODE = "vllm:request_decode_time_seconds"
_SUMS = ("sum", "count")


@runtime_checkable
class StreamingSession(Protocol):
    """A running server that streams."""

    def stream(self, prompts: list[list[int]], tokens: int) -> list[Streamed]:
        """Answers of ``tokens`` tokens to ``prompts``, each a request of its own, sent at once."""
        ...

    def exported(self) -> str:
        """The server's Prometheus text; "" if it exports none."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedStreams:
    """One kind of request in every block, [blocks]; the engine's own means are NaN if it does not export
    them.
    """

    request: RequestKind
    first_ms: NDArray[np.float64]  # [blocks]
    gap_ms: NDArray[np.float64]  # [blocks]
    mean_first_ms: float  # over everything that was sent, as the engine's histograms have it
    engine_first_ms: float
    engine_gap_ms: float


def measure_serving(session: StreamingSession, step: StepTime, streams: Sequence[int]) -> ServingPath:
    """The serving terms of ``session`` in addition to its step model, from the numbers of streams in
    ``streams``.

    Raises MeasurementError if the server does not stream, or for fewer than two numbers of streams.
    """
    if len(set(streams)) < 2 or min(streams) != 1:
        raise MeasurementError(f"one stream and a few at a time are needed, got {sorted(set(streams))}")
    asked = streams_of(streams)
    prompts = FreshPrompts()
    for request in asked:  # the first request of a size is slow
        session.stream(prompts.of(request), request.tokens)
    return fit_serving([_timed(session, request, prompts) for request in asked], step)


def streams_of(streams: Sequence[int]) -> tuple[RequestKind, ...]:
    """Kinds of requests: one stream with a longer prompt, then the numbers of concurrent streams."""
    kinds = [(1, LONG_PROMPT_TOKENS), *((many, PROMPT_TOKENS) for many in sorted(set(streams)))]
    return tuple(RequestKind(sequences=n, context=prompt, tokens=ANSWER_TOKENS) for n, prompt in kinds)


def stream_load(streams: Sequence[int]) -> tuple[int, int]:
    """Most requests and tokens that the measurement sends."""
    times, asked = 1 + BLOCKS * ROUNDS, streams_of(streams) if streams else ()
    tokens = sum(kind.sequences * (kind.context + kind.tokens) for kind in asked)
    return times * sum(kind.sequences for kind in asked), times * tokens


def fit_serving(timed: Sequence[TimedStreams], step: StepTime) -> ServingPath:
    """Non-negative terms that explain ``timed`` in addition to ``step``."""
    blocks = np.array([_terms(timed, step, at) for at in range(len(timed[0].first_ms))])
    request_ms, step_ms, token_ms = (float(value) for value in np.median(blocks, axis=0))
    widths = _half_widths(blocks)
    return ServingPath(
        request_overhead_ms=request_ms,
        step_overhead_ms=step_ms,
        token_overhead_ms=token_ms,
        half_widths=ServingHalfWidths(
            request_overhead_ms=widths[0], step_overhead_ms=widths[1], token_overhead_ms=widths[2]
        ),
        outside_engine_ratio=_outside_ratio(timed, request_ms),
        points=tuple(_point(one) for one in timed),
    )


def engine_sums(text: str) -> Mapping[str, float]:
    """Sample name -> value in a Prometheus text, summed over engines; empty if it is not valid."""
    try:
        return sample_sums(read_samples(text))
    except LiveError:
        return {}


def _timed(session: StreamingSession, request: RequestKind, prompts: FreshPrompts) -> TimedStreams:
    """Times of ``request`` in every block, and the engine's own means over the same requests."""
    before = engine_sums(session.exported())
    blocks = [
        [session.stream(prompts.of(request), request.tokens) for _ in range(ROUNDS)] for _ in range(BLOCKS)
    ]
    after = engine_sums(session.exported())
    between = request.tokens - 1
    return TimedStreams(
        request=request,
        first_ms=np.array([min(_median(a, "first_ms") for a in rounds) for rounds in blocks]),
        gap_ms=np.array([min(_median(a, "rest_ms") for a in rounds) / between for rounds in blocks]),
        mean_first_ms=float(np.mean([one.first_ms for rounds in blocks for a in rounds for one in a])),
        engine_first_ms=sum(_mean_ms(before, after, name) for name in _ENGINE_FIRST),
        engine_gap_ms=_mean_ms(before, after, _ENGINE_DECODE) / between,
    )


def _median(answers: Sequence[Streamed], name: str) -> float:
    return float(np.median([getattr(answer, name) for answer in answers]))


def _mean_ms(before: Mapping[str, float], after: Mapping[str, float], name: str) -> float:
    """A histogram's mean between two readings; NaN if it is not exported or has no new entries."""
    took, count = (after.get(f"{name}_{part}", np.nan) - before.get(f"{name}_{part}", 0.0) for part in _SUMS)
    return 1000.0 * took / count if count > 0.0 else math.nan


def _terms(timed: Sequence[TimedStreams], step: StepTime, block: int) -> list[float]:
    """Request, step and token overhead of one block, ms."""
    gaps = np.array([one.gap_ms[block] - _step_ms(step, one.request) for one in timed])
    features = np.array([[1.0, float(one.request.sequences)] for one in timed])
    (step_ms, token_ms), _ = nnls(features, np.maximum(gaps, 0.0))
    alone = [one for one in timed if one.request.sequences == 1]
    late = [one.first_ms[block] - _first_ms(step, one.request) - step_ms for one in alone]
    return [max(0.0, float(np.mean(late))), float(step_ms), float(token_ms)]


def _step_ms(step: StepTime, request: RequestKind) -> float:
    """Mean time of the steps that decode ``request``, by the model."""
    context = request.context + 0.5 * request.tokens
    each = step.per_decode_sequence_ms + step.per_context_token_ms * context
    return step.base_ms + request.sequences * each


def _first_ms(step: StepTime, request: RequestKind) -> float:
    return step.base_ms + step.per_prefill_token_ms * request.sequences * request.context


def _half_widths(blocks: NDArray[np.float64]) -> list[float]:
    """95 % half-widths of the terms, from their spread over the blocks [blocks, 3]."""
    count = len(blocks)
    quantile = float(student_t.ppf(0.5 + CONFIDENCE / 2.0, count - 1))
    return [float(width) for width in quantile * blocks.std(axis=0, ddof=1) / math.sqrt(count)]


def _outside_ratio(timed: Sequence[TimedStreams], request_ms: float) -> float | None:
    """Share of the request overhead that the engine's histograms do not include; None: unknown."""
    alone = [one for one in timed if one.request.sequences == 1 and math.isfinite(one.engine_first_ms)]
    if not alone or request_ms <= 0.0:
        return None
    outside = float(np.mean([one.mean_first_ms - one.engine_first_ms for one in alone]))
    return min(1.0, max(0.0, outside / request_ms))


def _point(one: TimedStreams) -> ServingPoint:
    return ServingPoint(
        concurrent=one.request.sequences,
        prompt_tokens=one.request.context,
        answer_tokens=one.request.tokens,
        first_ms=float(np.median(one.first_ms)),
        inter_token_ms=float(np.median(one.gap_ms)),
        engine_first_ms=_known(one.engine_first_ms),
        engine_inter_token_ms=_known(one.engine_gap_ms),
    )


def _known(value: float) -> float | None:
    return max(0.0, value) if math.isfinite(value) else None
