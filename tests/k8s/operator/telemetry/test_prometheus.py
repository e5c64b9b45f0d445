"""A pool whose metrics are read from a Prometheus: by the documents alone, and on a real API server."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import wait
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from contracts.documents.pool import Prometheus
from contracts.errors import DocumentError
from contracts.telemetry import ReplicaState
from k8s.operator.namespace import NamespaceOperator
from k8s.operator.pods.replicas import PodDiscovery, PodReplica
from k8s.operator.telemetry.pool_reader import Sensing
from k8s.operator.telemetry.pool_source import PoolSource, Watching
from k8s.operator.telemetry.prometheus import PrometheusAccess, PrometheusScrapes, check_interval
from live.ports import LiveReplica
from tests.k8s.operator.telemetry.test_pool_source import documents
from tests.k8s.operator.telemetry.test_pool_source import sensing as scraped_sensing
from tests.support.cluster.cluster_worlds import SHED, Bench, Object
from tests.support.servers.prometheus_server import PrometheusServer, prometheus_server, target
from tests.support.servers.scraped_server import METRICS

TOKEN = "only-for-this-test"


@pytest.fixture
def server() -> Iterator[PrometheusServer]:
    """A Prometheus that has not scraped any pod."""
    with prometheus_server() as found:
        yield found


@dataclass
class Pods:
    """The part of a discovery that is used: pods in their slots."""

    pods: tuple[PodReplica, ...] = field(
        default_factory=lambda: tuple(_pod(f"fp8-{n}", f"chat-fp8-{n}") for n in range(2))
    )


def _pod(slot: str, name: str) -> PodReplica:
    replica = LiveReplica(name=slot, kernel="fp8", url="http://nobody", state=ReplicaState.READY)
    return PodReplica(slot=slot, pod=name, in_rotation=True, replica=replica)


def sensing(url: str, interval_s: float = 15.0) -> Sensing:
    """The sample with a pool that names a Prometheus."""
    found = scraped_sensing()
    told = Prometheus(url=url, scrape_interval_s=interval_s)
    pool = found.documents.pool
    pool = pool.model_copy(update={"spec": pool.spec.model_copy(update={"prometheus": told})})
    return replace(found, documents=replace(documents(), pool=pool), discovery=cast(PodDiscovery, Pods()))


URLS = {"fp8-0": "http://unused", "fp8-1": "http://unused"}


def test_a_tick_is_one_query_and_a_scrape_is_handed_on_once(server: PrometheusServer) -> None:
    """All pods are read in one query; each scrape is handed on once."""
    access = PrometheusAccess(origins=(server.url,))
    with httpx.Client() as client:
        asking = PrometheusScrapes(sensing(f"{server.url}/"), access, client)
        now_s = time.time()
        for n in range(2):
            server.scraped(METRICS, now_s - 1.0, target(f"chat-fp8-{n}"))
        assert set(asking.scrape(URLS)) == set(URLS)
        assert asking.scrape(URLS) == {}
        server.scraped(METRICS, now_s - 0.5, target("chat-fp8-1"))
        assert set(asking.scrape(URLS)) == {"fp8-1"}
        assert asking.scrape({"fp8-0": "http://unused"}) == {}
    assert len(server.queries) == 4
    assert all("chat-fp8-0" in one for one in server.queries)
    assert (asking.failure, asking.problem) == (None, "")


def test_pods_without_samples_are_reported_after_three_intervals(
    server: PrometheusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pod without samples is unknown at once, and reported after three intervals."""
    steady = [100.0]
    monkeypatch.setattr("k8s.operator.telemetry.prometheus.time.monotonic", lambda: steady[0])
    with httpx.Client() as client:
        asking = PrometheusScrapes(sensing(server.url), PrometheusAccess(origins=(server.url,)), client)
        server.scraped(METRICS, time.time(), target("chat-fp8-0"))
        assert set(asking.scrape(URLS)) == {"fp8-0"}
        assert asking.problem == ""
        steady[0] += 45.0
        server.scraped(METRICS, time.time(), target("chat-fp8-0"))
        asking.scrape(URLS)
        assert "no samples of chat-fp8-1" in asking.problem
        server.scraped(METRICS, time.time(), target("chat-fp8-1"))
        assert "fp8-1" in asking.scrape(URLS)
        assert asking.problem == ""


def test_a_prometheus_that_is_not_allowed_is_not_queried(server: PrometheusServer) -> None:
    """A URL of an origin that is not allowed is refused with the next step, before any query."""
    with httpx.Client() as client, pytest.raises(DocumentError, match=f"--prometheus-origin {server.url}"):
        PrometheusScrapes(sensing(server.url), PrometheusAccess(origins=("https://other:9090",)), client)
    assert server.queries == []


def test_telemetry_that_would_always_be_stale_is_refused() -> None:
    """A scrape interval above half of stale_after_s is refused; exactly half is accepted."""
    check_interval(sensing("http://prometheus:9090", 15.0).documents)
    with pytest.raises(DocumentError, match=r"at most half of the contract's detection\.stale_after_s"):
        check_interval(sensing("http://prometheus:9090", 15.5).documents)


@pytest.mark.parametrize("text", ["two words", "\u00fc", "a\x00b"])
def test_a_file_that_is_no_token_is_refused_without_its_content(tmp_path: Path, text: str) -> None:
    """A token that cannot be in a header is refused without quoting it; a missing file is no token."""
    path = tmp_path / "token"
    access = PrometheusAccess(token_file=path)
    assert access.token() == ""
    path.write_text(f"{TOKEN}\n")
    assert access.token() == TOKEN
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DocumentError) as caught:
        access.token()
    assert text not in str(caught.value)


@dataclass
class PrometheusWorld:
    """The sample on a real API server, read from a Prometheus that scrapes on request."""

    bench: Bench
    server: PrometheusServer
    operator: NamespaceOperator

    def scraped(self) -> None:
        """Let Prometheus scrape every pod now."""
        for kernel in ("fp8", "bf16"):
            for n in range(2):
                labels = target(f"chat-{kernel}-{n}", self.bench.namespace)
                self.server.scraped(METRICS, time.time(), labels)

    def turns(self, count: int) -> None:
        """Run ``count`` turns; queries complete between turns."""
        for _ in range(count):
            self.bench.turns(self.operator, 1)
            source: Any = self.operator.loops["chat"].source
            asked = source._fleet._scrape
            wait([asked] if asked is not None else [])

    def silence(self) -> None:
        """Let more time pass than the contract's stale_after_s."""
        self.bench.now_s += 31.0
        self.turns(3)

    def fresh(self) -> tuple[str, str]:
        """Status and reason of TelemetryFresh."""
        return self.bench.conditions()["TelemetryFresh"]


@pytest.fixture
def world(bench: Bench, server: PrometheusServer, tmp_path: Path) -> Iterator[PrometheusWorld]:
    """An operator with a token, for a pool that names the server."""

    def reads_it(pool: Object) -> None:
        pool["spec"]["prometheus"] = {"url": server.url}

    bench.everything(reads_it)
    server.token = TOKEN
    (tmp_path / "token").write_text(TOKEN)
    access = PrometheusAccess(origins=(server.url,), token_file=tmp_path / "token")
    with ExitStack() as stack:
        client = stack.enter_context(httpx.Client())

        def source(sensing: Sensing) -> PoolSource:
            scrapes = PrometheusScrapes(sensing, access, client)
            return PoolSource(sensing, Watching(prometheus=access), scrapes, client, SHED)

        operator = bench.operator(source=source)
        stack.callback(operator.forget)
        yield PrometheusWorld(bench=bench, server=server, operator=operator)


ON_A_SERVER = [pytest.mark.needs("kube_api"), pytest.mark.slow]


def on_a_server(test: Any) -> Any:
    """Apply the marks of tests that need an API server."""
    for mark in ON_A_SERVER:
        test = mark(test)
    return test


@on_a_server
def test_a_pool_becomes_ready_by_a_prometheus(world: PrometheusWorld) -> None:
    """Telemetry is NeverSeen before the first scrape, then the pool is ready; each tick is one query."""
    world.turns(2)
    assert world.fresh() == ("False", "NeverSeen")
    world.scraped()
    world.turns(4)
    assert world.fresh() == ("True", "Scraped")
    assert world.bench.conditions()["Ready"] == ("True", "Serving")
    assert len(world.server.queries) == 6
    assert all(one.count("chat-") == 4 for one in world.server.queries)


FAILURES = {
    "401": (401, b"Unauthorized\n", "PrometheusRefused"),
    "422": (422, b'{"status":"error","errorType":"execution","error":"too many samples"}', "QueryRefused"),
    "warnings": (
        200,
        b'{"status":"success","warnings":["a store is away"],"data":{"resultType":"matrix","result":[]}}',
        "PartialAnswer",
    ),
}


@on_a_server
@pytest.mark.parametrize("name", FAILURES)
def test_a_failing_prometheus_holds_the_table_and_says_why(world: PrometheusWorld, name: str) -> None:
    """TelemetryFresh is False with the failure's reason; the last table stays until Prometheus recovers."""
    world.scraped()
    world.turns(3)
    before = world.bench.route()
    status, body, reason = FAILURES[name]
    world.server.scripted = status, body
    world.turns(3)
    assert world.fresh() == ("False", reason)
    world.silence()
    decision: Any = world.operator.loops["chat"].standing.turn
    assert bool(decision.decision.held[0])
    assert world.bench.route()["spec"] == before["spec"]
    assert world.bench.conditions()["Degraded"] == ("True", "NotSeen")
    assert TOKEN not in str(world.bench.read("RoutePolicy", "chat")["status"])
    world.server.scripted = None
    world.scraped()
    world.turns(3)
    assert world.fresh() == ("True", "Scraped")


@on_a_server
def test_old_samples_count_as_silence(world: PrometheusWorld) -> None:
    """Repeated old samples count as silence: telemetry ages, and the table is held."""
    world.scraped()
    world.turns(3)
    before = world.bench.route()
    world.silence()
    assert world.fresh() == ("False", "Silent")
    assert world.bench.route()["spec"] == before["spec"]


@on_a_server
def test_a_prometheus_that_may_not_be_asked_is_a_condition(world: PrometheusWorld) -> None:
    """A pool with an origin that is not allowed is not adopted: ResolvedRefs says why, the old one stays."""
    world.scraped()
    world.turns(3)
    world.bench.change("KernelPool", "chat-pool", {"prometheus": {"url": "http://127.0.0.1:1"}})
    world.operator.nudge()
    world.scraped()
    world.turns(3)
    assert world.bench.conditions()["ResolvedRefs"] == ("False", "DoesNotFit")
    told = world.bench.read("RoutePolicy", "chat")["status"]["conditions"]
    assert any("--prometheus-origin http://127.0.0.1:1" in one["message"] for one in told)
    assert world.fresh() == ("True", "Scraped")
