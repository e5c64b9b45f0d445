"""Failures in phases: a server that is gone, a definition deleted, a death mid-write; routes stay whole."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kubernetes import client, watch

from k8s.api.cluster import ApiCluster
from k8s.operator.objects import ClusterError, Manifest, Resources
from k8s.resources.definition import definition
from k8s.resources.kinds import resource_named
from tests.support.cluster_worlds import Bench
from tests.support.kube_api import install_definitions

pytestmark = [pytest.mark.needs("kube_api"), pytest.mark.slow, pytest.mark.timeout(600)]


class Failing(ApiCluster):
    """A namespace whose server can be gone, or die between the route and what comes after it."""

    gone = False
    dies_after_route = False

    def resources(self) -> Resources:
        self._there()
        return super().resources()

    def endpoint_slices(self, service: str) -> list[Manifest]:
        self._there()
        return super().endpoint_slices(service)

    def service(self, name: str) -> Manifest | None:
        self._there()
        return super().service(name)

    def write_status(self, found: Manifest, status: Manifest) -> None:
        self._there()
        super().write_status(found, status)

    def write_config(self, config: Manifest) -> None:
        if self.dies_after_route:
            raise KeyboardInterrupt
        self._there()
        super().write_config(config)

    def _there(self) -> None:
        if self.gone:
            raise ClusterError("the API server does not answer")


@contextmanager
def every_revision(bench: Bench) -> Iterator[list[dict[str, Any]]]:
    """Every revision of the route from here on, up to the end of the block."""
    seen: list[dict[str, Any]] = []
    begin = bench.route()["metadata"]["resourceVersion"]
    watcher = watch.Watch()
    ended = threading.Event()

    def follow() -> None:
        arguments = ("gateway.networking.k8s.io", "v1", bench.namespace, "httproutes")
        while not ended.is_set():
            stream = watcher.stream(
                client.CustomObjectsApi(bench.api).list_namespaced_custom_object,
                *arguments,
                resource_version=begin if not seen else seen[-1]["metadata"]["resourceVersion"],
                timeout_seconds=1,
            )
            seen.extend(event["object"] for event in stream)

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        yield seen
        bench.edit_route(lambda found: found["metadata"].update(labels={"last": "revision"}))
        for _ in range(300):
            if seen and seen[-1]["metadata"].get("labels") == {"last": "revision"}:
                break
            ended.wait(0.1)
    finally:
        ended.set()
        thread.join()


def assert_never_empty(seen: list[dict[str, Any]]) -> None:
    """Every rule of every revision has a kernel with a positive weight."""
    assert seen, "the watch saw nothing"
    assert seen[-1]["metadata"].get("labels") == {"last": "revision"}, "the watch missed the end"
    for found in seen:
        for rule in found["spec"]["rules"]:
            kernels = {one["name"]: one.get("weight", 1) for one in rule["backendRefs"]}
            kernels.pop("selvage-refuse", None)
            assert max(kernels.values()) > 0, (found["metadata"]["resourceVersion"], rule)


def _server_gone(bench: Bench, cluster: Failing) -> None:
    cluster.gone = True
    bench.turns(bench.operator(cluster), 5)
    cluster.gone = False


def _pods_gone(bench: Bench, cluster: Failing) -> None:
    operator = bench.operator(cluster)
    for kernel in ("fp8", "bf16"):
        bench.endpoints(kernel, [])
    bench.turns(operator, 20)
    assert bench.conditions()["Ready"] == ("False", "NoReadyReplicas")
    for kernel in ("fp8", "bf16"):
        bench.endpoints(kernel, [f"chat-{kernel}-{n}" for n in range(2)])


def _silence(bench: Bench, cluster: Failing) -> None:
    bench.silent = True
    bench.turns(bench.operator(cluster), 40)
    bench.silent = False


def _killed_mid_write(bench: Bench, cluster: Failing) -> None:
    """The route is written, and nothing after it."""
    operator = bench.operator(cluster)
    bench.drift["fp8"] = 0.02
    cluster.dies_after_route = True
    with pytest.raises(KeyboardInterrupt):
        bench.turns(operator, 40)
    cluster.dies_after_route = False


FAILURES: dict[str, Callable[[Bench, Failing], None]] = {
    "server gone": _server_gone,
    "pods gone": _pods_gone,
    "silence": _silence,
    "killed mid-write": _killed_mid_write,
}


@pytest.mark.parametrize("name", sorted(FAILURES))
def test_no_revision_of_the_route_leaves_a_slice_without_a_kernel(bench: Bench, name: str) -> None:
    """In no revision of the route, through a failure and after it, has a slice no kernel with weight."""
    bench.everything()
    cluster = Failing(bench.api, bench.namespace, timeout_s=20.0)
    bench.turns(bench.operator(cluster), 5)
    with every_revision(bench) as seen:
        FAILURES[name](bench, cluster)
        bench.drift["fp8"] = 0.02
        bench.turns(bench.operator(cluster), 40)
    assert_never_empty(seen)
    assert bench.weights("prose")["chat-bf16"] == 10_000


def test_a_new_leader_goes_on_with_dwell_and_quarantine(bench: Bench) -> None:
    """A new leader goes on with the table in force and the quarantines of its predecessor."""
    bench.everything()
    operator = bench.operator()
    bench.turns(operator, 16)
    bench.drift["bf16-1"] = 0.02
    bench.turns(operator, 40)
    before = operator.loops["chat"].controller.state
    assert before.quarantined.any()
    second = bench.operator()
    bench.turns(second, 1)
    after = second.loops["chat"].controller.state
    assert after.quarantined.tolist() == before.quarantined.tolist()
    assert after.ticks[0] > 16


def test_a_leader_without_a_kept_state_keeps_the_table_in_force(bench: Bench) -> None:
    """A leader that finds no kept state begins with the table in the route, and moves nothing at once."""
    bench.everything()
    operator = bench.operator()
    bench.turns(operator, 5)
    bench.drift["fp8"] = 0.02
    bench.turns(operator, 40)
    client.CoreV1Api(bench.api).delete_namespaced_config_map("selvage-state-chat", bench.namespace)
    bench.turns(bench.operator(), 1)
    assert bench.weights("prose")["chat-bf16"] > 0


def test_definitions_that_are_deleted_and_made_again_leave_the_route(bench: Bench) -> None:
    """Definitions that are deleted, and made again with their resources, leave the route and go on."""
    bench.everything()
    operator = bench.operator()
    bench.turns(operator, 5)
    kind = resource_named("RoutePolicy")
    extensions = client.ApiextensionsV1Api(bench.api)
    extensions.delete_custom_resource_definition(kind.crd_name)
    before = bench.route()["spec"]
    bench.turns(operator, 8)
    assert bench.route()["spec"] == before
    _await_gone(extensions, kind.crd_name)
    install_definitions(bench.api, [definition(kind)])
    bench.apply("policy")
    bench.turns(operator, 8)
    assert bench.conditions()["Ready"][0] == "True"


def _await_gone(extensions: client.ApiextensionsV1Api, name: str) -> None:
    """Wait until the definition is no more."""
    for _ in range(600):
        names = [one.metadata.name for one in extensions.list_custom_resource_definition().items]
        if name not in names:
            return
        threading.Event().wait(0.1)
    raise AssertionError(f"{name} is still there")
