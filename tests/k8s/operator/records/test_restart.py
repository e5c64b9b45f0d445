"""An API server that restarts on its data while an operator runs and watches."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from kubernetes import client

from k8s.api.pages import listed
from k8s.api.watched import NamespaceWatch, _Gone
from k8s.operator.namespace import NamespaceOperator
from k8s.operator.pods.slots import PODS, SLICES
from tests.support.cluster.cluster_worlds import Bench
from tests.support.cluster.kube_api import Server
from tests.support.cluster.kube_assets import assets
from tests.support.cluster.made_cluster import definitions_installed
from tests.support.cluster.route_revisions import whole_routes
from tests.support.waiting import until

pytestmark = [
    pytest.mark.needs("own_api"),
    pytest.mark.slow,
    pytest.mark.waits,
    # A server killed between accept and handshake resets the connection; CPython's own
    # SSLSocket._create then drops the socket without closing it.
    pytest.mark.filterwarnings(r"ignore:unclosed <ssl.SSLSocket [^>]* laddr=\([^)]*\)>:ResourceWarning"),
]


@pytest.fixture(autouse=True)
def dropped_sockets() -> Iterator[None]:
    """Collect sockets of a killed server while their warning is still ignored."""
    yield
    gc.collect()


class Behind(NamespaceWatch):
    """A watch that continues once from a very old version, as after a long outage."""

    old_version = ""
    gone = 0

    def _list(self, kind: str) -> str:
        version = super()._list(kind)
        if kind == SLICES and self.old_version:
            version, self.old_version = self.old_version, ""
        return version

    def _window(self, kind: str, version: str) -> str:
        try:
            return super()._window(kind, version)
        except _Gone:
            self.gone += 1
            raise


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """An API server of this module; other tests keep theirs."""
    programs = assets()
    assert programs is not None
    with Server(programs) as found:
        with client.ApiClient(found.configuration) as api:
            definitions_installed(api)
        yield found


@pytest.fixture
def bench(server: Server) -> Iterator[Bench]:
    """A namespace on that server, in which no revision of a route may leave a slice empty."""
    found = client.Configuration()
    found.__dict__.update(server.configuration.__dict__)
    found.retries = False
    with client.ApiClient(found) as api:
        made = client.CoreV1Api(api).create_namespace({"metadata": {"generateName": "test-"}})
        namespace = str(made.metadata.name)
        with whole_routes(api, namespace):
            yield Bench(api=api, namespace=namespace)


@contextmanager
def turning(bench: Bench, operator: NamespaceOperator) -> Iterator[Callable[[], int]]:
    """Run turns in a thread until the end of the block; yields a function that counts them."""
    ended, turns = threading.Event(), [0]
    raised: list[BaseException] = []

    def run() -> None:
        try:
            while not ended.is_set():
                bench.turns(operator, 1)
                turns[0] += 1
                ended.wait(0.05)
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield lambda: turns[0]
    finally:
        ended.set()
        thread.join()
    assert raised == []


def rules(bench: Bench) -> Any:
    """Rules of the route."""
    return bench.route()["spec"]["rules"]


@pytest.mark.parametrize("killed", [False, True], ids=["ended", "killed"])
def test_a_server_restart_keeps_routes_and_the_operator_continues(
    server: Server, bench: Bench, killed: bool
) -> None:
    """While the server is down the operator keeps running and reports it; afterwards it still acts."""
    bench.everything()
    with NamespaceWatch(bench.account.api, bench.namespace, timeout_s=20.0) as watched:
        operator = bench.operator(bench.cluster(timeout_s=5.0, watched=watched))
        with turning(bench, operator) as turned:
            until(lambda: bench.conditions().get("Ready", ("", ""))[0] == "True")
            before, state = rules(bench), operator.loops["chat"].controller.state
            server.stop(killed)
            try:
                until(lambda: bool(operator.problem))
                count = turned()
                until(lambda: turned() > count + 5)
            finally:
                server.start()
            assert rules(bench) == before
            until(lambda: not operator.problem)
            assert operator.loops["chat"].controller.state.ticks[0] > state.ticks[0]
            bench.drift["fp8"] = 0.02
            until(lambda: bench.weights("prose")["chat-bf16"] == 10_000)


def test_a_lost_watch_lists_again_and_misses_no_change(server: Server, bench: Bench) -> None:
    """Pods changed while every watch was down are seen; an expired version causes a new listing."""
    bench.everything()
    core = client.CoreV1Api(bench.api)
    old = core.list_namespaced_pod(bench.namespace).metadata.resource_version
    with Behind(bench.api, bench.namespace, timeout_s=20.0) as watched:
        assert isinstance(watched, Behind)
        operator = bench.operator(bench.cluster(timeout_s=5.0, watched=watched))
        with turning(bench, operator):
            until(lambda: bench.conditions().get("Ready", ("", ""))[0] == "True")
            server.stop(killed=True)
            try:
                _compacted(server)
                watched.old_version = old
            finally:
                server.start()
            bench.endpoints("fp8", ["chat-fp8-0"])
            before = rules(bench)
            until(lambda: watched.gone > 0)
            until(lambda: watched.places is not None and len(_pods(operator, "fp8")) == 1)
            bench.endpoints("fp8", ["chat-fp8-0", "chat-fp8-1"])
            until(lambda: len(_pods(operator, "fp8")) == 2)
            assert rules(bench) == before
    assert watched.gone == 1


def test_a_compacted_version_is_gone(server: Server, bench: Bench) -> None:
    """After a compaction the server answers 410 for an older version, which ends a watch."""
    core = client.CoreV1Api(bench.api)
    old = core.list_namespaced_pod(bench.namespace).metadata.resource_version
    core.create_namespace({"metadata": {"generateName": "test-"}})
    server.stop(killed=True)
    _compacted(server)
    server.start()
    watched = Behind(bench.api, bench.namespace, timeout_s=20.0)
    with pytest.raises(_Gone):
        watched._window(PODS, old)


def test_a_listing_restarts_when_a_real_server_expired_its_token(
    server: Server, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restart and a compaction between two pages make the token stale (410): no object is missing."""
    bench.everything()
    core = client.CoreV1Api(bench.api)
    statuses: list[int] = []
    monkeypatch.setattr("k8s.api.pages._TRIES", (1, 1, None))

    def ask(**query: Any) -> Any:
        if query.get("_continue") and not statuses:
            core.create_namespace({"metadata": {"generateName": "test-"}})
            server.stop(killed=True)  # otherwise it continues from its own snapshot
            _compacted(server)
            server.start()
        try:
            return core.list_namespaced_pod(bench.namespace, **query)
        except client.ApiException as error:
            statuses.append(int(error.status or 0))
            raise

    found = listed(ask, lambda one: str(one["metadata"]["name"]))
    assert statuses[:1] == [410]
    assert sorted(found.objects) == sorted(bench.labels())


def _pods(operator: NamespaceOperator, kernel: str) -> list[str]:
    return [one.pod for one in operator.loops["chat"].discovery.pods if one.slot.startswith(kernel)]


def _compacted(server: Server) -> None:
    """Compact etcd to its newest revision, as a cluster does every five minutes."""
    with httpx.Client(base_url=server.etcd_url, timeout=30.0) as etcd:
        found = etcd.post("/v3/kv/range", json={"key": "AA=="}).json()
        wanted = {"revision": found["header"]["revision"], "physical": True}
        assert etcd.post("/v3/kv/compaction", json=wanted).status_code == httpx.codes.OK
