"""Servers that answer 200 with garbage: each is reported, and healthy ones are read as before."""

from __future__ import annotations

import threading
import tracemalloc
from dataclasses import dataclass, field

import httpx
import numpy as np
import pytest

from contracts.errors import SelvageError
from contracts.telemetry import ProbeOutcome
from live.measure.backend import TopScores
from live.measure.endpoint import Endpoint
from live.measure.prompts import Prompt
from live.observe.scraper import Scraper
from live.probe.prefill import probe
from live.run.urls import Address, UrlDiscovery
from tests.support.servers.listening import Answering, Listening, listening

LIMIT_S = 10.0
SOUND = b"\r\nvllm:num_requests_running 3\n"
#: A page, endless nesting, undecodable texts, unpackable content, a megabyte of headers.
GARBAGE = {
    "page": b"Content-Type: text/html\r\n\r\n<html>busy {</html>",
    "nested": b"\r\n" + b"[" * 100_000,
    "no text": b"Content-Type: text/plain; charset=hex\r\n\r\n}{",
    "no encoding": b"Content-Type: text/plain; charset=undefined\r\n\r\n}{",
    "not packed": b"Content-Encoding: gzip\r\n\r\nplain",
    "headers": b"".join(b"X-%d: %s\r\n" % (at, b"x" * 1000) for at in range(1000)) + b"\r\n",
}
PROMPT = Prompt(id=1, slice="code", split="probe", document="d", token_ids=(1, 2, 3), text="")
REFERENCE = TopScores(
    token_ids=np.zeros((2, 20), dtype=np.int64), log_probs=np.zeros((2, 20)), golden=np.zeros(2)
)


@dataclass
class Told:
    """The response after the status line."""

    rest: bytes
    url: str = ""
    ended: threading.Event = field(default_factory=threading.Event)


class _Handler(Answering):
    server: Listening[Told]

    def do_GET(self) -> None:
        """200, and the response."""
        self.close_connection = True
        self.rfile.read(int(self.headers.get("content-length") or 0))
        self.wfile.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n" + self.server.known.rest)

    do_POST = do_GET


def test_more_values_than_any_answer_has_are_not_unpacked() -> None:
    """Fifteen megabytes of empty lists, within what is read, would take a third of a gigabyte."""
    crowded = b"\r\n[" + b"[]," * 5_000_000 + b"[]]"
    with listening(Told(crowded), _Handler) as bad, httpx.Client() as client:
        tracemalloc.start()
        asked = probe(client, bad.url, "m", PROMPT, REFERENCE, LIMIT_S)
        _, most_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert asked.outcome in (ProbeOutcome.UNREADABLE, ProbeOutcome.FAILED)
    assert most_bytes < 8 * len(crowded)


@pytest.mark.parametrize("how", GARBAGE)
def test_garbage_of_one_server_hides_no_other(how: str) -> None:
    """Its scrape is unknown while the other's is read; discovery, probes and the reference report it."""
    with (
        listening(Told(GARBAGE[how]), _Handler) as bad,
        listening(Told(SOUND), _Handler) as good,
        httpx.Client() as client,
    ):
        with Scraper(LIMIT_S) as scraper:
            found = scraper.scrape({"bad": bad.url, "good": good.url})
        assert list(found) == ["good"]
        discovery = UrlDiscovery([Address(name="a", kernel="k", url=bad.url)], client, "m", LIMIT_S)
        assert discovery.refresh()[0].fingerprint == ""
        discovery.close()
        asked = probe(client, bad.url, "m", PROMPT, REFERENCE, LIMIT_S)
        assert asked.outcome in (ProbeOutcome.UNREADABLE, ProbeOutcome.FAILED)
        endpoint = Endpoint(url=bad.url, timeout_s=LIMIT_S)
        with endpoint.client() as line, pytest.raises(SelvageError):
            endpoint.answer(line, "GET", "/v1/models")
