"""One greedy answer of a server, read as a stream up to its stop reason, within a time limit.

The request carries a nonce as its id, and its tokens are returned as ids: an answer that names another
request or prompt belongs to another client.
"""

from __future__ import annotations

import json
import math
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from contracts.errors import MeasurementError
from contracts.loading.untrusted import MALFORMED, json_of
from live.bounded_http import time_limit, whole_answer
from live.load import SLICE_HEADER
from live.measure.backends.openai_backend import ROUNDING, TOKEN_PREFIX, TOP_K
from live.measure.steps.streamed_answers import payloads
from live.probe.statuses import refuse_status

#: Prefix of the probes' request ids.
NONCE = "probe-"


class YieldedError(Exception):
    """The probe yielded to other requests, or was aborted by the prober: no evidence."""


class Line:
    """A connection to the model of one server. client: with keys and certificates; slice_name: sent in the
    slice header ("": no header is sent).
    """

    def __init__(self, client: httpx.Client, url: str, model: str, slice_name: str = "") -> None:
        self.client, self.url, self.model = client, url, model
        self.headers = {SLICE_HEADER: slice_name} if slice_name else {}

    def post(self, body: Mapping[str, Any], limit_s: float) -> dict[str, Any]:
        """The JSON object answered to ``body``; MeasurementError for anything else, or httpx's own errors."""
        answer = whole_answer(
            self.client,
            "POST",
            f"{self.url}/v1/completions",
            limit_s,
            json={"model": self.model, **body},
            headers=self.headers,
        )
        refuse_status(answer)
        try:
            found = json_of(answer.content)
        except (ValueError, RecursionError):
            raise MeasurementError("the answer is no JSON") from None
        if not isinstance(found, dict):
            raise MeasurementError("the answer is no JSON object")
        return found

    @contextmanager
    def stream(self, question: Question, nonce: str, limit_s: float) -> Iterator[httpx.Response]:
        """The streamed answer to ``question``, for at most ``limit_s``."""
        body = {"model": self.model, **question.body(nonce)}
        where = f"{self.url}/v1/completions"
        with (
            time_limit(limit_s, self.client),
            self.client.stream("POST", where, json=body, headers=self.headers, timeout=limit_s) as answer,
        ):
            yield answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One request. salt: names a separate prefix cache (vLLM: ``cache_salt``), "" for the shared one.

    pattern: a regular expression that the answer must match ("": none).
    """

    token_ids: tuple[int, ...]
    max_tokens: int
    salt: str = ""
    pattern: str = field(default="", repr=False)

    def body(self, nonce: str) -> dict[str, Any]:
        """The request's body without the model."""
        more: dict[str, Any] = {"cache_salt": self.salt} if self.salt else {}
        if self.pattern:
            more |= {"structured_outputs": {"regex": self.pattern}}
        return {
            "prompt": list(self.token_ids),
            "max_tokens": self.max_tokens,
            "temperature": 0.0,
            "top_p": 1.0,
            "logprobs": TOP_K,
            "return_tokens_as_token_ids": True,
            "return_token_ids": True,
            "stream": True,
            "request_id": nonce,
            **more,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class GreedyAnswer:
    """A received answer. rows: each position's most probable tokens and the chosen one, natural logarithms.

    stop_reason "": the stream ended without one. sound: all log-probabilities are valid. named: the request
    id in the answer. prompt_kept: whether the answered prompt is the one that was sent (None: not stated).
    """

    token_ids: tuple[int, ...]
    rows: tuple[Mapping[int, float], ...]
    stop_reason: str
    sound: bool
    named: str
    prompt_kept: bool | None
    text: str = field(default="", repr=False)

    @property
    def broken(self) -> bool:
        """It ended without a stop reason, or contains invalid log-probabilities."""
        return not self.stop_reason or not self.sound


def fresh_nonce() -> str:
    """A request id that no other request has, in any run."""
    return f"{NONCE}{secrets.token_hex(8)}"


def ask(
    line: Line,
    question: Question,
    nonce: str,
    limit_s: float,
    gives_way: Callable[[], bool] = lambda: False,
) -> GreedyAnswer:
    """The greedy answer to ``question``, its whole stream.

    Raises httpx.TimeoutException if the server is silent for ``limit_s`` or the stream lasts longer. Other
    connection errors are httpx's; an error status or a malformed answer is a MeasurementError. YieldedError
    if ``gives_way`` returns True between two tokens.
    """
    until_at_s = time.monotonic() + limit_s
    gathered = _Gathered(question)
    with line.stream(question, nonce, limit_s) as answer:
        refuse_status(answer)
        try:
            for event in _events(answer):
                if time.monotonic() > until_at_s:
                    raise httpx.ReadTimeout(f"the stream lasted longer than {limit_s:g} s")
                if gives_way():
                    raise YieldedError
                gathered.take(event)
        except httpx.RemoteProtocolError:  # the connection was cut: an answer without a stop reason
            if not gathered.began:
                raise
    return gathered.answer()


def begin_and_leave(line: Line, question: Question, events: int, limit_s: float) -> None:
    """Send a request, read this many events and disconnect: a request that its client cancels."""
    with line.stream(question, fresh_nonce(), limit_s) as answer:
        for count, _ in enumerate(_events(answer), start=1):
            if count >= events:
                return


def _events(answer: httpx.Response) -> Iterator[dict[str, Any]]:
    """The JSON objects of a stream of server-sent events."""
    for payload in payloads(answer):
        try:
            event = json.loads(payload)
        except (ValueError, RecursionError):
            raise MeasurementError("an event of the stream is no JSON") from None
        if isinstance(event, dict):
            yield event


class _Gathered:
    """Collects an answer from its events."""

    def __init__(self, question: Question) -> None:
        self._asked = question.token_ids
        self._tokens: list[int] = []
        self._rows: list[dict[int, float]] = []
        self._text: list[str] = []
        self._stop, self._named, self._first_named = "", "", ""
        self._sound = True
        self._prompt_kept: bool | None = None

    def take(self, event: Mapping[str, Any]) -> None:
        """Process one event; MeasurementError if it does not belong to such an answer."""
        try:
            self._note_name(str(event.get("id") or ""))
            for choice in event.get("choices") or ():
                self._take(choice)
        except MALFORMED:
            raise MeasurementError("the answer holds no tokens with log-probabilities") from None

    def _note_name(self, name: str) -> None:
        """Keep the request id; if parts of the answer differ in it, the one that is not the first part's."""
        if name and (not self._named or name != self._first_named):
            self._first_named = self._first_named or name
            self._named = name

    def _take(self, choice: Mapping[str, Any]) -> None:
        prompt = choice.get("prompt_token_ids")
        if prompt is not None:
            self._prompt_kept = self._prompt_kept is not False and tuple(prompt) == self._asked
        self._text.append(str(choice.get("text") or ""))
        self._stop = str(choice.get("finish_reason") or self._stop)
        logprobs = choice.get("logprobs") or {}
        tokens = [_number(name) for name in logprobs.get("tokens") or ()]
        rows = logprobs.get("top_logprobs") or ()
        values = logprobs.get("token_logprobs") or ()
        for token, row, value in zip(tokens, rows, values, strict=True):
            self._add(token, {**(row or {}), f"{TOKEN_PREFIX}{token}": value})

    def _add(self, token: int, row: Mapping[str, Any]) -> None:
        numbers = {_number(name): _log_probability(value) for name, value in row.items()}
        self._sound &= not any(math.isnan(value) for value in numbers.values())
        self._tokens.append(token)
        self._rows.append(numbers)

    @property
    def began(self) -> bool:
        """Whether a token has been received."""
        return bool(self._tokens)

    def answer(self) -> GreedyAnswer:
        """The answer received so far."""
        return GreedyAnswer(
            token_ids=tuple(self._tokens),
            rows=tuple(self._rows),
            stop_reason=self._stop,
            sound=self._sound,
            named=self._named,
            prompt_kept=self._prompt_kept,
            text="".join(self._text),
        )


def _number(name: str) -> int:
    if not name.startswith(TOKEN_PREFIX):
        raise MeasurementError("the server names tokens by text; it must support return_tokens_as_token_ids")
    return int(name.removeprefix(TOKEN_PREFIX))


def _log_probability(value: Any) -> float:
    """The value as a float; NaN if it is no log-probability."""
    fits = isinstance(value, int | float) and math.isfinite(value) and value <= ROUNDING
    return float(value) if fits else math.nan
