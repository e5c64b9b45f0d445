"""A local HTTP server of a test, on its own port; handlers find their answers in ``known``."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Generic, Protocol, TypeVar


class Known(Protocol):
    """Shared state of handlers. url: set before the first request; ended: stalling handlers may stop."""

    url: str
    ended: threading.Event


KnownT = TypeVar("KnownT", bound=Known)


class Listening(ThreadingHTTPServer, Generic[KnownT]):
    """A server with the state ``known`` for its handlers."""

    daemon_threads = True

    def __init__(self, known: KnownT, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.known = known


class Answering(BaseHTTPRequestHandler):
    """A handler that answers, or never ends its answer, and tolerates clients that disconnect."""

    server: Listening[Any]

    def answer(self, status: int, body: bytes, **headers: str) -> None:
        """``body`` with ``status`` and ``headers`` (``_`` for ``-``)."""
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def drip(self, begin: bytes, more: bytes) -> None:
        """``begin`` at once, then ``more`` every now and then until the test ends."""
        self.close_connection = True
        self.wfile.write(begin)
        while not self.server.known.ended.wait(0.02):
            self.wfile.write(more)
            self.wfile.flush()

    def handle(self) -> None:
        """Handle requests; the client may disconnect."""
        try:
            super().handle()
        except OSError:
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def listening(
    known: KnownT, handler: type[BaseHTTPRequestHandler], secure: ssl.SSLContext | None = None
) -> Iterator[KnownT]:
    """``known``, while ``handler`` answers at its ``url``; over TLS with ``secure``."""
    server = Listening(known, handler)
    if secure is not None:
        server.socket = secure.wrap_socket(server.socket, server_side=True)
    known.url = f"{'http' if secure is None else 'https'}://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield known
    finally:
        known.ended.set()
        server.shutdown()
        server.server_close()
        thread.join()


@dataclass(slots=True)
class _Nothing:
    """State of handlers that need none."""

    url: str = ""
    ended: threading.Event = field(default_factory=threading.Event)


@contextmanager
def answered_by(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """The URL at which ``handler`` answers."""
    with listening(_Nothing(), handler) as known:
        yield known.url
