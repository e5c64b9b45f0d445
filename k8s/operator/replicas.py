"""Pods as the replicas of a layout: discovery through EndpointSlices, one slot of a kernel per pod.

A layout names a fixed number of replicas; pods come and go. A pod keeps its slot while it exists, and a slot
that was freed goes to the next new pod. A pod that was taken out of rotation left its Service's slices and is
found by its label; it is not ready for traffic and is still scraped and probed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from contracts.telemetry import ReplicaState
from k8s.operator.objects import Cluster, Manifest
from live.ports import LiveReplica

#: Label of a pod, "true" in its template; part of the Service's selector and never of a Deployment's.
IN_ROTATION = "selvage.dev/in-rotation"
#: Annotation of a pod with the fingerprint that its server states.
FINGERPRINT = "selvage.dev/fingerprint"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelService:
    """Where the replicas of one kernel are found."""

    kernel: str
    service: str
    replicas: int
    """Slots."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodReplica:
    """A pod in its slot."""

    slot: str
    pod: str
    """Name, "" for an endpoint that is no pod."""
    in_rotation: bool
    replica: LiveReplica


class PodDiscovery:
    """``live.ports.Discovery`` of one pool, as ``refresh`` saw it last."""

    def __init__(self, cluster: Cluster, kernels: Sequence[KernelService]) -> None:
        self._cluster, self._kernels = cluster, tuple(kernels)
        self._slots: dict[str, dict[str, str]] = {kernel.kernel: {} for kernel in kernels}
        self._ports: dict[str, int] = {}
        self._settled_at: int | None = None
        self.pods: tuple[PodReplica, ...] = ()
        #: Kernels whose Service does not select by ``IN_ROTATION``: their pods cannot be taken out.
        self.unlabelled: tuple[str, ...] = ()

    def replicas(self) -> tuple[LiveReplica, ...]:
        """Every pod that has a slot, ready or not, in the order of kernels and slots."""
        return tuple(one.replica for one in self.pods)

    def refresh(self) -> None:
        """See what is there; on ClusterError what was seen last stays, as where nothing is new."""
        version = self._cluster.places_version
        if version is not None and version == self._settled_at:
            return
        before = self._slots
        self._see()
        self._settled_at = version if before == self._slots else None  # a place that is left is empty once

    def _see(self) -> None:
        """Ask the server."""
        found: list[PodReplica] = []
        unlabelled = []
        for kernel in self._kernels:
            service = self._cluster.service(kernel.service)
            selector = dict((service or {}).get("spec", {}).get("selector") or {})
            if IN_ROTATION not in selector:
                unlabelled.append(kernel.kernel)
            found += self._of_kernel(kernel, selector)
        self.pods, self.unlabelled = tuple(found), tuple(unlabelled)

    def ready_url(self, service: str) -> str:
        """Address of a ready pod of any Service, "" where there is none. Raises ClusterError."""
        found = _endpoints(self._cluster.endpoint_slices(service))
        return next((_url(one) for one in found if one.state == ReplicaState.READY), "")

    def _of_kernel(self, kernel: KernelService, selector: Mapping[str, str]) -> list[PodReplica]:
        endpoints = _endpoints(self._cluster.endpoint_slices(kernel.service))
        if endpoints:
            self._ports[kernel.kernel] = endpoints[0].port
        port = self._ports.get(kernel.kernel)
        own = {key: value for key, value in selector.items() if key != IN_ROTATION}
        pods = {str(pod["metadata"]["name"]): pod for pod in (self._cluster.pods(own) if own else [])}
        found = [replace(one, fingerprint=_fingerprint(pods.get(one.pod))) for one in endpoints]
        known = {one.key for one in found}
        if port is not None:
            found += [_apart(pod, port) for name, pod in pods.items() if name not in known and _is_out(pod)]
        return self._slotted(kernel, found)

    def _slotted(self, kernel: KernelService, endpoints: Sequence[_Endpoint]) -> list[PodReplica]:
        """The endpoints in their slots; those beyond the declared number of replicas have none.

        A slot that is left now is empty once: whoever comes next is seen to be another one.
        """
        present = {one.key: one for one in endpoints}
        before = self._slots[kernel.kernel]
        slots = {key: slot for key, slot in before.items() if key in present}
        free = [f"{kernel.kernel}-{n}" for n in range(kernel.replicas)]
        free = [slot for slot in free if slot not in before.values()]
        for key in sorted(present.keys() - slots.keys()):
            if free:
                slots[key] = free.pop(0)
        self._slots = {**self._slots, kernel.kernel: slots}
        return [
            _pod_replica(present[key], slot, kernel.kernel)
            for key, slot in sorted(slots.items(), key=lambda item: item[1])
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Endpoint:
    key: str
    """Pod, or address and port."""
    pod: str
    address: str
    port: int
    state: ReplicaState
    in_rotation: bool
    fingerprint: str = ""


def _endpoints(slices: Sequence[Manifest]) -> list[_Endpoint]:
    found = []
    for one in slices:
        ports = [port["port"] for port in one.get("ports") or [] if port.get("port")]
        listed = one.get("endpoints") or [] if ports else []
        found += [_endpoint(endpoint, int(ports[0])) for endpoint in listed]
    return found


def _endpoint(endpoint: Mapping[str, Any], port: int) -> _Endpoint:
    said = endpoint.get("conditions") or {}
    ready = said.get("ready", True)
    state = ReplicaState.READY if ready is not False else ReplicaState.STARTING
    if said.get("terminating"):
        state = ReplicaState.DRAINING
    pod = str((endpoint.get("targetRef") or {}).get("name", ""))
    address = str(endpoint["addresses"][0])
    key = pod or f"{address}:{port}"
    return _Endpoint(key=key, pod=pod, address=address, port=port, state=state, in_rotation=True)


def _is_out(pod: Manifest) -> bool:
    return bool((pod["metadata"].get("labels") or {}).get(IN_ROTATION) == "false")


def _fingerprint(pod: Manifest | None) -> str:
    annotations = {} if pod is None else pod["metadata"].get("annotations") or {}
    return str(annotations.get(FINGERPRINT, ""))


def _apart(pod: Manifest, port: int) -> _Endpoint:
    """A pod that we took out: as ready as its own condition says."""
    status = pod.get("status") or {}
    conditions = {one["type"]: one["status"] for one in status.get("conditions") or []}
    state = ReplicaState.READY if conditions.get("Ready") == "True" else ReplicaState.STARTING
    if pod["metadata"].get("deletionTimestamp"):
        state = ReplicaState.DRAINING
    name = str(pod["metadata"]["name"])
    return _Endpoint(
        key=name,
        pod=name,
        address=str(status.get("podIP", "")),
        port=port,
        state=state,
        in_rotation=False,
        fingerprint=_fingerprint(pod),
    )


def _pod_replica(found: _Endpoint, slot: str, kernel: str) -> PodReplica:
    replica = LiveReplica(
        name=slot,
        kernel=kernel,
        url=_url(found),
        state=found.state,
        fingerprint=found.fingerprint,
    )
    return PodReplica(slot=slot, pod=found.pod, in_rotation=found.in_rotation, replica=replica)


def _url(found: _Endpoint) -> str:
    host = f"[{found.address}]" if ":" in found.address else found.address
    return f"http://{host}:{found.port}"
