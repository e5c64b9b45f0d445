"""The servers behind one backend: EndpointSlices of a Service, or the pods that an InferencePool selects.

A pod out of rotation is no longer selected by the gateway. It is found by its other labels, and is still
scraped and probed. A pod that was just put back into rotation keeps its slot until the EndpointSlices list
it. A pod that has ended (evicted, failed) or is being deleted is not a replica any more: its slot is free.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from contracts.documents.pool import POOL_GROUP, BackendRef
from contracts.telemetry import ReplicaState
from k8s.operator.objects import Cluster, Manifest
from k8s.operator.pods.pod_facts import (
    IN,
    IN_ROTATION,
    OUT,
    UPGRADED,
    asked_families,
    has_ended,
    is_arriving,
    is_ready,
    is_selected,
    may_be,
    named_port,
    pod_address,
    pod_fingerprint,
    pod_label,
    serves,
)
from k8s.operator.pods.slices import BackendEndpoint, listed_servers
from k8s.operator.pods.slots import POOL_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundEndpoints:
    """The servers behind a backend. reason: one word for a condition, "" if nothing is wrong."""

    endpoints: tuple[BackendEndpoint, ...]
    port: int | None
    """Port that servers listen on; None while it is unknown."""
    reason: str = ""
    message: str = ""
    selector: Mapping[str, str] = field(default_factory=dict)
    """Labels by which the backend selects its pods."""


def endpoints_of(cluster: Cluster, backend: BackendRef, port: int | None) -> FoundEndpoints:
    """Servers of ``backend``, in rotation or not; ``port``: the last known port of its servers.

    Raises ClusterError.
    """
    if backend.kind == "InferencePool":
        return _behind_pool(cluster, backend.name)
    return _behind_service(cluster, backend, port)


def ready_url(cluster: Cluster, backend: BackendRef) -> str:
    """URL of a ready server that is in rotation, "" if there is none. Raises ClusterError."""
    found = endpoints_of(cluster, backend, None).endpoints
    return next((one.url for one in found if one.in_rotation and one.state == ReplicaState.READY), "")


def selector_of(cluster: Cluster, backend: BackendRef) -> dict[str, str]:
    """Labels by which ``backend`` selects its pods, empty if it does not exist. Raises ClusterError."""
    if backend.kind == "InferencePool":
        spec = (cluster.inference_pool(backend.name) or {}).get("spec") or {}
        return dict((spec.get("selector") or {}).get("matchLabels") or {})
    return dict(((cluster.service(backend.name) or {}).get("spec") or {}).get("selector") or {})


def _behind_service(cluster: Cluster, backend: BackendRef, port: int | None) -> FoundEndpoints:
    name = backend.name
    service = cluster.service(name)
    if service is None:
        message = f"there is no Service {name} in this namespace; apply it, or name another backend"
        return FoundEndpoints(endpoints=(), port=port, reason="BackendNotFound", message=message)
    spec = service.get("spec") or {}
    selector, ports = dict(spec.get("selector") or {}), list(spec.get("ports") or [])
    told = _port_of(ports, backend.port)
    if ports and told is None:
        return _without_port(backend, ports, selector)
    own, value = own_labels(selector), selector.get(IN_ROTATION, IN)
    movable = bool(own) and IN_ROTATION in selector
    reason, message = _selector_problem(f"Service {name}", selector) if selector else ("", "")
    pods = {str(pod["metadata"]["name"]): pod for pod in (cluster.pods(own) if own else [])}
    gone = {name for name, pod in pods.items() if has_ended(pod)}
    named = None if told is None else str(told.get("name") or "")
    listed = listed_servers(cluster.endpoint_slices(name), named, asked_families(spec))
    endpoints = [one for one in listed if one.pod not in gone]
    port = next((one.port for one in listed), _target_port(told) if port is None else port)
    found = [
        replace(
            one,
            fingerprint=pod_fingerprint(pods.get(one.pod)),
            movable=movable,
            label_in=value,
            label=pod_label(pods.get(one.pod)),
        )
        for one in endpoints
    ]
    known = {one.key for one in found} | gone
    alike = _Alike(port=port, named=_target_name(told), movable=movable, label_in=value)
    found += _unlisted([pod for name, pod in pods.items() if name not in known], spec, alike)
    return FoundEndpoints(
        endpoints=tuple(found), port=port, reason=reason, message=message, selector=selector
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Alike:
    """Properties that all servers of one Service share, as in ``BackendEndpoint``.

    named: name of the container port, "" for none; port: used for a pod without a port of that name; None:
    unknown.
    """

    port: int | None
    named: str
    movable: bool
    label_in: str

    def port_of(self, pod: Manifest) -> int | None:
        """Port that ``pod`` listens on."""
        return (named_port(pod, self.named) if self.named else None) or self.port


def _unlisted(pods: Sequence[Manifest], service: Mapping[str, Any], alike: _Alike) -> list[BackendEndpoint]:
    """Servers among ``pods`` that no EndpointSlice of the Service lists: pods out of rotation, and pods that
    are about to be listed. service: the Service's spec.
    """
    family, selector = asked_families(service)[0], dict(service.get("selector") or {})
    found = []
    for one in pods:
        soon, port = pod_label(one) != OUT, alike.port_of(one)
        if port is None or (soon and not is_arriving(one, selector)):
            continue
        there = _of_pod(one, port, in_rotation=soon, movable=alike.movable, family=family)
        state = ReplicaState.STARTING if soon else there.state
        found.append(replace(there, label_in=alike.label_in, state=state))
    return found


def _behind_pool(cluster: Cluster, name: str) -> FoundEndpoints:
    pool, what = cluster.inference_pool(name), f"InferencePool {name}"
    if pool is None:
        text = (
            f"there is no {what} of {POOL_GROUP}/{POOL_VERSION} in this namespace; install its definition "
            "and apply it, because pools of inference.networking.x-k8s.io, its predecessor, are not read"
        )
        return FoundEndpoints(endpoints=(), port=None, reason="BackendNotFound", message=text)
    spec = pool.get("spec") or {}
    if strange := sorted((spec.get("selector") or {}).keys() - {"matchLabels"}):
        text = (
            f"{what}: expected matchLabels alone in its selector, got {', '.join(map(str, strange))}; "
            "the pods that it selects are unknown, so write them as matchLabels"
        )
        return FoundEndpoints(endpoints=(), port=None, reason="SelectorNotRead", message=text)
    ports = [one.get("number") for one in spec.get("targetPorts") or []]
    if len(ports) != 1 or not isinstance(ports[0], int):
        text = (
            f"{what}: expected one target port, got {ports}; "
            "a pod leaves rotation with all its ports, so run one server per pod"
        )
        return FoundEndpoints(endpoints=(), port=None, reason="NotOneTargetPort", message=text)
    selector = {str(k): str(v) for k, v in ((spec.get("selector") or {}).get("matchLabels") or {}).items()}
    reason, message = _selector_problem(what, selector)
    own = own_labels(selector)
    value = selector.get(IN_ROTATION, "")
    movable = value in (IN, UPGRADED)
    pods = [one for one in (cluster.pods(own) if own else []) if serves(one) and may_be(one, value)]
    listed = (_of_pod(pod, ports[0], in_rotation=is_selected(pod, selector), movable=movable) for pod in pods)
    endpoints = tuple(replace(one, label_in=value or IN) for one in listed)
    return FoundEndpoints(
        endpoints=endpoints, port=ports[0], reason=reason, message=message, selector=selector
    )


def _selector_problem(what: str, selector: Mapping[str, str]) -> tuple[str, str]:
    """Reason and message if the label cannot take single pods out of rotation; "" if it can."""
    if not own_labels(selector):
        message = (
            f"{what}: expected labels of this kernel's pods in its selector, got {dict(selector)}; add them"
        )
        return "SelectsNobody", message
    if selector.get(IN_ROTATION) not in (IN, UPGRADED):
        got = selector.get(IN_ROTATION, "no such label")
        return "NotInSelector", (
            f'{what}: expected {IN_ROTATION}: "true" in its selector, got {got}; '
            "add it there and to the pods' template, else no pod can be taken out of rotation"
        )
    return "", ""


def own_labels(selector: Mapping[str, str]) -> dict[str, str]:
    """The selector's labels without the in-rotation label: they match a kernel's pods in rotation or not."""
    return {key: value for key, value in selector.items() if key != IN_ROTATION}


def _port_of(ports: Sequence[Manifest], number: int | None) -> Manifest | None:
    """The Service's TCP port with this number; None if there is none."""
    named = (one for one in ports if one.get("port") == number)
    return next((one for one in named if one.get("protocol") in (None, "TCP")), None)


def _without_port(
    backend: BackendRef, ports: Sequence[Manifest], selector: Mapping[str, str]
) -> FoundEndpoints:
    """No servers, because the Service lacks the backend's port; a gateway finds none either."""
    message = (
        f"Service {backend.name}: expected port {backend.port}, as the pool's backend names it, got "
        f"{sorted(one['port'] for one in ports)}; name a port of the Service, not of its pods"
    )
    return FoundEndpoints(endpoints=(), port=None, reason="PortNotFound", message=message, selector=selector)


def _target_port(told: Manifest | None) -> int | None:
    """Numeric target port of a Service's port; None if it is a name."""
    target = _target(told)
    return target if isinstance(target, int) else None


def _target_name(told: Manifest | None) -> str:
    """Name of a Service's target port; "" if it is a number."""
    target = _target(told)
    return target if isinstance(target, str) else ""


def _target(told: Manifest | None) -> Any:
    return None if told is None else told.get("targetPort") or told.get("port")


def _of_pod(
    pod: Manifest, port: int, *, in_rotation: bool, movable: bool, family: str = "IPv4"
) -> BackendEndpoint:
    """Endpoint from a pod itself: ready by its own condition, with its address of the given family."""
    status = pod.get("status") or {}
    state = ReplicaState.READY if is_ready(pod) else ReplicaState.STARTING
    name = str(pod["metadata"]["name"])
    return BackendEndpoint(
        key=name,
        pod=name,
        address=pod_address(status, family),
        port=port,
        state=state,
        in_rotation=in_rotation,
        fingerprint=pod_fingerprint(pod),
        movable=movable,
        label=pod_label(pod),
        uid=str(pod["metadata"].get("uid") or ""),
    )
