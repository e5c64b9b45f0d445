"""Streamed answers: server-sent events as servers stream them, and several completions at once, timed.

A line ends at a line feed and nowhere else: JSON strings may hold other characters at which text is commonly
split (U+0085, U+2028, form feeds), and models do say them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import httpx

from contracts.errors import MeasurementError
from contracts.loading.untrusted import MALFORMED
from live.load import DONE

_DATA = b"data:"
#: Size limit of all events of one answer.
MOST_ANSWER_BYTES = 256_000_000
#: Size limit of one event, bytes; rows of 20 log-probabilities for a few thousand tokens fit.
MOST_BYTES = 16_000_000


def payloads(answer: httpx.Response) -> Iterator[bytes]:
    """The data of every event of ``answer``, up to the final event.

    Raises MeasurementError for an event above ``MOST_BYTES`` or an answer above ``MOST_ANSWER_BYTES``,
    httpx.HTTPError if the connection breaks.
    """
    rest, size = b"", 0
    for part in answer.iter_bytes():
        size += len(part)
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            data = line.removeprefix(_DATA).strip()
            if data == DONE:
                return
            if line.startswith(_DATA):
                yield data
        if len(rest) > MOST_BYTES:
            raise MeasurementError(f"an event of the stream has more than {MOST_BYTES} bytes")
        if size > MOST_ANSWER_BYTES:
            raise MeasurementError(f"a stream has more than {MOST_ANSWER_BYTES} bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Streamed:
    """One streamed answer as its client saw it: time to the first token, and from there to the last."""

    first_ms: float
    rest_ms: float


def stream_at_once(
    client: httpx.Client,
    model: str,
    prompts: list[list[int]],
    tokens: int,
    clock: Callable[[], float] = time.perf_counter,
) -> list[Streamed]:
    """Answers of ``tokens`` tokens to ``prompts``, one request each, sent concurrently.

    Raises MeasurementError if the server does not stream, fails, or ends an answer early.
    """

    def one(prompt: list[int]) -> Streamed:
        return _streamed(client, _body(model, prompt, tokens), tokens, clock)

    with ThreadPoolExecutor(len(prompts)) as pool:
        return list(pool.map(one, prompts))


def _body(model: str, prompt: list[int], tokens: int) -> dict[str, object]:
    """Body of a greedy request with a fixed number of tokens and a final token count."""
    return {
        "model": model,
        "prompt": prompt,
        "max_tokens": tokens,
        "min_tokens": tokens,
        "ignore_eos": True,
        "temperature": 0.0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def _streamed(
    client: httpx.Client, body: dict[str, object], tokens: int, clock: Callable[[], float]
) -> Streamed:
    began_at_s, first_at_s, last_at_s, made = clock(), 0.0, 0.0, tokens
    try:
        with client.stream("POST", "/v1/completions", json=body) as answer:
            if answer.status_code != 200:
                raise MeasurementError(f"a streamed completion: HTTP {answer.status_code}")
            for payload in payloads(answer):
                part = json.loads(payload)
                if part.get("choices"):
                    last_at_s = clock()
                    first_at_s = first_at_s or last_at_s
                made = (part.get("usage") or {}).get("completion_tokens", made)
    except (httpx.HTTPError, *MALFORMED) as error:
        raise MeasurementError(f"a streamed completion: {type(error).__name__}: {error}") from None
    if not first_at_s or made != tokens:
        message = f"{made} of {tokens} tokens" if first_at_s else "no token as a stream"
        raise MeasurementError(f"a streamed completion: the server sent {message}")
    return Streamed(first_ms=1000.0 * (first_at_s - began_at_s), rest_ms=1000.0 * (last_at_s - first_at_s))
