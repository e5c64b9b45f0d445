"""Which servers are behind a Service, at which port; pods that have ended are not among them."""

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
    """The Service's port leads by name to the port of its EndpointSlice."""
    cluster = served(PORTS, LISTENS, pod("a"), pod("b", OUT))
    assert {one.pod: one.port for one in found(cluster, 80).endpoints} == {"a": 8000, "b": 8000}
    assert {one.port for one in found(cluster, 9090).endpoints} == {9090}


def test_a_port_without_a_name_is_the_only_one() -> None:
    """A Service with a single port may leave it unnamed."""
    cluster = served([{"port": 80, "targetPort": 8000}], [{"port": 8000}], pod("a"))
    assert [one.url for one in found(cluster, 80).endpoints] == ["http://10.0.0.1:8000"]


def test_if_all_pods_are_out_the_service_gives_their_port() -> None:
    """With no pod in rotation no slice has the port; a numeric target port of the Service is used."""
    cluster = served([{"port": 80, "targetPort": 8000}], [], pod("a", OUT))
    assert [one.port for one in found(cluster, 80).endpoints] == [8000]


def test_a_port_that_the_service_lacks_is_reported() -> None:
    """A backend that names the pods' port instead of the Service's has no servers; the reason is given."""
    told = found(served(PORTS, LISTENS, pod("a")), 8000)
    assert (told.endpoints, told.reason) == ((), "PortNotFound")
    assert "expected port 8000" in told.message
    assert "[80, 9090]" in told.message


@pytest.mark.parametrize("place", ["true", OUT])
@pytest.mark.parametrize("end", [{"phase": "Failed"}, {"phase": "Succeeded"}, {"deleted": True}])
def test_a_pod_that_ended_is_no_replica(place: str, end: dict[str, Any]) -> None:
    """A pod that failed, succeeded or is being deleted is no replica; the next pod gets its slot."""
    kernel = KernelBackend(kernel="fp8", backend=BackendRef(name="chat", port=80), replicas=2)
    cluster = served(PORTS, LISTENS, pod("a"), pod("b", place))
    discovery = PodDiscovery(cast(Cluster, cluster), (kernel,))
    discovery.refresh()
    assert {one.pod: one.slot for one in discovery.pods} == {"a": "fp8-0", "b": "fp8-1"}
    cluster.places = served(PORTS, LISTENS, pod("a"), pod("b", place, **end), pod("c")).places
    discovery.refresh()  # a slot stays empty for one refresh
    assert [one.pod for one in discovery.pods] == ["a"]
    discovery.refresh()
    assert {one.pod: one.slot for one in discovery.pods} == {"a": "fp8-0", "c": "fp8-1"}
    assert all(one.replica.state == ReplicaState.READY for one in discovery.pods)


def test_servers_of_several_slices_are_all_found() -> None:
    """A Service with more than a hundred servers has several slices; all their servers are found."""
    cluster = served(PORTS, LISTENS)
    for n in range(3):
        pods = [f"p-{n}-{m}" for m in range(100)]
        listed(cluster, f"chat-{n + 2}", "IPv4", *(endpoint(one, "10.0.0.1", ready=True) for one in pods))
    assert len({one.pod for one in found(cluster, 80).endpoints}) == 300


def test_a_pod_published_before_it_is_ready_is_starting() -> None:
    """With publishNotReadyAddresses every endpoint is ready; ``serving`` decides, and terminating is out."""
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
    """An endpoint of another controller is known by its address; one without an address is ignored."""
    cluster = served(PORTS, LISTENS)
    listed(
        cluster,
        "chat-1",
        "IPv4",
        endpoint("vm", "10.0.0.7", kind="WorkloadEntry", ready=True),
        {"addresses": [], "conditions": {}},
    )
    assert [(one.pod, one.key) for one in found(cluster, 80).endpoints] == [("", "10.0.0.7:8000")]


def test_pods_of_a_service_that_selects_by_rotation_alone_are_not_movable() -> None:
    """Such a Service selects pods of every kernel, so a pod taken out could not be found again."""
    cluster = served(PORTS, LISTENS, pod("a"))
    cluster.places.put(
        SERVICES,
        {"metadata": {"name": "chat"}, "spec": {"selector": {IN_ROTATION: "true"}, "ports": PORTS}},
    )
    told = found(cluster, 80)
    assert told.reason == "SelectsNobody"
    assert [one.movable for one in told.endpoints] == [False]


def test_a_port_of_two_protocols_is_the_one_that_is_spoken() -> None:
    """The same port number for UDP, as for HTTP/3, is not used."""
    ports: list[Object] = [
        {"name": "quic", "port": 80, "targetPort": 4433, "protocol": "UDP"},
        {"name": "http", "port": 80, "targetPort": "http", "protocol": "TCP"},
    ]
    cluster = served(ports, [{"name": "quic", "port": 4433}, {"name": "http", "port": 8000}], pod("a"))
    assert [one.port for one in found(cluster, 80).endpoints] == [8000]


def test_a_returned_pod_keeps_its_slot_until_its_service_lists_it() -> None:
    """A pod that was let in keeps its slot until the EndpointSlice follows the label.

    Meanwhile a pod that is not ready gets no slot.
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
    """For a moment two slices list the pod, one outdated; it is ready if either says so, in any order."""
    kernel = KernelBackend(kernel="fp8", backend=BackendRef(name="chat", port=80), replicas=1)
    cluster = served(PORTS, LISTENS, pod("a"))
    cluster.places.drop(SLICES, "chat-1")
    for name, ready in (("chat-0", first), ("chat-9", not first)):
        listed(cluster, name, "IPv4", endpoint("a", "10.0.0.1", ready=ready))
    discovery = PodDiscovery(cast(Cluster, cluster), (kernel,))
    discovery.refresh()
    assert [one.replica.state for one in discovery.pods] == [ReplicaState.READY]
