"""What a pod says of itself: its label and build, its address, and whether it will serve again. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from k8s.operator.objects import Manifest

#: Label of a pod, "true" in its template; part of the backend's selector and never of a Deployment's.
IN_ROTATION = "selvage.dev/in-rotation"
#: Values of that label. The first two stand in selectors of backends, the second in that of a candidate that
#: shares a Deployment with the kernel that it replaces; the third takes a pod out.
IN, UPGRADED, OUT = "true", "candidate", "false"
#: Annotation of a pod with the fingerprint that its server states.
FINGERPRINT = "selvage.dev/fingerprint"
#: Of a pod's spec; those of the second kind serve beside the others where they are sidecars.
CONTAINERS = ("containers", "initContainers")
#: Pods of these phases have ended and will not serve again.
_ENDED = ("Succeeded", "Failed")


def asked_families(service: Mapping[str, Any]) -> tuple[str, ...]:
    """Families of the addresses at which servers of a Service (``spec``) are asked, its first one first."""
    return tuple(str(one) for one in service.get("ipFamilies") or []) or ("IPv4",)


def pod_address(status: Mapping[str, Any], family: str) -> str:
    """Of a pod in its ``status``: one of ``family``, else its first."""
    first = str(status.get("podIP") or "")
    known = [first, *(str(one.get("ip") or "") for one in status.get("podIPs") or [])]
    return next((one for one in known if one and (":" in one) == (family == "IPv6")), first)


def named_port(pod: Manifest, name: str) -> int | None:
    """Where the container port ``name`` of ``pod`` is, for TCP, as the cluster's own endpoints find it; None
    where no container has it. Pods of one Service may differ in it, as while a rollout changes it.
    """
    spec = pod.get("spec") or {}
    sidecars = [one for one in spec.get("initContainers") or [] if one.get("restartPolicy") == "Always"]
    ports = [port for one in [*(spec.get("containers") or []), *sidecars] for port in one.get("ports") or []]
    found = (one for one in ports if one.get("name") == name and one.get("protocol") in (None, "TCP"))
    return next((int(one["containerPort"]) for one in found if one.get("containerPort")), None)


def is_selected(pod: Manifest, selector: Mapping[str, str]) -> bool:
    """Whether ``selector`` selects it."""
    return selector.items() <= (pod["metadata"].get("labels") or {}).items()


def serves(pod: Manifest) -> bool:
    """Whether it has an address and has not ended, as the cluster's own endpoints ask."""
    return bool((pod.get("status") or {}).get("podIP")) and not has_ended(pod)


def has_ended(pod: Manifest) -> bool:
    """Whether it will not serve again: evicted, failed, through, or being deleted."""
    phase = (pod.get("status") or {}).get("phase")
    return phase in _ENDED or bool(pod["metadata"].get("deletionTimestamp"))


def is_ready(pod: Manifest) -> bool:
    """By its own condition."""
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def is_arriving(pod: Manifest, selector: Mapping[str, str]) -> bool:
    """Whether a Service with ``selector`` is about to list it: its EndpointSlices follow in a moment."""
    return serves(pod) and is_ready(pod) and is_selected(pod, selector)


def may_be(pod: Manifest, value: str) -> bool:
    """Whether no other backend with these labels of pods may select it; ``value``: of our selector."""
    return not value or pod_label(pod) in ("", value, OUT)


def pod_label(pod: Manifest | None) -> str:
    """Value of the label, "" for none."""
    labels = {} if pod is None else pod["metadata"].get("labels") or {}
    return str(labels.get(IN_ROTATION, ""))


def pod_fingerprint(pod: Manifest | None) -> str:
    """What its server states, as it is annotated; "" for nothing."""
    annotations = {} if pod is None else pod["metadata"].get("annotations") or {}
    return str(annotations.get(FINGERPRINT, ""))
