"""A local server of webhooks: each path answers as its name says, and every request is recorded."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.support.servers.listening import Answering, Listening, listening


@dataclass
class HookServer:
    """Received requests, and the answers. statuses: by path; other paths answer 200."""

    url: str = ""
    statuses: dict[str, int] = field(default_factory=dict)
    bodies: dict[str, bytes] = field(default_factory=dict)
    came: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    cookies: list[str | None] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)

    def at(self, path: str) -> list[dict[str, Any]]:
        """Bodies of requests to ``path``, in order."""
        return [body for found, body in list(self.came) if found == path]


@contextmanager
def hook_server() -> Iterator[HookServer]:
    """A server on its own port; ``/hang`` never answers, ``/drip`` never ends its head."""
    with listening(HookServer(), _Handler) as known:
        yield known


class _Handler(Answering):
    server: Listening[HookServer]

    def do_POST(self) -> None:
        """Record the request, and answer by its path."""
        known = self.server.known
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        known.came.append((self.path, body))
        known.cookies.append(self.headers.get("Cookie"))
        if self.path == "/hang":
            known.ended.wait()
        elif self.path in _DRIPS:
            self.drip(_DRIPS[self.path], b"x")
        else:
            status, told = known.statuses.get(self.path, 200), known.bodies.get(self.path, b"")
            self.answer(status, told, Location="/elsewhere", Set_Cookie="seen=1; Path=/")


#: The part sent at once, before a byte every now and then.
_DRIPS = {
    "/drip": b"HTTP/1.1 200 OK\r\nX-Long: ",
    "/slow-body": b"HTTP/1.1 403 Forbidden\r\nContent-Length: 1000000\r\n\r\n",
}
