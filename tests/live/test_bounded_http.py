"""Answers within limits: slow status lines, headers, bodies and streams end in time, large ones too."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx
import pytest

from contracts.errors import MeasurementError
from contracts.telemetry import ProbeOutcome, ReplicaState
from live.bounded_http import OversizedAnswerError, addresses, time_limit, whole_answer
from live.errors import LiveError
from live.gateway.admin import EnvoyAdmin
from live.measure.endpoint import Endpoint
from live.observe.scraper import Scraper
from live.probe.answers import Line, Question, ask
from live.probe.prefill import ProbeResult, timed_outcome
from live.run.urls import Address, UrlDiscovery
from tests.support.servers.listening import Answering, Listening, listening

SOON_S = 0.2
#: The part sent at once, and the part that then drips.
DRIPS = {
    "status": (b"", b"H"),
    "header": (b"HTTP/1.1 200 OK\r\nX-Long: ", b"x"),
    "body": (b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", b" "),
    "stream": (b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n", b":"),
    "chunks": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
}


@dataclass
class Dripping:
    """A server that drips. how: a name of ``DRIPS``."""

    how: str = "body"
    url: str = ""
    ended: threading.Event = field(default_factory=threading.Event)


class _Handler(Answering):
    server: Listening[Dripping]
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Drip."""
        if self.path == "/small":
            return self.answer(200, b"small")
        if self.path == "/large":
            return self.answer(200, b"x" * 100_000)
        return self.drip(*DRIPS[self.server.known.how])

    do_POST = do_GET


@contextmanager
def dripping(how: str) -> Iterator[str]:
    """The URL of such a server."""
    with listening(Dripping(how), _Handler) as known:
        yield known.url


@pytest.mark.parametrize("how", DRIPS)
def test_a_dripped_answer_ends_in_time(how: str) -> None:
    """Whatever part of an answer drips, the total time is limited, also on a kept connection."""
    with dripping(how) as url, httpx.Client() as client:
        assert whole_answer(client, "GET", f"{url}/small", 5.0).text == "small"
        for _ in range(2):
            with pytest.raises(httpx.ReadTimeout):
                whole_answer(client, "GET", f"{url}/x", SOON_S)


def test_a_large_answer_is_not_read_to_its_end() -> None:
    """An answer beyond its most bytes is refused as an error of the line."""
    with dripping("body") as url, httpx.Client() as client, pytest.raises(OversizedAnswerError) as error:
        whole_answer(client, "GET", f"{url}/large", 5.0, most_bytes=10_000)
    assert isinstance(error.value, httpx.HTTPError)


@pytest.mark.parametrize("how", ["status", "header", "stream"])
def test_a_stream_without_an_event_ends_in_time(how: str) -> None:
    """A probe with a stream that drips bytes without an event has timed out."""
    question = Question(token_ids=(1, 2), max_tokens=4)
    with dripping(how) as url, httpx.Client() as client:
        line = Line(client, url, "m")
        found = timed_outcome(lambda: _asked(line, question), SOON_S)
    assert found.outcome is ProbeOutcome.TIMED_OUT


def _asked(line: Line, question: Question) -> ProbeResult:
    ask(line, question, "nonce", SOON_S)
    return ProbeResult(None, {})


def _scrape(url: str) -> object:
    with Scraper(SOON_S) as scraper:
        return scraper.scrape({"a": url})


def _discover(url: str) -> object:
    with httpx.Client() as client:
        discovery = UrlDiscovery([Address(name="a", kernel="k", url=url)], client, "m", SOON_S)
        try:
            return discovery.refresh()[0].state
        finally:
            discovery.close()


@pytest.mark.parametrize(
    ("read", "found"), [(_scrape, {}), (_discover, ReplicaState.STARTING)], ids=["scrape", "discovery"]
)
@pytest.mark.parametrize("how", ["status", "body"])
def test_readers_of_servers_go_on(how: str, read: Callable[[str], object], found: object) -> None:
    """A server that drips is unknown to a scrape and to discovery, and delays neither."""
    with dripping(how) as url:
        assert read(url) == found


@pytest.mark.parametrize("how", ["status", "body"])
def test_admin_and_reference_end_in_time(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Envoy's admin interface that drips counts as silent, and so does a reference server."""
    monkeypatch.setattr("live.gateway.admin._TIMEOUT_S", SOON_S)
    with dripping(how) as url:
        with pytest.raises(LiveError, match="does not answer"):
            EnvoyAdmin(url).statistics(".*")
        endpoint = Endpoint(url=url, timeout_s=SOON_S)
        with endpoint.client() as client, pytest.raises(MeasurementError, match="no whole answer within"):
            endpoint.answer(client, "GET", "/v1/models")


def test_a_block_ends_with_the_earlier_deadline() -> None:
    """A block within another has no more time than it."""
    with dripping("status") as url, httpx.Client() as client:
        with time_limit(SOON_S), pytest.raises(httpx.TimeoutException):
            whole_answer(client, "GET", f"{url}/x", 600.0)
        assert whole_answer(client, "GET", f"{url}/small", 5.0).text == "small"


def test_every_address_of_a_name_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """IPv4 comes first, and after a closed port the next address is tried."""

    def known(host: str, port: int, *more: int, **named: int) -> list[tuple[object, ...]]:
        six = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", port, 0, 0))
        nobody, four = (
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in ("127.0.0.9", "127.0.0.1")
        )
        return [six, nobody, four, four] if host == "servers" else list(asked(host, port, *more, **named))

    asked = socket.getaddrinfo
    monkeypatch.setattr("live.bounded_http.socket.getaddrinfo", known)
    assert addresses("servers", 80) == ["127.0.0.9", "127.0.0.1", "::1"]
    with dripping("body") as url, httpx.Client() as client:
        named = url.replace("127.0.0.1", "servers")
        assert whole_answer(client, "GET", f"{named}/small", 5.0).text == "small"


def test_a_resolver_that_does_not_answer_delays_no_other_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """The look-up of a name ends with the time of the answer, and is not begun a second time meanwhile."""
    end, begun, asked = threading.Event(), list[str](), socket.getaddrinfo

    def known(host: str, port: int, *more: int, **named: int) -> list[tuple[object, ...]]:
        if host != "servers":
            return list(asked(host, port, *more, **named))
        begun.append(host)
        end.wait(60.0)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr("live.bounded_http.socket.getaddrinfo", known)
    with dripping("body") as url, httpx.Client() as client:
        named = url.replace("127.0.0.1", "servers")
        try:
            for _ in range(3):
                with pytest.raises(httpx.TimeoutException):
                    whole_answer(client, "GET", f"{named}/small", SOON_S)
            assert begun == ["servers"]
            assert whole_answer(client, "GET", f"{url}/small", 5.0).text == "small"
        finally:
            end.set()
        assert whole_answer(client, "GET", f"{named}/small", 5.0).text == "small"
