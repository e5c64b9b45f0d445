"""Servers started by others: found by address, judged by their telemetry, unknown without it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import httpx
import numpy as np
import pytest

from contracts.documents import KernelPool
from contracts.errors import DocumentError
from contracts.loading.loader import load_as
from contracts.telemetry import ReplicaState
from live.control.clocks import SteadyClock
from live.control.source import FleetSource, SourceParts
from live.observe.scraper import Scraper
from live.run.urls import UrlDiscovery, replica_addresses
from tests.support.fleets.builders import make_layout
from tests.support.servers.live_fleets import POOL

LAYOUT = replace(make_layout(kernels=2, slices=1, per_kernel=1), replicas=("k0-0", "k1-0"))


class Servers:
    """Two servers behind one transport; those in ``down`` do not answer, ``metrics`` is their export."""

    def __init__(self, metrics: str = "") -> None:
        self.down: set[str] = set()
        self.metrics = metrics
        self.keys: set[str] = set()

    def answer(self, request: httpx.Request) -> httpx.Response:
        """A vLLM server's answer."""
        if request.url.host in self.down:
            raise httpx.ConnectError("refused")
        self.keys.add(request.headers.get("authorization", ""))
        if request.url.path == "/metrics":
            return httpx.Response(200, text=self.metrics)
        return httpx.Response(200, json={"system_fingerprint": f"build-{request.url.host}"})

    def client(self) -> httpx.Client:
        """A client with a key."""
        headers = {"Authorization": "Bearer secret"}
        return httpx.Client(transport=httpx.MockTransport(self.answer), headers=headers)


def test_servers_are_ready_while_they_answer_and_state_their_build() -> None:
    """A replica that refuses is dead, and ready with a fresh fingerprint when it answers again."""
    servers = Servers()
    found = UrlDiscovery(replica_addresses({"k0": ["http://a"], "k1": ["http://b"]}), servers.client(), "m")
    try:
        assert [(one.name, one.state, one.fingerprint) for one in found.refresh()] == [
            ("k0-0", ReplicaState.READY, "build-a"),
            ("k1-0", ReplicaState.READY, "build-b"),
        ]
        servers.down = {"b"}
        assert [one.state for one in found.refresh()] == [ReplicaState.READY, ReplicaState.DEAD]
        servers.down = set()
        assert found.refresh()[1].fingerprint == "build-b"
        assert servers.keys == {"Bearer secret"}
    finally:
        found.close()


def test_a_server_that_does_not_serve_is_named_with_the_reason() -> None:
    """A status, an expired certificate and an unforeseen error are reported, with the count in a row."""
    why: list[Exception | int] = [
        301,
        httpx.ConnectError("certificate verify failed: certificate has expired"),
        RuntimeError("unforeseen"),
        200,
    ]

    def answer(request: httpx.Request) -> httpx.Response:
        now = why[0] if request.url.host == "b" else 200
        if isinstance(now, Exception):
            raise now
        return httpx.Response(now, json={})

    client = httpx.Client(transport=httpx.MockTransport(answer))
    found = UrlDiscovery(replica_addresses({"k0": ["http://a"], "k1": ["http://b"]}), client, "m")
    told = []
    try:
        while why:
            assert found.refresh()[0].state == ReplicaState.READY
            told.append({name: (one.why, one.times) for name, one in found.failed.items()})
            why.pop(0)
    finally:
        found.close()
    assert told == [
        {"k1-0": ("/health: HTTP 301", 1)},
        {"k1-0": ("/health: ConnectError: certificate verify failed: certificate has expired", 2)},
        {"k1-0": ("/health: RuntimeError: unforeseen", 3)},
        {},
    ]


def telemetry_of(metrics: list[str]) -> list[tuple[np.ndarray, np.ndarray]]:
    """(answered, running) after the scrape of each text."""
    servers = Servers()
    discovery = UrlDiscovery(
        replica_addresses({"k0": ["http://a"], "k1": ["http://b"]}), servers.client(), "m"
    )
    discovery.refresh()
    parts = SourceParts(
        layout=LAYOUT,
        discovery=discovery,
        scraper=Scraper(timeout_s=30.0, client=servers.client()),
        clock=SteadyClock(),
    )
    source, found = FleetSource(parts), []
    try:
        for text in metrics:
            servers.metrics = text
            found.append(next_scrape(source))
    finally:
        source.close()
        discovery.close()
    return found


def next_scrape(source: FleetSource) -> tuple[np.ndarray, np.ndarray]:
    """(answered, running) of the first tick with a scrape that began after this call."""
    seen: list[tuple[np.ndarray, np.ndarray]] = []
    last = source.read().scraped_at_ms[0, 0]
    while len(seen) < 2:
        now = source.read()
        if not np.array_equal(now.scraped_at_ms[0, 0], last, equal_nan=True):
            last = now.scraped_at_ms[0, 0]
            seen.append((now.answered[0], now.running[0]))
    return np.max([one[0] for one in seen], axis=0), seen[-1][1]


def exported(finished: int | None) -> str:
    """The export of a server with two running requests and this many finished ones."""
    text = "process_start_time_seconds 1\nvllm:num_requests_running 2\n"
    if finished is None:
        return text
    name = "vllm:request_success"
    return f"{text}# TYPE {name} counter\n{name}_total {finished}\n"


def test_finished_requests_are_answers_where_no_gateway_counts() -> None:
    """Otherwise every busy server without a gateway would look hung."""
    first, second = telemetry_of([exported(5), exported(12)])
    assert first[0].tolist() == [0, 0]
    assert second[0].tolist() == [7, 7]
    assert second[1].tolist() == [2.0, 2.0]


def test_a_server_that_does_not_count_is_neither_busy_nor_hung() -> None:
    """Without the counter of finished requests its running requests are unknown."""
    for answered, running in telemetry_of([exported(None), exported(None)]):
        assert answered.tolist() == [0, 0]
        assert np.isnan(running).all()


def test_a_server_that_writes_a_long_answer_is_not_hung() -> None:
    """New tokens are progress although no request ended, and nothing else is known of it."""
    names = ("generation_tokens", "request_success")

    def counters(*values: int) -> str:
        parts = zip(names, values, strict=False)
        return exported(None) + "".join(f"# TYPE vllm:{n} counter\nvllm:{n}_total {v}\n" for n, v in parts)

    for before, now, answered in (((5, 0), (9, 0), 1), ((5,), (9,), 1), ((5, 0), (5, 0), 0), ((5,), (5,), 0)):
        seen = telemetry_of([counters(*before), counters(*now)])[1]
        assert seen[0].tolist() == [answered, answered]
        assert seen[1].tolist() == [2.0, 2.0]


@pytest.mark.parametrize(
    "servers",
    [
        '["http://a:1"]',
        '["http://a:1", "http://a:1"]',
        '["http://a:1/v1", "http://b:1"]',
        '["http://user:key@a:1", "http://b:1"]',
    ],
)
def test_addresses_in_a_pool_are_checked(tmp_path: Path, servers: str) -> None:
    """As many as replicas, each once, without a path and without a key."""
    good = '["http://a:1", "https://b:1"]'
    for written in (good, servers):
        text = POOL.replace("replicas: 2, role: serving", f"replicas: 2, role: serving, servers: {written}")
        (tmp_path / "pool.yaml").write_text(text)
        if written == good:
            assert load_as(KernelPool, tmp_path / "pool.yaml").spec.kernels[0].servers
            continue
        with pytest.raises(DocumentError, match="kernels"):
            load_as(KernelPool, tmp_path / "pool.yaml")
