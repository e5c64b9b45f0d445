"""Who stands behind a Service: at the port that the pool names, and nobody whose pod has ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from contracts.documents.pool import BackendRef
from contracts.telemetry import ReplicaState
from k8s.operator.objects import Cluster
from k8s.operator.pods.endpoints import FoundEndpoints, endpoints_of
from k8s.operator.pods.pod_facts import IN_ROTATION, OUT
from k8s.operator.pods.replicas import KernelBackend, PodDiscovery
from k8s.operator.pods.slots import OF_SERVICE, PODS, SERVICES, SLICES, Places

Object = dict[str, Any]

#: As a Service in front of vLLM with a sidecar: its metrics come first in every list.
PORTS: list[Object] = [
    {"name": "metrics", "port": 9090, "targetPort": 9090},
    {"name": "http", "port": 80, "targetPort": "http"},
]
LISTENS = [{"name": "metrics", "port": 9090}, {"name": "http", "port": 8000}]


@dataclass
class Watched:
    """The part of ``Cluster`` that discovery reads, as a watch tells it."""

    places: Places = field(default_factory=Places)
    places_version = None

    def service(self, name: str) -> Object | None:
        """A Service."""
        return self.places.service(name)

    def endpoint_slices(self, service: str) -> list[Object]:
        """Its EndpointSlices."""
        return self.places.endpoint_slices(service)

    def pods(self, selector: Mapping[str, str]) -> list[Object]:
        """Pods by label."""
        return self.places.pods(selector)


def served(ports: list[Object], listens: list[Object], *pods: Object) -> Watched:
    """A Service ``chat`` with ``pods``; those in rotation are listed, as the cluster's controller would."""
    cluster = Watched()
    selector = {"app": "chat", IN_ROTATION: "true"}
    cluster.places.put(
        SERVICES, {"metadata": {"name": "chat"}, "spec": {"selector": selector, "ports": ports}}
    )
    endpoints = []
    for one in pods:
        cluster.places.put(PODS, one)
        if one["metadata"]["labels"][IN_ROTATION] == "true":
            name, conditions = one["metadata"]["name"], {"ready": True}
            if one["metadata"].get("deletionTimestamp"):
                conditions = {"ready": False, "serving": True, "terminating": True}
            target = {"kind": "Pod", "name": name}
            endpoints.append({"addresses": ["10.0.0.1"], "conditions": conditions, "targetRef": target})
    labels = {OF_SERVICE: "chat"}
    slice_ = {"metadata": {"name": "chat-1", "labels": labels}, "ports": listens, "endpoints": endpoints}
    cluster.places.put(SLICES, slice_)
    return cluster


def pod(name: str, place: str = "true", phase: str = "Running", *, deleted: bool = False) -> Object:
    """A pod of the kernel."""
    metadata: Object = {"name": name, "labels": {"app": "chat", IN_ROTATION: place}}
    if deleted:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    conditions = [{"type": "Ready", "status": "True"}]
    return {
        "metadata": metadata,
        "status": {"phase": phase, "podIP": "10.0.0.1", "conditions": conditions},
    }


def found(cluster: Watched, port: int) -> FoundEndpoints:
    """What stands behind ``chat`` at ``port`` of the Service."""
    return endpoints_of(cast(Cluster, cluster), BackendRef(name="chat", port=port), None)


def test_servers_are_asked_where_they_listen_and_not_where_the_service_does() -> None:
    """A Service's port leads by its name to the port of its EndpointSlice, wherever that stands."""
    cluster = served(PORTS, LISTENS, pod("a"), pod("b", OUT))
    assert {one.pod: one.port for one in found(cluster, 80).endpoints} == {"a": 8000, "b": 8000}
    assert {one.port for one in found(cluster, 9090).endpoints} == {9090}


def test_a_port_without_a_name_is_the_only_one() -> None:
    """A Service of one port needs no name for it."""
    cluster = served([{"port": 80, "targetPort": 8000}], [{"port": 8000}], pod("a"))
    assert [one.url for one in found(cluster, 80).endpoints] == ["http://10.0.0.1:8000"]


def test_pods_that_were_all_taken_out_are_found_by_what_the_service_says() -> None:
    """While nobody is in rotation no slice tells the port: a number in the Service does."""
    cluster = served([{"port": 80, "targetPort": 8000}], [], pod("a", OUT))
    assert [one.port for one in found(cluster, 80).endpoints] == [8000]


def listening(one: Object, containers: list[Object], sidecars: list[Object] | None = None) -> Object:
    """``one`` with containers, each of them its ports."""
    return {**one, "spec": {"containers": containers, "initContainers": sidecars or []}}


def serving_at(number: int, name: str = "http", **others: str) -> Object:
    """A container that serves at a port of that name."""
    return {"name": "vllm", "ports": [{"name": name, "containerPort": number}], **others}


@pytest.mark.parametrize(
    ("out", "port"),
    [
        (listening(pod("b", OUT), [serving_at(8100)]), 8100),
        (listening(pod("b", OUT), [serving_at(9090, "metrics"), serving_at(8100)]), 8100),
        (listening(pod("b", OUT), [], [serving_at(8100, restartPolicy="Always")]), 8100),
        (listening(pod("b", OUT), [], [serving_at(8100)]), 8000),  # it has ended before anybody serves
        (listening(pod("b", OUT), [serving_at(8100, protocol="UDP")]), 8000),
        (listening(pod("b", OUT), [serving_at(8100, "other")]), 8000),
    ],
)
def test_a_pod_that_was_taken_out_is_asked_at_its_own_port_of_that_name(out: Object, port: int) -> None:
    """While a rollout changes the number behind a name, old pods listen where they did; who tells no port of
    that name is asked where the others listen.
    """
    out["spec"]["containers"] = [
        {**one, "ports": [{**each, "protocol": one.get("protocol")} for each in one["ports"]]}
        for one in out["spec"]["containers"]
    ]
    cluster = served(PORTS, LISTENS, pod("a"), out)
    assert {one.pod: one.port for one in found(cluster, 80).endpoints} == {"a": 8000, "b": port}


def test_pods_that_were_all_taken_out_are_found_by_the_name_of_their_port() -> None:
    """With nobody in rotation no slice tells a number: each pod's own containers do, after a restart too."""
    cluster = served(PORTS, [], listening(pod("a", OUT), [serving_at(8100)]), pod("b", OUT))
    assert {one.pod: one.port for one in found(cluster, 80).endpoints} == {"a": 8100}


def test_a_port_that_the_service_lacks_is_said() -> None:
    """A backend that names the pods' port in place of the Service's has no servers, and it is said why."""
    told = found(served(PORTS, LISTENS, pod("a")), 8000)
    assert (told.endpoints, told.reason) == ((), "PortNotFound")
    assert "expected port 8000" in told.message
    assert "[80, 9090]" in told.message


@pytest.mark.parametrize("place", ["true", OUT])
@pytest.mark.parametrize("end", [{"phase": "Failed"}, {"phase": "Succeeded"}, {"deleted": True}])
def test_a_pod_that_ended_leaves_the_books(place: str, end: dict[str, Any]) -> None:
    """Evicted, through or being deleted, in rotation or out: no replica, and its place is the next one's."""
    kernel = KernelBackend(kernel="fp8", backend=BackendRef(name="chat", port=80), replicas=2)
    cluster = served(PORTS, LISTENS, pod("a"), pod("b", place))
    discovery = PodDiscovery(cast(Cluster, cluster), (kernel,))
    discovery.refresh()
    assert {one.pod: one.slot for one in discovery.pods} == {"a": "fp8-0", "b": "fp8-1"}
    cluster.places = served(PORTS, LISTENS, pod("a"), pod("b", place, **end), pod("c")).places
    discovery.refresh()  # a place that is left is empty once
    assert [one.pod for one in discovery.pods] == ["a"]
    discovery.refresh()
    assert {one.pod: one.slot for one in discovery.pods} == {"a": "fp8-0", "c": "fp8-1"}
    assert all(one.replica.state == ReplicaState.READY for one in discovery.pods)


def listed(cluster: Watched, name: str, family: str, *endpoints: Object) -> None:
    """One more EndpointSlice of ``chat``."""
    metadata = {"name": name, "labels": {OF_SERVICE: "chat"}}
    cluster.places.put(
        SLICES,
        {"metadata": metadata, "addressType": family, "ports": LISTENS, "endpoints": list(endpoints)},
    )


def endpoint(pod: str, address: str, kind: str = "Pod", **conditions: bool) -> Object:
    """One entry of an EndpointSlice."""
    target = {"kind": kind, "name": pod}
    return {"addresses": [address], "conditions": conditions, "targetRef": target}


def test_a_pod_of_two_address_families_is_one_server() -> None:
    """A dual-stack Service has a slice for each family; a pod in both takes one place, the IPv4 one
    where the Service does not say which comes first.
    """
    kernel = KernelBackend(kernel="fp8", backend=BackendRef(name="chat", port=80), replicas=1)
    cluster = served(PORTS, LISTENS, pod("a"))
    cluster.places.drop(SLICES, "chat-1")
    for name in ("chat-0", "chat-9"):  # in whatever order names put them
        family, address = ("IPv6", "fd00::1") if name == "chat-0" else ("IPv4", "10.0.0.1")
        listed(cluster, name, family, endpoint("a", address, ready=True))
    discovery = PodDiscovery(cast(Cluster, cluster), (kernel,))
    discovery.refresh()
    assert [one.replica.url for one in discovery.pods] == ["http://10.0.0.1:8000"]
    assert discovery.beyond == ()


def no_pod(address: str, **stated: str) -> Object:
    """An entry of an EndpointSlice that names no pod, as somebody wrote it by hand."""
    return {"addresses": [address], "conditions": {"ready": True}, **stated}


V4, V6 = [f"10.0.0.{n}" for n in (1, 2, 3)], [f"fd00::{n}" for n in (1, 2, 3)]


@pytest.mark.parametrize(
    ("families", "v4", "v6", "servers"),
    [
        (("IPv4", "IPv6"), [{}, {}], [{}, {}], V4[:2]),
        (("IPv6", "IPv4"), [{}, {}], [{}, {}], V6[:2]),
        (("IPv4", "IPv6"), [{"hostname": "a"}, {"hostname": "b"}], [{"hostname": "b"}], V4[:2]),
        (("IPv4",), [{"hostname": "a"}], [{"hostname": "b"}, {"hostname": "a"}], [V4[0], V6[0]]),
        (("IPv4", "IPv6"), [{"nodeName": "n1"}], [{"nodeName": "n2"}, {"nodeName": "n1"}], [V4[0], V6[0]]),
        (("IPv4", "IPv6"), [{"hostname": "a"}, {"hostname": "a"}], [{"hostname": "a"}], V4[:2]),
        (("IPv4", "IPv6"), [{"hostname": "a", "nodeName": "n1"}], [{"hostname": "a"}], V4[:1]),
        (("IPv4", "IPv6"), [], [{}, {}], V6[:2]),
    ],
)
def test_a_server_of_two_families_that_is_no_pod_is_one(
    families: tuple[str, ...], v4: list[Object], v6: list[Object], servers: list[str]
) -> None:
    """A Service of both families has the same servers in each: those of its first family count, and of the
    other one those alone that a hostname or a node tells apart from them.
    """
    cluster = served(PORTS, LISTENS)
    cluster.places.drop(SLICES, "chat-1")
    spec = {"ports": PORTS, "ipFamilies": list(families)}
    cluster.places.put(SERVICES, {"metadata": {"name": "chat"}, "spec": spec})
    listed(cluster, "chat-0", "IPv6", *(no_pod(V6[n], **one) for n, one in enumerate(v6)))
    listed(cluster, "chat-9", "IPv4", *(no_pod(V4[n], **one) for n, one in enumerate(v4)))
    assert sorted(one.address for one in found(cluster, 80).endpoints) == sorted(servers)


def test_what_another_controller_lists_by_name_is_told_apart_by_it() -> None:
    """A target that is no pod has a name of its own: one name in both families is one server."""
    cluster = served(PORTS, LISTENS)
    cluster.places.drop(SLICES, "chat-1")
    for family, addresses in (("IPv4", V4), ("IPv6", V6)):
        vms = [endpoint(f"vm-{n}", addresses[n], kind="WorkloadEntry", ready=True) for n in range(2)]
        late = [endpoint("vm-9", V6[2], kind="WorkloadEntry", ready=True)] if family == "IPv6" else []
        listed(cluster, family.lower(), family, *vms, *late)
    assert [one.address for one in found(cluster, 80).endpoints] == [*V4[:2], V6[2]]


def test_servers_of_several_slices_are_all_found() -> None:
    """A Service of more than a hundred servers has several slices; nobody in one of them is passed over."""
    cluster = served(PORTS, LISTENS)
    for n in range(3):
        pods = [f"p-{n}-{m}" for m in range(100)]
        listed(cluster, f"chat-{n + 2}", "IPv4", *(endpoint(one, "10.0.0.1", ready=True) for one in pods))
    assert len({one.pod for one in found(cluster, 80).endpoints}) == 300


def test_who_is_published_though_not_ready_carries_nothing_yet() -> None:
    """A Service that publishes addresses that are not ready says ready of all; serving tells who is."""
    cluster = served(PORTS, LISTENS, pod("a"), pod("b"))
    listed(
        cluster,
        "chat-1",
        "IPv4",
        endpoint("a", "10.0.0.1", ready=True, serving=True, terminating=False),
        endpoint("b", "10.0.0.2", ready=True, serving=False, terminating=False),
        endpoint("c", "10.0.0.3", ready=True, serving=True, terminating=True),
    )
    states = {one.pod: one.state for one in found(cluster, 80).endpoints}
    assert states == {"a": ReplicaState.READY, "b": ReplicaState.STARTING}


def test_an_endpoint_that_is_no_pod_or_has_no_address_is_no_pod() -> None:
    """What another controller lists behind a Service is asked by its address; no pod of its name moves."""
    cluster = served(PORTS, LISTENS)
    listed(
        cluster,
        "chat-1",
        "IPv4",
        endpoint("vm", "10.0.0.7", kind="WorkloadEntry", ready=True),
        {"addresses": [], "conditions": {}},
    )
    assert [(one.pod, one.key) for one in found(cluster, 80).endpoints] == [("", "10.0.0.7:8000")]


def test_a_selector_of_the_rotation_alone_takes_nobody_out() -> None:
    """Such a Service selects every kernel's pods: whoever left it would not be found again."""
    cluster = served(PORTS, LISTENS, pod("a"))
    cluster.places.put(
        SERVICES,
        {"metadata": {"name": "chat"}, "spec": {"selector": {IN_ROTATION: "true"}, "ports": PORTS}},
    )
    told = found(cluster, 80)
    assert told.reason == "SelectsNobody"
    assert [one.movable for one in told.endpoints] == [False]


def test_a_port_of_two_protocols_is_the_one_that_is_spoken() -> None:
    """The same number for UDP, as HTTP/3 has it, is no server's port."""
    ports: list[Object] = [
        {"name": "quic", "port": 80, "targetPort": 4433, "protocol": "UDP"},
        {"name": "http", "port": 80, "targetPort": "http", "protocol": "TCP"},
    ]
    cluster = served(ports, [{"name": "quic", "port": 4433}, {"name": "http", "port": 8000}], pod("a"))
    assert [one.port for one in found(cluster, 80).endpoints] == [8000]


def test_a_pod_that_was_let_in_keeps_its_place_until_its_service_lists_it() -> None:
    """EndpointSlices follow a label in a moment: nobody is taken for another one then, and a pod that is not
    ready yet takes no place.
    """
    cluster = served(PORTS, LISTENS, pod("a"), pod("b", OUT))
    backend = BackendRef(name="chat", port=80)
    kernel = KernelBackend(kernel="fp8", backend=backend, replicas=2)
    discovery = PodDiscovery(cast(Cluster, cluster), [kernel])
    discovery.refresh()
    before = discovery.occupants
    cluster.places.put(PODS, pod("b"))
    unready = pod("c")
    unready["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    cluster.places.put(PODS, unready)
    discovery.refresh()
    assert discovery.occupants == before
    found = {one.pod: (one.replica.state, one.in_rotation) for one in discovery.pods}
    assert found == {"a": (ReplicaState.READY, True), "b": (ReplicaState.STARTING, True)}


@pytest.mark.parametrize("first", [True, False])
def test_a_pod_that_moves_between_slices_is_as_ready_as_either_says(first: bool) -> None:
    """For a moment two slices list it, one of them outdated; whichever name comes first, it serves."""
    kernel = KernelBackend(kernel="fp8", backend=BackendRef(name="chat", port=80), replicas=1)
    cluster = served(PORTS, LISTENS, pod("a"))
    cluster.places.drop(SLICES, "chat-1")
    for name, ready in (("chat-0", first), ("chat-9", not first)):
        listed(cluster, name, "IPv4", endpoint("a", "10.0.0.1", ready=ready))
    discovery = PodDiscovery(cast(Cluster, cluster), (kernel,))
    discovery.refresh()
    assert [one.replica.state for one in discovery.pods] == [ReplicaState.READY]
