"""Network faults handed to Chaos Mesh: resources that are emitted where its definitions are installed. Pure.

Asked for by an annotation of the drill; nothing here depends on Chaos Mesh being there.
"""

from __future__ import annotations

import math
from typing import Any

from contracts.documents.scenario import ScheduledFault
from faults.catalogue import CATALOGUE
from faults.client.replica import Proof
from k8s.operator.objects import Manifest

#: Annotation of a drill whose network faults Chaos Mesh carries out, and its value.
HAND_OVER, CHAOS_MESH = "selvage.dev/hand-over", "chaos-mesh"
CHAOS_GROUP, CHAOS_VERSION, CHAOS_PLURAL = "chaos-mesh.org", "v1alpha1", "networkchaos"
#: Kinds of faults that a network can have.
NETWORK_KINDS = ("latency",)


def is_handed_over(drill: Manifest) -> bool:
    """Whether ``drill`` wants its network faults carried out by Chaos Mesh."""
    return bool((drill["metadata"].get("annotations") or {}).get(HAND_OVER) == CHAOS_MESH)


def chaos_name(drill: str, fault: str, replica: str) -> str:
    """Of the NetworkChaos of one fault on one replica."""
    return f"selvage-{drill}-{fault}-{replica}"[:253].lower().replace("_", "-")


def network_chaos(name: str, fault: ScheduledFault, pod: tuple[str, str], lasts_s: float) -> Manifest:
    """The resource for ``fault`` on ``pod`` (namespace and name), which ends by itself after ``lasts_s``."""
    namespace, pod_name = pod
    dose = CATALOGUE[fault.kind].dose.default if fault.dose is None else fault.dose
    spec: dict[str, Any] = {
        "action": "delay",
        "mode": "all",
        "selector": {"pods": {namespace: [pod_name]}},
        "delay": {"latency": f"{dose:g}ms"},
        "duration": f"{math.ceil(lasts_s)}s",
    }
    return {
        "apiVersion": f"{CHAOS_GROUP}/{CHAOS_VERSION}",
        "kind": "NetworkChaos",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/part-of": "selvage"}},
        "spec": spec,
    }


def chaos_proof(found: Manifest | None) -> Proof:
    """Whether Chaos Mesh says that it injected."""
    said = ((found or {}).get("status") or {}).get("conditions") or []
    happened = any(one.get("type") == "AllInjected" and one.get("status") == "True" for one in said)
    return Proof(
        happened=happened, evidence=f"Chaos Mesh says that all was {'' if happened else 'not '}injected"
    )
