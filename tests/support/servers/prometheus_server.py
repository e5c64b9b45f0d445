"""A server with the documented HTTP API of Prometheus, over scrapes that a test makes.

``POST /api/v1/query`` takes an instant query of a range in a form, and answers a matrix: of every series its
samples within the range, each with the time of its scrape. No other query is supported.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

from live.exposition import read_samples
from tests.support.servers.listening import Answering, Listening, listening

_QUERY = re.compile(r'\{__name__=~"([^"]*)",(\w+)="([^"]*)",(\w+)=~"([^"]*)"\}\[(\d+)ms\]')
#: In every answer; no client may follow the second.
_HEADERS = {"Content_Type": "application/json", "Location": "/elsewhere"}


@dataclass
class PrometheusServer:
    """Its scrapes, and the received queries. scripted: status and body in place of an answer."""

    url: str = ""
    now_s: float | None = None
    """Its clock; None: the machine's."""
    token: str = ""
    """The required token; "" for none."""
    scripted: tuple[int, bytes] | None = None
    warnings: tuple[str, ...] = ()
    series: dict[tuple[tuple[str, str], ...], list[tuple[float, float]]] = field(default_factory=dict)
    queries: list[str] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)

    def scraped(self, text: str, at_s: float, labels: Mapping[str, str]) -> None:
        """Store the scrape ``text`` of the target with ``labels``."""
        for one in read_samples(text):
            told = {"__name__": one.name, **one.labels, **labels}
            self.series.setdefault(tuple(sorted(told.items())), []).append((at_s, float(one.value)))

    def data(self, query: str) -> dict[str, Any]:
        """The result of ``query``."""
        asked = _QUERY.fullmatch(query)
        assert asked is not None, query
        names, namespace_label, namespace, pod_label, pods, window_ms = asked.groups()
        ends_s = time.time() if self.now_s is None else self.now_s
        result = []
        for labels, samples in sorted(self.series.items()):
            told = dict(labels)
            if not (
                re.fullmatch(names, told["__name__"])
                and told.get(namespace_label) == namespace
                and re.fullmatch(pods, told.get(pod_label, ""))
            ):
                continue
            begins_s = ends_s - int(window_ms) / 1000.0
            inside = [[at_s, _text(value)] for at_s, value in samples if begins_s < at_s <= ends_s]
            result += [{"metric": told, "values": inside}] if inside else []
        return {"resultType": "matrix", "result": result}


def target(pod: str, namespace: str = "chat", job: str = "vllm") -> dict[str, str]:
    """Labels that a PodMonitor gives to samples of ``pod``."""
    return {"namespace": namespace, "pod": pod, "job": job, "instance": f"{pod}:8000", "container": "vllm"}


@contextmanager
def prometheus_server() -> Iterator[PrometheusServer]:
    """A server on its own port, without scraped targets; ``/drip`` never ends an answer."""
    with listening(PrometheusServer(), _Handler) as known:
        yield known


class _Handler(Answering):
    server: Listening[PrometheusServer]

    def do_POST(self) -> None:
        """Answer a query, or as the test sets."""
        known = self.server.known
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        known.queries.append(form["query"][0])
        if self.path.startswith("/drip/"):
            self.drip(b'HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n{"status":', b" ")
        elif known.scripted is not None:
            status, body = known.scripted
            self.answer(status, body, **_HEADERS)
        elif known.token and self.headers.get("Authorization") != f"Bearer {known.token}":
            self.answer(401, b"Unauthorized\n", **_HEADERS)
        else:
            told: dict[str, Any] = {"status": "success", "data": known.data(form["query"][0])}
            told |= {"warnings": list(known.warnings)} if known.warnings else {}
            self.answer(200, json.dumps(told).encode(), **_HEADERS)


def _text(value: float) -> str:
    """A value as the API writes it."""
    return {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}.get(repr(value), repr(value))
