"""Only the server that was started may serve: foreign, silent and incomplete servers are refused."""

from __future__ import annotations

import threading
from typing import Any

import httpx
import pytest

from live.errors import LiveError
from live.fleet.admission import Credentials, admit

KNOWN = Credentials(url="http://127.0.0.1:9", served_name="selvage", nonce="selvage-1", timeout_s=0.3)
MODELS = [{"id": "selvage", "max_model_len": 2048}, {"id": "selvage-1"}]


def server(**changes: Any) -> httpx.MockTransport:
    """A vLLM server as far as admission needs it."""
    answers: dict[str, Any] = {
        "/health": {},
        "/v1/models": {"data": MODELS},
        "/v1/completions": {"choices": [{"text": "x"}], "system_fingerprint": "vllm-1"},
        "/version": {"version": "0.32.0"},
        **changes,
    }

    def handle(request: httpx.Request) -> httpx.Response:
        answer = answers[request.url.path]
        return answer if isinstance(answer, httpx.Response) else httpx.Response(200, json=answer)

    return httpx.MockTransport(handle)


def test_the_server_that_was_started_is_admitted() -> None:
    """Its own statements are kept."""
    found = admit(KNOWN, threading.Event(), server())
    assert (found.fingerprint, found.version, found.context_tokens) == ("vllm-1", "0.32.0", 2048)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"/v1/models": {"data": [MODELS[0], {"id": "selvage-2"}]}}, "another server answers"),
        ({"/v1/models": {"data": [MODELS[1]]}}, "expected a model selvage"),
        ({"/v1/models": httpx.Response(404)}, "HTTPStatusError"),
        ({"/v1/models": httpx.Response(200, text="<html>")}, "JSONDecodeError"),
        ({"/v1/models": httpx.Response(200, json=[1])}, "is this a vLLM server"),
        ({"/v1/completions": {"choices": []}}, "without a choice"),
        ({"/v1/completions": httpx.Response(500)}, "HTTPStatusError"),
        ({"/health": httpx.Response(503)}, "no answer within 0.3 s"),
    ],
)
def test_any_other_server_at_the_address_is_refused(changes: dict[str, Any], said: str) -> None:
    """A stale server, another program, or a server that cannot generate: each has its own message."""
    with pytest.raises(LiveError, match=said):
        admit(KNOWN, threading.Event(), server(**changes))


@pytest.mark.parametrize("told", [b"[" * 100_000, b'{"data": 5}', b"<html>no</html>"])
def test_garbage_is_no_admission(told: bytes) -> None:
    """Any answer is refused by a LiveError: the supervisor continues."""
    with pytest.raises(LiveError):
        admit(KNOWN, threading.Event(), server(**{"/v1/models": httpx.Response(200, content=told)}))


def test_a_dead_process_is_not_waited_for() -> None:
    """As soon as its process has ended the wait is over."""
    stop = threading.Event()
    stop.set()
    with pytest.raises(LiveError, match="ended before it answered"):
        admit(KNOWN, stop, server(**{"/health": httpx.Response(503)}))


def test_the_api_key_goes_along_and_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key from the environment is sent; an error does not repeat it."""
    monkeypatch.setenv("VLLM_API_KEY", "secret-key")
    seen: list[str] = []

    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers.get("authorization", ""))
        return httpx.Response(200 if request.url.path == "/health" else 401)

    with pytest.raises(LiveError) as refused:
        admit(KNOWN, threading.Event(), httpx.MockTransport(handle))
    assert set(seen) == {"Bearer secret-key"}
    assert "secret-key" not in str(refused.value)
