"""Address and port at which a server is reached: dual-stack Services and named ports."""

from __future__ import annotations

from typing import cast

import pytest

from contracts.documents.pool import BackendRef
from k8s.operator.objects import Cluster
from k8s.operator.pods.pod_facts import OUT
from k8s.operator.pods.replicas import KernelBackend, PodDiscovery
from k8s.operator.pods.slots import SERVICES, SLICES
from tests.support.cluster.sliced_services import LISTENS, PORTS, Object, endpoint, found, listed, pod, served


def test_a_pod_of_two_address_families_is_one_server() -> None:
    """In a dual-stack Service, a pod that is in the slices of both families is one replica.

    Its IPv4 address is used if the Service does not state an order of families.
    """
    kernel = KernelBackend(kernel="fp8", backend=BackendRef(name="chat", port=80), replicas=1)
    cluster = served(PORTS, LISTENS, pod("a"))
    cluster.places.drop(SLICES, "chat-1")
    for name in ("chat-0", "chat-9"):  # either family may come first by name
        family, address = ("IPv6", "fd00::1") if name == "chat-0" else ("IPv4", "10.0.0.1")
        listed(cluster, name, family, endpoint("a", address, ready=True))
    discovery = PodDiscovery(cast(Cluster, cluster), (kernel,))
    discovery.refresh()
    assert [one.replica.url for one in discovery.pods] == ["http://10.0.0.1:8000"]
    assert discovery.beyond == ()


def no_pod(address: str, **stated: str) -> Object:
    """An EndpointSlice entry without a pod, as written by hand."""
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
    """Endpoints without pods in a dual-stack Service: those of the first family count.

    An endpoint of the other family is a further server only if its hostname or node tells it apart.
    """
    cluster = served(PORTS, LISTENS)
    cluster.places.drop(SLICES, "chat-1")
    spec = {"ports": PORTS, "ipFamilies": list(families)}
    cluster.places.put(SERVICES, {"metadata": {"name": "chat"}, "spec": spec})
    listed(cluster, "chat-0", "IPv6", *(no_pod(V6[n], **one) for n, one in enumerate(v6)))
    listed(cluster, "chat-9", "IPv4", *(no_pod(V4[n], **one) for n, one in enumerate(v4)))
    assert sorted(one.address for one in found(cluster, 80).endpoints) == sorted(servers)


def test_targets_that_are_no_pods_are_identified_by_name() -> None:
    """A target that is not a pod has its own name: the same name in both families is one server."""
    cluster = served(PORTS, LISTENS)
    cluster.places.drop(SLICES, "chat-1")
    for family, addresses in (("IPv4", V4), ("IPv6", V6)):
        vms = [endpoint(f"vm-{n}", addresses[n], kind="WorkloadEntry", ready=True) for n in range(2)]
        late = [endpoint("vm-9", V6[2], kind="WorkloadEntry", ready=True)] if family == "IPv6" else []
        listed(cluster, family.lower(), family, *vms, *late)
    assert [one.address for one in found(cluster, 80).endpoints] == [*V4[:2], V6[2]]


def listening(one: Object, containers: list[Object], sidecars: list[Object] | None = None) -> Object:
    """``one`` with containers, each of them with its ports."""
    return {**one, "spec": {"containers": containers, "initContainers": sidecars or []}}


def serving_at(number: int, name: str = "http", **others: str) -> Object:
    """A container that serves at a port of the given name."""
    return {"name": "vllm", "ports": [{"name": name, "containerPort": number}], **others}


@pytest.mark.parametrize(
    ("out", "port"),
    [
        (listening(pod("b", OUT), [serving_at(8100)]), 8100),
        (listening(pod("b", OUT), [serving_at(9090, "metrics"), serving_at(8100)]), 8100),
        (listening(pod("b", OUT), [], [serving_at(8100, restartPolicy="Always")]), 8100),
        (listening(pod("b", OUT), [], [serving_at(8100)]), 8000),  # an init container ends before serving
        (listening(pod("b", OUT), [serving_at(8100, protocol="UDP")]), 8000),
        (listening(pod("b", OUT), [serving_at(8100, "other")]), 8000),
    ],
)
def test_a_pod_out_of_rotation_is_asked_at_its_own_named_port(out: Object, port: int) -> None:
    """While a rollout changes the number of a named port, a pod out of rotation keeps its own number.

    A pod without a port of that name is asked at the number of the others.
    """
    out["spec"]["containers"] = [
        {**one, "ports": [{**each, "protocol": one.get("protocol")} for each in one["ports"]]}
        for one in out["spec"]["containers"]
    ]
    cluster = served(PORTS, LISTENS, pod("a"), out)
    assert {one.pod: one.port for one in found(cluster, 80).endpoints} == {"a": 8000, "b": port}


def test_if_all_pods_are_out_their_named_port_is_used() -> None:
    """With no pod in rotation, the number comes from each pod's containers, also after a restart."""
    cluster = served(PORTS, [], listening(pod("a", OUT), [serving_at(8100)]), pod("b", OUT))
    assert {one.pod: one.port for one in found(cluster, 80).endpoints} == {"a": 8100}
