"""Facts read from a pod object: its label and build, its address, and whether it can serve. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from k8s.operator.objects import Manifest

#: Label of a pod, "true" in its template; part of the backend's selector and never of a Deployment's.
IN_ROTATION = "selvage.dev/in-rotation"
#: Values of that label. IN is in the selector of a backend. UPGRADED is in the selector of a candidate that
#: shares a Deployment with the kernel that it replaces. OUT takes a pod out of rotation.
IN, UPGRADED, OUT = "true", "candidate", "false"
#: Annotation of a pod with the fingerprint that its server states.
FINGERPRINT = "selvage.dev/fingerprint"
#: Fields of a pod's spec; init containers serve beside the others if they are sidecars.
CONTAINERS = ("containers", "initContainers")
#: Pods of these phases have ended and will not serve again.
_ENDED = ("Succeeded", "Failed")


def asked_families(service: Mapping[str, Any]) -> tuple[str, ...]:
    """IP families of a Service, in the order of its ``spec``; IPv4 if it names none. service: its spec."""
    return tuple(str(one) for one in service.get("ipFamilies") or []) or ("IPv4",)


def pod_address(status: Mapping[str, Any], family: str) -> str:
    """A pod's address from its ``status``: one of ``family``, else its first."""
    first = str(status.get("podIP") or "")
    known = [first, *(str(one.get("ip") or "") for one in status.get("podIPs") or [])]
    return next((one for one in known if one and (":" in one) == (family == "IPv6")), first)


def named_port(pod: Manifest, name: str) -> int | None:
    """Number of the TCP container port ``name`` of ``pod``, found as by Kubernetes' endpoints controller;
    None if no container has it. Pods of one Service may differ in it, for example during a rollout.
    """
    spec = pod.get("spec") or {}
    sidecars = [one for one in spec.get("initContainers") or [] if one.get("restartPolicy") == "Always"]
    ports = [port for one in [*(spec.get("containers") or []), *sidecars] for port in one.get("ports") or []]
    found = (one for one in ports if one.get("name") == name and one.get("protocol") in (None, "TCP"))
    return next((int(one["containerPort"]) for one in found if one.get("containerPort")), None)


def is_selected(pod: Manifest, selector: Mapping[str, str]) -> bool:
    """Whether ``selector`` matches the pod's labels."""
    return selector.items() <= (pod["metadata"].get("labels") or {}).items()


def serves(pod: Manifest) -> bool:
    """Whether the pod has an address and has not ended, as required by Kubernetes' endpoints controller."""
    return bool((pod.get("status") or {}).get("podIP")) and not has_ended(pod)


def has_ended(pod: Manifest) -> bool:
    """Whether the pod will not serve again: evicted, failed, completed, or being deleted."""
    phase = (pod.get("status") or {}).get("phase")
    return phase in _ENDED or bool(pod["metadata"].get("deletionTimestamp"))


def is_ready(pod: Manifest) -> bool:
    """Whether the pod's condition Ready is True."""
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def is_arriving(pod: Manifest, selector: Mapping[str, str]) -> bool:
    """Whether a Service with ``selector`` is about to list the pod in its EndpointSlices."""
    return serves(pod) and is_ready(pod) and is_selected(pod, selector)


def may_be(pod: Manifest, value: str) -> bool:
    """Whether the pod can belong to a backend whose selector has label value ``value`` ("" for none): it has
    no in-rotation label, that value, or OUT.
    """
    return not value or pod_label(pod) in ("", value, OUT)


def pod_label(pod: Manifest | None) -> str:
    """Value of the in-rotation label, "" if there is none."""
    labels = {} if pod is None else pod["metadata"].get("labels") or {}
    return str(labels.get(IN_ROTATION, ""))


def pod_fingerprint(pod: Manifest | None) -> str:
    """Fingerprint that the pod's server states, from its annotation; "" if there is none."""
    annotations = {} if pod is None else pod["metadata"].get("annotations") or {}
    return str(annotations.get(FINGERPRINT, ""))
