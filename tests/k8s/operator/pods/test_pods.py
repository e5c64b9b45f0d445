"""Pods as clusters have them: replaced under one name, dual-stack, in rollouts, in older InferencePools."""

from __future__ import annotations

from typing import Any, cast

import pytest

pytest.importorskip("kubernetes", reason="install the extra k8s: make setup-test")

from contracts.documents.pool import POOL_GROUP, BackendRef
from contracts.telemetry import ReplicaState
from k8s.operator.objects import Cluster
from k8s.operator.pods.endpoints import endpoints_of
from k8s.operator.pods.pod_facts import IN_ROTATION, OUT
from k8s.operator.pods.replicas import KernelBackend, PodDiscovery
from k8s.operator.pods.slots import OF_SERVICE, PODS, POOLS, SERVICES, SLICES
from tests.support.cluster.sliced_services import WatchedService

Object = dict[str, Any]
SERVICE, POOL = (
    BackendRef(name="chat", port=80),
    BackendRef(group=POOL_GROUP, kind="InferencePool", name="chat"),
)


class Watched(WatchedService):
    """A watched Service with InferencePools."""

    def inference_pool(self, name: str) -> Object | None:
        """An InferencePool."""
        return self.places.inference_pool(name)


class Cast:
    """Pods of one Service, created and listed as controllers do."""

    def __init__(self, families: tuple[str, ...] = ("IPv4",)) -> None:
        self.watched, self._families = Watched(), families
        self._ready: dict[str, Object] = {}
        spec = {
            "selector": {"app": "chat", IN_ROTATION: "true"},
            "ports": [{"name": "http", "port": 80, "targetPort": "serve"}],
            "ipFamilies": list(families),
        }
        self.watched.places.put(SERVICES, {"metadata": {"name": "chat"}, "spec": spec})

    def put(self, name: str, *ips: str, uid: str = "", label: str = "true", **conditions: bool) -> None:
        """Create or replace a pod; ``ips`` start with the cluster's first address family."""
        metadata = {"name": name, "uid": uid or name, "labels": {"app": "chat", IN_ROTATION: label}}
        status = {
            "phase": "Running",
            "podIP": ips[0],
            "podIPs": [{"ip": one} for one in ips],
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        if conditions.get("terminating"):
            metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        self.watched.places.put(PODS, {"metadata": metadata, "status": status})
        said = {"ready": True, "serving": True, "terminating": False, **conditions}
        self._ready[name] = {"ips": ips, "uid": uid or name, "conditions": said}
        if label != "true":
            del self._ready[name]
        self._list()

    def drop(self, name: str) -> None:
        """Delete a pod."""
        self.watched.places.drop(PODS, name)
        self._ready.pop(name, None)
        self._list()

    def discovery(self, replicas: int, earlier: PodDiscovery | None = None) -> PodDiscovery:
        """Discovery of a kernel with ``replicas`` slots; ``earlier``: takes over its slots and uids."""
        kernel = KernelBackend(kernel="fp8", backend=SERVICE, replicas=replicas)
        slots, uids = (None, None) if earlier is None else (earlier.slots, earlier.uids)
        return PodDiscovery(cast(Cluster, self.watched), (kernel,), slots=slots, uids=uids)

    def _list(self) -> None:
        for family in self._families:
            endpoints = []
            for name, one in self._ready.items():
                target = {"kind": "Pod", "name": name, "uid": one["uid"]}
                ips = [ip for ip in one["ips"] if (":" in ip) == (family == "IPv6")]
                endpoints.append({"addresses": ips, "conditions": one["conditions"], "targetRef": target})
            labels, name = {OF_SERVICE: "chat"}, f"chat-{family.lower()}"
            ports = [{"name": "http", "port": 8000}]
            found = {"metadata": {"name": name, "labels": labels}, "addressType": family, "ports": ports}
            self.watched.places.put(SLICES, {**found, "endpoints": endpoints})


def two_pods() -> Cast:
    """``chat-0``, whose uid is ``first``, and ``chat-1``."""
    found = Cast()
    found.put("chat-0", "10.0.0.1", uid="first")
    found.put("chat-1", "10.0.0.2")
    return found


def slots(discovery: PodDiscovery) -> dict[str, str]:
    """Pod -> slot."""
    return {one.pod: one.slot for one in discovery.pods}


def urls(discovery: PodDiscovery) -> list[str]:
    """URL of every replica."""
    return [one.url for one in discovery.replicas()]


def test_a_pod_replaced_under_its_name_is_a_new_replica() -> None:
    """As in a StatefulSet: the slot is empty once, so the new pod does not inherit the old one's state."""
    cast_ = two_pods()
    discovery = cast_.discovery(2)
    discovery.refresh()
    before = slots(discovery)
    cast_.put("chat-0", "10.0.0.9", uid="second")
    discovery.refresh()
    assert slots(discovery) == {"chat-1": before["chat-1"]}
    assert discovery.beyond == ()
    discovery.refresh()
    assert slots(discovery) == before
    assert urls(discovery) == ["http://10.0.0.9:8000", "http://10.0.0.2:8000"]


def test_the_next_discovery_knows_the_uid_that_a_slot_was_kept_for() -> None:
    """A pod that was replaced under its name between two discoveries is new; its peer keeps its slot."""
    cast_ = two_pods()
    earlier = cast_.discovery(2)
    earlier.refresh()
    before = slots(earlier)
    cast_.put("chat-0", "10.0.0.9", uid="second")
    following = cast_.discovery(2, earlier)
    following.refresh()
    assert slots(following) == {"chat-1": before["chat-1"]}
    following.refresh()
    assert slots(following) == before


def test_a_pod_whose_address_changed_keeps_its_slot() -> None:
    """A pod whose sandbox was recreated has a new address and the same uid; it is asked there at once."""
    cast_ = Cast()
    cast_.put("chat-0", "10.0.0.1")
    discovery = cast_.discovery(1)
    discovery.refresh()
    cast_.put("chat-0", "10.0.0.7")
    discovery.refresh()
    assert (slots(discovery), urls(discovery)) == ({"chat-0": "fp8-0"}, ["http://10.0.0.7:8000"])


def test_two_pods_with_one_address_are_one_server() -> None:
    """If a terminating pod still has the address of another pod, only the other pod is a replica."""
    cast_ = Cast()
    cast_.put("chat-a", "10.0.0.1", ready=False, terminating=True)
    cast_.put("chat-b", "10.0.0.1")
    discovery = cast_.discovery(2)
    discovery.refresh()
    assert list(slots(discovery)) == ["chat-b"]


def test_a_pod_with_a_long_grace_takes_no_new_work_and_no_place() -> None:
    """A pod that is serving but terminating is no replica, although gateways may fall back to it."""
    cast_ = Cast()
    cast_.put("chat-a", "10.0.0.1", ready=False, serving=True, terminating=True)
    discovery = cast_.discovery(1)
    discovery.refresh()
    assert discovery.pods == ()


@pytest.mark.parametrize(
    ("families", "ips", "url"),
    [
        (("IPv6",), ("fd00::1",), "http://[fd00::1]:8000"),
        (("IPv6",), ("10.0.0.1", "fd00::1"), "http://[fd00::1]:8000"),
        (("IPv4",), ("fd00::1", "10.0.0.1"), "http://10.0.0.1:8000"),
        (("IPv6", "IPv4"), ("fd00::1", "10.0.0.1"), "http://[fd00::1]:8000"),
        (("IPv6", "IPv4"), ("10.0.0.1", "fd00::1"), "http://[fd00::1]:8000"),
        (("IPv4", "IPv6"), ("fd00::1", "10.0.0.1"), "http://10.0.0.1:8000"),
    ],
)
def test_a_pod_is_asked_at_one_address_in_rotation_and_out_of_it(
    families: tuple[str, ...], ips: tuple[str, ...], url: str
) -> None:
    """A pod out of rotation is asked at the same address as before, in the Service's address family.

    A server that listens on one family alone would otherwise never answer and never come back.
    """
    cast_ = Cast(families)
    cast_.put("chat-0", *ips)
    cast_.put("chat-1", *[f"{ip}2" for ip in ips])
    discovery = cast_.discovery(2)
    discovery.refresh()
    assert urls(discovery)[0] == url
    cast_.put("chat-0", *ips, label=OUT)
    discovery.refresh()
    (out,) = [one for one in discovery.pods if not one.in_rotation]
    assert (out.pod, out.replica.url, out.replica.state) == ("chat-0", url, ReplicaState.READY)


def test_a_rollout_under_a_quarantine_brings_new_pods_in_and_holds_the_old_one() -> None:
    """Pods of a surge get the free slots; a quarantined pod keeps its slot until it is deleted.

    Its successor is a new replica and in rotation.
    """
    cast_ = Cast()
    for name, ip in (("old-a", "10.0.0.1"), ("old-b", "10.0.0.2")):
        cast_.put(name, ip)
    discovery = cast_.discovery(3)
    discovery.refresh()
    before = slots(discovery)
    cast_.put("old-b", "10.0.0.2", label=OUT)
    cast_.put("new-a", "10.0.0.3")
    discovery.refresh()
    assert slots(discovery) == {**before, "new-a": "fp8-2"}
    assert [one.pod for one in discovery.pods if one.taken_out] == ["old-b"]
    cast_.drop("old-a")
    cast_.put("new-b", "10.0.0.4")
    discovery.refresh()
    assert "new-b" not in slots(discovery)
    assert discovery.beyond == ()
    discovery.refresh()
    assert slots(discovery) == {"new-b": before["old-a"], "old-b": before["old-b"], "new-a": "fp8-2"}
    cast_.drop("old-b")
    discovery.refresh()
    assert all(one.in_rotation for one in discovery.pods)


def test_a_missing_service_is_reported() -> None:
    """A backend whose Service does not exist has no servers and a reason, like an InferencePool."""
    found = endpoints_of(cast(Cluster, Watched()), SERVICE, None)
    assert (found.endpoints, found.reason) == ((), "BackendNotFound")
    assert "Service chat" in found.message


def pooled(selector: Object, ports: object = None) -> Watched:
    """An InferencePool ``chat`` and one pod with the labels that select it."""
    cluster = Watched()
    spec = {"selector": selector, "targetPorts": [{"number": 8000}] if ports is None else ports}
    cluster.places.put(POOLS, {"metadata": {"name": "chat"}, "spec": spec})
    labels = {"app": "chat", IN_ROTATION: "true"}
    status = {"phase": "Running", "podIP": "10.0.0.1"}
    cluster.places.put(PODS, {"metadata": {"name": "a", "labels": labels}, "status": status})
    return cluster


@pytest.mark.parametrize(
    ("selector", "ports", "reason", "said"),
    [
        ({"matchLabels": {"app": "chat", IN_ROTATION: "true"}}, None, "", ""),
        ({"app": "chat", IN_ROTATION: "true"}, None, "SelectorNotRead", "matchLabels alone"),
        (
            {"matchLabels": {"app": "chat"}, "matchExpressions": [{"key": "app", "operator": "Exists"}]},
            None,
            "SelectorNotRead",
            "matchExpressions",
        ),
        ({"matchLabels": {"app": "chat"}}, None, "NotInSelector", IN_ROTATION),
        ({"matchLabels": {"app": "chat", IN_ROTATION: "true"}}, [], "NotOneTargetPort", "got []"),
        ({"matchLabels": {"app": "chat", IN_ROTATION: "true"}}, [{}], "NotOneTargetPort", "got [None]"),
    ],
)
def test_selectors_of_other_pool_versions_select_no_pod(
    selector: Object, ports: object, reason: str, said: str
) -> None:
    """Selectors of the predecessor, or with terms that v1 does not have, select no pod."""
    found = endpoints_of(cast(Cluster, pooled(selector, ports)), POOL, None)
    assert found.reason == reason
    assert said in found.message
    assert [one.pod for one in found.endpoints] == (["a"] if reason in ("", "NotInSelector") else [])
    assert all(one.movable is (reason == "") for one in found.endpoints)


def test_if_only_the_predecessor_is_installed_the_message_says_so() -> None:
    """If only the predecessor is installed there is no pool; the message names v1 and the predecessor."""
    found = endpoints_of(cast(Cluster, Watched()), POOL, None)
    assert (found.endpoints, found.reason) == ((), "BackendNotFound")
    assert f"{POOL_GROUP}/v1" in found.message
    assert "inference.networking.x-k8s.io" in found.message
