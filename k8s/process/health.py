"""Liveness (``/healthz``) and readiness to lead (``/readyz``) of an operator replica, and its warm-up.

The image has no compiled code, because machine code depends on the processor. A replica compiles before it
asks for the Lease: compiling within a turn would lose the Lease, and the next leader would lose it as well.
Until then it is live but not ready, so that a rollout keeps the leader until another replica can lead.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from contracts.jit import FUNCTIONS, report_compilations
from contracts.telemetry import HISTOGRAM_EDGES_MS
from live.observe.increments import count, unknown_increments
from live.observe.scraper import LayoutReader
from policies import warm

_LOG = logging.getLogger(__name__)
#: Processor time of a first start, s: 105 s were measured on an AMD EPYC. Probes and rollouts are given more.
COLD_START_S = 180.0
#: A hanging client keeps its thread no longer than this, s.
_CLIENT_S = 10.0
#: A metric that every server exports; compilation depends only on the types of what is read.
_SCRAPED = "# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds 1.0\n"


class ReplicaHealth:
    """Readiness of this process. Safe for one writer and any number of readers."""

    def __init__(self) -> None:
        self.waits_for = "the process begins"
        """What it still waits for; "" once it may lead."""

    def compile(
        self, goes_on: Callable[[], bool], parts: tuple[Callable[[], object], ...] | None = None
    ) -> None:
        """Compile every function that a turn calls, or load it from the cache; then this replica is ready.

        goes_on: checked between parts, each of which takes a minute at most; parts: warm-ups, None: all.
        """
        done: set[str] = set()
        began_at_s = time.monotonic()

        def told(name: str) -> None:
            done.add(name)
            self.waits_for = f"compiling: {len(done)} functions of at most {len(FUNCTIONS)}"

        self.waits_for = "compiling, or loading what was compiled before"
        with report_compilations(told):
            for part in _PARTS if parts is None else parts:
                if not goes_on():
                    return
                part()
        self.waits_for = ""
        _LOG.info("ready to lead: %d functions compiled in %.0f s", len(done), time.monotonic() - began_at_s)


def _warm_scrapes() -> None:
    """Compile what reads two scrapes of one server and counts between them."""
    reader = LayoutReader()
    before, now = (reader.read("server", _SCRAPED, at_s) for at_s in (1.0, 2.0))
    found = unknown_increments()
    count(before, now, found.engine[0], found.latency_le[0], HISTOGRAM_EDGES_MS)


#: Warm-ups, those that need the least set-up first; ``warm`` compiles the rest.
_PARTS: tuple[Callable[[], object], ...] = (
    _warm_scrapes,
    warm.warm_perception,
    warm.warm_shield,
    warm.warm_plain_policies,
    warm.warm_allocation,
    warm.warm,
)


def any_address() -> str:
    """Wildcard address to listen on: both IP families if the host has both, else IPv4."""
    return "::" if socket.has_dualstack_ipv6() else "0.0.0.0"


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    address_family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET

    def server_bind(self) -> None:
        """Listen on both IP families where available, whatever the system's default is."""
        if self.address_family is socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()


class _Answers(BaseHTTPRequestHandler):
    """Answers probes of the kubelet."""

    timeout = _CLIENT_S
    health: ReplicaHealth

    def do_GET(self) -> None:
        """``/healthz``: 200 while the process lives; ``/readyz``: 200, or 503 with what it waits for."""
        waits_for = self.health.waits_for if self.path.startswith("/readyz") else ""
        known = self.path.split("?")[0] in ("/healthz", "/readyz")
        status = HTTPStatus.SERVICE_UNAVAILABLE if waits_for else HTTPStatus.OK
        body = (waits_for or "ok").encode()
        self.send_response(status if known else HTTPStatus.NOT_FOUND)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Probes are not logged."""


@contextmanager
def health_served(health: ReplicaHealth, port: int | None) -> Iterator[int]:
    """Answer probes on ``port`` (0: any free one, None: not at all) within the block; yields the port."""
    if port is None:
        yield 0
        return
    handler = type("_Of", (_Answers,), {"health": health})
    with _Server((any_address(), port), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.1,), name="health", daemon=True)
        thread.start()
        try:
            yield int(server.server_address[1])
        finally:
            server.shutdown()
            thread.join()
