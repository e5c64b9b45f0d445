"""Admits a started process as a server: it answers, it is the process that was started, and it is warm."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from typing import Any

import httpx

from contracts.loading.untrusted import MALFORMED, json_of
from live.bounded_http import whole_answer
from live.errors import LiveError
from live.measure.endpoint import listed_models

_POLL_S = 0.05
_ANSWER_S = 5.0
_WARM_UP_S = 120.0
#: Tokens of the warm-up request; every vocabulary contains them.
_WARM_UP_PROMPT = [1, 2, 3, 4, 5, 6, 7, 8]


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """How to reach a server. nonce: a served model name that only the expected process was given."""

    url: str
    served_name: str
    nonce: str
    timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """What an admitted server reports about itself."""

    fingerprint: str
    version: str
    context_tokens: int


def authorisation() -> dict[str, str]:
    """The header that ``VLLM_API_KEY`` requires; never logged and never stored."""
    key = os.environ.get("VLLM_API_KEY", "")
    return {"Authorization": f"Bearer {key}"} if key else {}


def admit(
    known: Credentials, stop: threading.Event, transport: httpx.BaseTransport | None = None
) -> Admitted:
    """Wait for the server, check its identity, and send one warm-up request.

    Raises LiveError if there is no answer in time, ``stop`` was set because the process ended, or another
    server answers.
    """
    limits = httpx.Timeout(_ANSWER_S, read=_WARM_UP_S)
    with httpx.Client(
        base_url=known.url, timeout=limits, headers=authorisation(), transport=transport, trust_env=False
    ) as client:
        _await_health(client, known, stop)
        context_tokens = _identify(client, known)
        fingerprint = _warm_up(client, known)
        version = str(_answer(client, "GET", "/version").get("version", ""))
    return Admitted(fingerprint=fingerprint, version=version, context_tokens=context_tokens)


def _await_health(client: httpx.Client, known: Credentials, stop: threading.Event) -> None:
    deadline_at_s = time.monotonic() + known.timeout_s
    while not stop.is_set():
        try:
            if whole_answer(client, "GET", "/health", _ANSWER_S).status_code == 200:
                return
        except httpx.HTTPError:
            pass
        if time.monotonic() > deadline_at_s:
            raise LiveError(f"{known.url}: no answer within {known.timeout_s:g} s; its log says why")
        stop.wait(_POLL_S)
    raise LiveError(f"{known.url}: its process ended before it answered; its log says why")


def _identify(client: httpx.Client, known: Credentials) -> int:
    """Context length in tokens; LiveError unless the server serves the nonce that it was started with."""
    names = listed_models(_answer(client, "GET", "/v1/models"))
    if known.nonce not in names:
        raise LiveError(f"{known.url}: another server answers there; free the port or choose another")
    if known.served_name not in names:
        raise LiveError(f"{known.url}: expected a model {known.served_name}, got {', '.join(sorted(names))}")
    try:
        return int(names[known.served_name].get("max_model_len") or 0)
    except MALFORMED:
        raise LiveError(f"{known.url}: its model states no number as max_model_len") from None


def _warm_up(client: httpx.Client, known: Credentials) -> str:
    body = {
        "model": known.served_name,
        "prompt": _WARM_UP_PROMPT,
        "max_tokens": 4,
        "temperature": 0.0,
        "ignore_eos": True,
    }
    answer = _answer(client, "POST", "/v1/completions", body)
    if not answer.get("choices"):
        raise LiveError(f"{known.url}: the warm-up request was answered without a choice")
    return str(answer.get("system_fingerprint") or "")


def _answer(client: httpx.Client, method: str, path: str, body: object = None) -> dict[str, Any]:
    try:
        response = whole_answer(client, method, path, _WARM_UP_S, json=body)
        response.raise_for_status()
        answer: Any = json_of(response.content)
    except (httpx.HTTPError, *MALFORMED) as error:
        raise LiveError(f"{client.base_url}{path}: {type(error).__name__}: {str(error)[:200]}") from None
    if not isinstance(answer, dict):
        raise LiveError(f"{client.base_url}{path}: the answer is no JSON object; is this a vLLM server?")
    return answer
