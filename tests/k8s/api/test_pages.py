"""Listings that are longer than a page: whole, in pages, and begun anew where the server forgot its place."""

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
    """An API server that lists ``MANY`` objects of whatever kind. gone: continue tokens that it will
    have forgotten; stuck: its token never changes; garbage: it answers in place of the second page.
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
    """An object of any kind, with what nobody reads."""
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
    """On a port of its own."""
    with listening(Listings(), Listing) as found:
        yield found


@pytest.fixture
def asking(server: Listings) -> Iterator[client.ApiClient]:
    """A client of it."""
    configuration = client.Configuration(host=server.url)
    configuration.retries = False
    with client.ApiClient(configuration) as found:
        yield found


@pytest.fixture
def cluster(asking: client.ApiClient) -> ApiCluster:
    """The namespace as the operator asks for it."""
    return ApiCluster(asking, "chat", timeout_s=30.0)


def limits(server: Listings) -> list[str | None]:
    """Of each request."""
    return [one.get("limit") for one in server.asked]


def test_every_listing_is_taken_whole_in_pages(server: Listings, cluster: ApiCluster) -> None:
    """Pods, slices and our resources that stand on later pages are there as those of the first are."""
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
def test_a_listing_whose_place_was_forgotten_begins_anew(
    server: Listings, cluster: ApiCluster, gone: int, calls: int
) -> None:
    """410 on a continue token loses no object and counts none twice; the last try asks for all at once."""
    server.gone = gone
    names = [one["metadata"]["name"] for one in cluster.pods({"app": "chat"})]
    assert names == [f"one-{n:05}" for n in range(MANY)]
    assert len(server.asked) == calls
    assert limits(server)[-1] == (str(PAGE_OBJECTS) if gone == 1 else None)


@pytest.mark.parametrize("garbage", [b"[]", b'{"items": 5}', b"<html>", b"null", b'{"items": [3]}', b"{}"])
def test_half_a_listing_is_none(server: Listings, cluster: ApiCluster, garbage: bytes) -> None:
    """A second page that is no listing makes an error of the whole, which a turn bears."""
    server.garbage = garbage
    with pytest.raises(ClusterError, match="no listing"):
        cluster.resources()


def test_a_listing_without_an_end_is_an_error(server: Listings, cluster: ApiCluster) -> None:
    """A token that leads to itself is followed once."""
    server.stuck = True
    with pytest.raises(ClusterError, match="no end"):
        cluster.pods({"app": "chat"})
    assert len(server.asked) == 2


def test_a_watch_begins_with_every_page(server: Listings, asking: client.ApiClient) -> None:
    """What is watched was listed whole, once, and keeps of each object what discovery reads."""
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


def test_the_newest_events_of_one_resource_are_told(server: Listings, cluster: ApiCluster) -> None:
    """Twenty of any number on any page, newest first, and nobody else's."""
    rows = cluster.events("RoutePolicy", "chat")
    even = range(MANY - 1 - (MANY - 1) % 2, -1, -2)
    assert [row["message"] for row in rows] == [str(n) for n in even][:20]
    assert limits(server) == [str(PAGE_OBJECTS)] * 3
    assert cluster.events("RoutePolicy", "nobody") == []


@pytest.mark.needs("kube_api")
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_real_server_gives_every_object_in_small_pages(
    api: client.ApiClient, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hundreds of pods in pages of seven are those of one listing, with what came and went meanwhile left to
    the watch that goes on from there; a continue token of no listing is an error, no half of one.
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
    """A pod that nobody starts."""
    spec = {
        "containers": [{"name": "server", "image": "none"}],
        "schedulingGates": [{"name": "tests.dev/never"}],
    }
    return {"metadata": {"name": name, "labels": {"app": "chat"}}, "spec": spec}
