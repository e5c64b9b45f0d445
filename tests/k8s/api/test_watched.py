"""Watches on a real API server: equal to a listing, and listed again after a watch fell behind."""

from __future__ import annotations

from typing import Any

import pytest
from kubernetes import client

from k8s.api.cluster import ApiCluster
from k8s.api.watched import NamespaceWatch, _Gone
from k8s.operator.pods.slots import PODS
from tests.support.cluster.granted import rights
from tests.support.waiting import until

pytestmark = [pytest.mark.needs("kube_api")]


def pod(name: str, kernel: str) -> dict[str, Any]:
    """A pod that never runs: the API server of the tests has no kubelet."""
    spec = {"containers": [{"name": "server", "image": "none"}]}
    return {"metadata": {"name": name, "labels": {"kernel": kernel}}, "spec": spec}


def gone(*_: object, **__: object) -> None:
    """Raise what the client raises for status 410."""
    raise client.ApiException(status=410, reason="Gone")


def names(cluster: ApiCluster, kernel: str = "fp8") -> list[str]:
    """Names of a kernel's pods."""
    return [one["metadata"]["name"] for one in cluster.pods({"kernel": kernel})]


def test_a_watched_namespace_equals_a_listing(api: client.ApiClient, namespace: str) -> None:
    """Pods, Services and slices that are created, changed or deleted are seen without another listing."""
    core = client.CoreV1Api(api)
    core.create_namespaced_pod(namespace, pod("one", "fp8"))
    spec = {"selector": {"kernel": "fp8"}, "ports": [{"port": 80}]}
    core.create_namespaced_service(namespace, {"metadata": {"name": "chat"}, "spec": spec})
    with NamespaceWatch(rights(api), namespace, timeout_s=20.0) as watched:
        until(lambda: watched.places is not None)
        listings, cluster = (
            watched.listings,
            ApiCluster(rights(api), namespace, watched=watched),
        )
        assert names(cluster) == ["one"]
        assert (cluster.service("chat") or {})["spec"]["selector"] == {"kernel": "fp8"}
        core.create_namespaced_pod(namespace, pod("two", "fp8"))
        until(lambda: names(cluster) == ["one", "two"])
        core.patch_namespaced_pod("one", namespace, {"metadata": {"labels": {"kernel": "bf16"}}})
        until(lambda: names(cluster) == ["two"] and names(cluster, "bf16") == ["one"])
        core.delete_namespaced_pod("two", namespace, grace_period_seconds=0, _preload_content=False)
        until(lambda: names(cluster) == [])
        assert watched.listings == listings
        plain = ApiCluster(rights(api), namespace)
        assert names(plain, "bf16") == names(cluster, "bf16")
        assert plain.places_version is None


def test_a_watch_that_fell_behind_lists_again(api: client.ApiClient, namespace: str) -> None:
    """410 Gone, as a response or as an event, ends a watch; the next listing drops objects deleted since."""
    watched = NamespaceWatch(rights(api), namespace, timeout_s=20.0)
    client.CoreV1Api(api).create_namespaced_pod(namespace, pod("one", "fp8"))
    watched._list(PODS)
    watched._places.put(PODS, pod("ghost", "fp8"))
    with pytest.raises(_Gone):
        watched._heed(PODS, {"type": "ERROR", "object": {"code": 410}})
    listing = watched._methods[PODS]
    watched._methods[PODS] = gone
    with pytest.raises(_Gone):
        watched._window(PODS, "1")
    watched._methods[PODS] = listing
    watched._list(PODS)
    assert [one["metadata"]["name"] for one in watched._places.pods({"kernel": "fp8"})] == ["one"]


def test_without_a_working_watch_calls_read_the_server(api: client.ApiClient, namespace: str) -> None:
    """While the watch cannot connect, there is no cache and each call asks the API server."""
    configuration = client.Configuration()
    configuration.host, configuration.retries = "http://127.0.0.1:9", False
    with NamespaceWatch(rights(client.ApiClient(configuration)), namespace, timeout_s=1.0) as watched:
        cluster = ApiCluster(rights(api), namespace, watched=watched)
        client.CoreV1Api(api).create_namespaced_pod(namespace, pod("one", "fp8"))
        assert watched.places is None
        assert names(cluster) == ["one"]
