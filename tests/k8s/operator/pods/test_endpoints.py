"""Who stands behind a Service: at the port that the pool names, and nobody whose pod has ended."""

from __future__ import annotations

from typing import Any, cast

import pytest

from contracts.documents.pool import BackendRef
from contracts.telemetry import ReplicaState
from k8s.operator.objects import Cluster
from k8s.operator.pods.pod_facts import IN_ROTATION, OUT
from k8s.operator.pods.replicas import KernelBackend, PodDiscovery
from k8s.operator.pods.slots import PODS, SERVICES, SLICES
from tests.support.cluster.sliced_services import LISTENS, PORTS, Object, endpoint, found, listed, pod, served


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
