"""Every HTTP fault on a real vLLM server: it happens, it is proved, it is undone."""

from __future__ import annotations

import time
from typing import Any

import pytest

from faults.client.replica import Injected
from faults.client.wire import HttpAnswer, call
from tests.faults.inside.test_document import scheduled
from tests.support.servers.drilled_server import TTL_S, Server

pytestmark = [pytest.mark.needs("vllm", "torch"), pytest.mark.slow]


def _with(server: Server, kind: str, **more: Any) -> HttpAnswer:
    """One answer under an HTTP fault that is proved and undone."""
    injected = server.faults.inject(scheduled(kind, **more), TTL_S)
    answer = server.answer()
    assert happened(server, injected)
    assert server.faults.undo().clean
    return answer


def test_http_faults_strike_and_go(server: Server) -> None:
    """Errors, lost fields, another fingerprint, cut JSON and delays; then the clean answer again."""
    clean = server.answer().content
    assert _with(server, "http_errors", dose=1.0, live={"status": 429}).status == 429
    lost = _with(
        server, "trace_fields_missing", dose=1.0, live={"fields": ["usage", "finish_reason"]}
    ).content
    assert "usage" not in lost
    assert "finish_reason" not in lost["choices"][0]
    fingerprint = _with(server, "wrong_fingerprint").content["system_fingerprint"]
    assert fingerprint != clean["system_fingerprint"]
    assert _with(server, "cut_json", dose=1.0).content == {}
    started = time.monotonic()
    _with(server, "latency", dose=400.0)
    assert time.monotonic() - started >= 0.4
    again = server.answer().content
    assert again["choices"] == clean["choices"]
    assert again["system_fingerprint"] == clean["system_fingerprint"]


def happened(server: Server, injected: Injected) -> bool:
    """The server counts a strike once its answer is over, which a client may see first."""
    until_at_s = time.monotonic() + 10.0
    while not server.faults.verify(injected).happened:
        if time.monotonic() > until_at_s:
            return False
        time.sleep(0.1)
    return True


def test_a_cut_stream_has_no_end_and_metrics_can_be_lost(server: Server) -> None:
    """Three messages and no ``[DONE]``; scrapes fail while requests are answered."""
    injected = server.faults.inject(scheduled("cut_stream", dose=1.0, live={"events": 3}), TTL_S)
    cut = server.stream(20)
    assert cut.count(b"data:") == 3
    assert b"[DONE]" not in cut
    assert happened(server, injected)
    server.faults.undo()
    assert b"[DONE]" in server.stream(20)
    server.faults.inject(scheduled("telemetry_loss"), TTL_S)
    assert call(f"{server.url}/metrics", within_s=5.0).status == 503
    assert server.answer().status == 200
    server.faults.undo()
    assert call(f"{server.url}/metrics", within_s=5.0).status == 200


def test_answers_are_crossed_between_two_requests(server: Server) -> None:
    """Each of two clients gets the other's answer."""
    other = tuple(range(200, 260))
    clean = server.text(), server.text(other)
    injected = server.faults.inject(scheduled("crossed_answers"), TTL_S)
    first, second = server.pool.submit(server.text), server.pool.submit(server.text, other)
    assert (second.result(), first.result()) == clean
    assert happened(server, injected)
    assert server.faults.undo().clean
