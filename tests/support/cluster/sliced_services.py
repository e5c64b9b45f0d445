"""A Service of tests with its pods and EndpointSlices, as a watch reports them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from contracts.documents.pool import BackendRef
from k8s.operator.objects import Cluster
from k8s.operator.pods.endpoints import FoundEndpoints, endpoints_of
from k8s.operator.pods.pod_facts import IN_ROTATION
from k8s.operator.pods.slots import OF_SERVICE, PODS, SERVICES, SLICES, Places

Object = dict[str, Any]

#: As a Service in front of vLLM with a sidecar: the metrics port is first in every list.
PORTS: list[Object] = [
    {"name": "metrics", "port": 9090, "targetPort": 9090},
    {"name": "http", "port": 80, "targetPort": "http"},
]
LISTENS = [{"name": "metrics", "port": 9090}, {"name": "http", "port": 8000}]


@dataclass
class WatchedService:
    """The part of ``Cluster`` that discovery reads, as a watch reports it."""

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


def served(ports: list[Object], listens: list[Object], *pods: Object) -> WatchedService:
    """A Service ``chat`` with ``pods``; those in rotation are listed, as the cluster's controller would."""
    cluster = WatchedService()
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


def found(cluster: WatchedService, port: int) -> FoundEndpoints:
    """Backends of ``chat`` at ``port`` of the Service."""
    return endpoints_of(cast(Cluster, cluster), BackendRef(name="chat", port=port), None)


def listed(cluster: WatchedService, name: str, family: str, *endpoints: Object) -> None:
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
