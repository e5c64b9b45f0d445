"""A local server of webhooks: each path answers as its name says, and everything that came is kept."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.support.listening import Listening, listening


@dataclass
class HookServer:
    """What was asked, and what is answered. statuses: of paths; others answer 200."""

    url: str = ""
    statuses: dict[str, int] = field(default_factory=dict)
    bodies: dict[str, bytes] = field(default_factory=dict)
    came: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    cookies: list[str | None] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)

    def at(self, path: str) -> list[dict[str, Any]]:
        """Bodies that came to ``path``, in their order."""
        return [body for found, body in list(self.came) if found == path]


@contextmanager
def hook_server() -> Iterator[HookServer]:
    """A server on a port of its own; ``/hang`` never answers, ``/drip`` never ends its head."""
    with listening(HookServer(), _Handler) as known:
        yield known


class _Handler(BaseHTTPRequestHandler):
    server: Listening[HookServer]

    def do_POST(self) -> None:
        """Keep what came, and answer as the path says."""
        known = self.server.known
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        known.came.append((self.path, body))
        known.cookies.append(self.headers.get("Cookie"))
        if self.path == "/hang":
            known.ended.wait()
        elif self.path in _DRIPS:
            self._drip(_DRIPS[self.path])
        else:
            self._answer(known.statuses.get(self.path, 200), known.bodies.get(self.path, b""))

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Location", "/elsewhere")
        self.send_header("Set-Cookie", "seen=1; Path=/")
        self.end_headers()
        self.wfile.write(body)

    def _drip(self, begin: bytes) -> None:
        self.close_connection = True
        self.wfile.write(begin)
        while not self.server.known.ended.wait(0.02):
            self.wfile.write(b"x")
            self.wfile.flush()

    def handle(self) -> None:
        """Whoever calls may hang up."""
        try:
            super().handle()
        except OSError:
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Say nothing."""


#: What comes at once, before a byte every now and then.
_DRIPS = {
    "/drip": b"HTTP/1.1 200 OK\r\nX-Long: ",
    "/slow-body": b"HTTP/1.1 403 Forbidden\r\nContent-Length: 1000000\r\n\r\n",
}
