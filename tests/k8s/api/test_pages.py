"""Listings longer than a page: complete, read page by page, restarted when a continue token has expired."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

pytest.importorskip("kubernetes", reason="install the extra k8s: make setup-test")

from kubernetes import client

from k8s.api.cluster import ApiCluster
from k8s.api.pages import PAGE_OBJECTS
from k8s.api.watched import NamespaceWatch
from k8s.operator.objects import ClusterError
from k8s.operator.pods.slots import PODS, SLICES
from tests.support.cluster.granted import rights
from tests.support.servers.listening import Answering, listening

MANY = 2 * PAGE_OBJECTS + 7


@dataclass
class Listings:
    """An API server that lists ``MANY`` objects of any kind.

    gone: how many continue tokens expire; stuck: the token never changes; garbage: body of the second page.
    """

    url: str = ""
    gone: int = 0
    stuck: bool = False
    garbage: bytes = b""
    asked: list[dict[str, str]] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)

    def page(self, query: dict[str, str]) -> tuple[int, bytes]:
        """Status and body of one listing."""
        self.asked.append(query)
        begin, limit = int(query.get("continue", 0)), int(query.get("limit", MANY))
        if begin and self.gone:
            self.gone -= 1
            return 410, json.dumps({"kind": "Status", "code": 410, "message": "too old"}).encode()
        if begin and self.garbage:
            return 200, self.garbage
        metadata: dict[str, Any] = {"resourceVersion": "7"}
        if begin + limit < MANY:
            metadata["continue"] = "1" if self.stuck else str(begin + limit)
        items = [made(n) for n in range(begin, min(MANY, begin + limit))]
        return 200, json.dumps({"metadata": metadata, "items": items}).encode()


def made(n: int) -> dict[str, Any]:
    """An object with the fields of several kinds, and ``managedFields``, which are never read."""
    metadata = {"name": f"one-{n:05}", "labels": {"app": "chat"}, "managedFields": [{"manager": "kubelet"}]}
    status = {"podIP": "10.0.0.1", "phase": "Running"}
    about = {"kind": "RoutePolicy", "name": ("chat", "other")[n % 2]}
    told = {"message": str(n), "lastTimestamp": f"2026-01-01T00:00:00.{n:06}Z", "involvedObject": about}
    return {"metadata": metadata, "status": status, "endpoints": None, **told}


class Listing(Answering):
    """Answers a GET of a listing."""

    def do_GET(self) -> None:
        """One page."""
        found: Listings = self.server.known
        status, body = found.page(dict(parse_qsl(urlsplit(self.path).query)))
        self.answer(status, body, Content_Type="application/json")


@pytest.fixture
def server() -> Iterator[Listings]:
    """An API server on its own port."""
    with listening(Listings(), Listing) as found:
        yield found


@pytest.fixture
def asking(server: Listings) -> Iterator[client.ApiClient]:
    """A client of that server."""
    configuration = client.Configuration(host=server.url)
    configuration.retries = False
    with client.ApiClient(configuration) as found:
        yield found


@pytest.fixture
def cluster(asking: client.ApiClient) -> ApiCluster:
    """The namespace, through the operator's client."""
    return ApiCluster(asking, "chat", timeout_s=30.0)


def limits(server: Listings) -> list[str | None]:
    """Page limit of each request."""
    return [one.get("limit") for one in server.asked]


def test_every_listing_is_complete_in_pages(server: Listings, cluster: ApiCluster) -> None:
    """Pods, EndpointSlices and our resources are complete when they fill several pages."""
    page = str(PAGE_OBJECTS)
    assert len(cluster.pods({"app": "chat"})) == MANY
    assert limits(server) == [page] * 3
    assert {one["labelSelector"] for one in server.asked} == {"app=chat"}
    assert len(cluster.endpoint_slices("chat")) == MANY
    found = cluster.resources()
    assert {len(one) for one in (found.contracts, found.pools, found.policies, found.promotions)} == {MANY}
    assert limits(server) == [page] * 3 * 6
    assert found.pools["one-00003"]["kind"] == "KernelPool"
    assert "managedFields" not in found.pools["one-00003"]["metadata"]


@pytest.mark.parametrize(("gone", "calls"), [(1, 2 + 3), (2, 2 + 2 + 1)])
def test_a_listing_restarts_when_its_token_expired(
    server: Listings, cluster: ApiCluster, gone: int, calls: int
) -> None:
    """After 410 on a continue token no object is missing or listed twice; the last try uses no pages."""
    server.gone = gone
    names = [one["metadata"]["name"] for one in cluster.pods({"app": "chat"})]
    assert names == [f"one-{n:05}" for n in range(MANY)]
    assert len(server.asked) == calls
    assert limits(server)[-1] == (str(PAGE_OBJECTS) if gone == 1 else None)


@pytest.mark.parametrize("garbage", [b"[]", b'{"items": 5}', b"<html>", b"null", b'{"items": [3]}', b"{}"])
def test_half_a_listing_is_an_error(server: Listings, cluster: ApiCluster, garbage: bytes) -> None:
    """A second page that is not a listing makes the whole listing a ClusterError."""
    server.garbage = garbage
    with pytest.raises(ClusterError, match="no listing"):
        cluster.resources()


def test_a_listing_without_an_end_is_an_error(server: Listings, cluster: ApiCluster) -> None:
    """A continue token that repeats is followed once, then the listing is an error."""
    server.stuck = True
    with pytest.raises(ClusterError, match="no end"):
        cluster.pods({"app": "chat"})
    assert len(server.asked) == 2


def test_a_watch_starts_with_a_complete_listing(server: Listings, asking: client.ApiClient) -> None:
    """A watch starts with one complete listing and keeps only the fields that discovery reads."""
    server.gone = 1
    watched = NamespaceWatch(asking, "chat", timeout_s=30.0)
    version = watched._places.version
    assert watched._list(PODS) == "7"
    assert (watched.listings, watched._places.version) == (1, version + MANY + 1)
    found = watched._places.pods({"app": "chat"})
    assert len(found) == MANY
    assert "managedFields" not in found[0]["metadata"]
    watched._list(SLICES)
    server.garbage = b"[]"
    with pytest.raises(ClusterError):
        watched._list(PODS)
    assert len(watched._places.pods({"app": "chat"})) == MANY


def test_the_newest_events_of_one_resource_are_returned(server: Listings, cluster: ApiCluster) -> None:
    """The twenty newest Events about one resource are returned, newest first, from all pages."""
    rows = cluster.events("RoutePolicy", "chat")
    even = range(MANY - 1 - (MANY - 1) % 2, -1, -2)
    assert [row["message"] for row in rows] == [str(n) for n in even][:20]
    assert limits(server) == [str(PAGE_OBJECTS)] * 3
    assert cluster.events("RoutePolicy", "nobody") == []


@pytest.mark.needs("kube_api")
@pytest.mark.slow
def test_a_real_server_gives_every_object_in_small_pages(
    api: client.ApiClient, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real API server lists hundreds of pods in pages of seven without losing one.

    Changes during the listing are left to the watch that follows; a bad continue token is an error.
    """
    core = client.CoreV1Api(api)
    names = [f"one-{n:04}" for n in range(230)]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda name: core.create_namespaced_pod(namespace, unstarted(name)), names))
    monkeypatch.setattr("k8s.api.pages._TRIES", (7, 7, None))
    watched = NamespaceWatch(rights(api), namespace, timeout_s=30.0)
    version = watched._list(PODS)
    core.delete_namespaced_pod(names[0], namespace, grace_period_seconds=0, _preload_content=False)
    core.create_namespaced_pod(namespace, unstarted("two"))
    assert [one["metadata"]["name"] for one in watched._places.pods({"app": "chat"})] == names
    monkeypatch.setattr("k8s.api.watched.WINDOW_S", 2)
    watched._window(PODS, version)
    found = [one["metadata"]["name"] for one in watched._places.pods({"app": "chat"})]
    assert found == [*names[1:], "two"]
    plain = ApiCluster(rights(api), namespace, timeout_s=30.0)
    assert [one["metadata"]["name"] for one in plain.pods({"app": "chat"})] == found
    asked = {"limit": 7, "_preload_content": False}
    with pytest.raises(client.ApiException):
        core.list_namespaced_pod(namespace, _continue="bm9uZQ", **asked)


def unstarted(name: str) -> dict[str, Any]:
    """A pod that is never scheduled."""
    spec = {
        "containers": [{"name": "server", "image": "none"}],
        "schedulingGates": [{"name": "tests.dev/never"}],
    }
    return {"metadata": {"name": name, "labels": {"app": "chat"}}, "spec": spec}
