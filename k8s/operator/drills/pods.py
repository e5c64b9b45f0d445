"""Injects faults into one pod: over its server's drill port, by deleting the pod, or through Chaos Mesh.

Every call first asks the API server whether the pod with that uid still exists: its address may be given to
another pod before the drill ends.

If an annotation of the drill asks for it, network faults become Chaos Mesh resources; without that annotation
Chaos Mesh need not be installed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contracts.documents.scenario import ScheduledFault
from faults.catalogue import CATALOGUE
from faults.client import record as records
from faults.client.replica import Injected, Proof, ReplicaFaults, Undone, wire_form
from faults.client.wire import DrillError, ReplicaGoneError, ReplicaSilentError
from k8s.operator.drills.cluster import DrillCluster, DrillPod, drill_pod
from k8s.operator.objects import ClusterError, Manifest
from k8s.resources.drill_extension import ALLOWED, DRILL_PORT, DRILLS

#: Annotation of a drill whose network faults Chaos Mesh injects, and its value.
HAND_OVER, CHAOS_MESH = "selvage.dev/hand-over", "chaos-mesh"
CHAOS_GROUP, CHAOS_VERSION, CHAOS_PLURAL = "chaos-mesh.org", "v1alpha1", "networkchaos"
#: Kinds of faults that are network faults.
NETWORK_KINDS = ("latency",)


def uses_chaos_mesh(drill: Manifest) -> bool:
    """Whether ``drill`` asks for its network faults to be injected by Chaos Mesh."""
    return bool((drill["metadata"].get("annotations") or {}).get(HAND_OVER) == CHAOS_MESH)


def chaos_name(drill: str, fault: str, replica: str) -> str:
    """Name of the NetworkChaos of one fault on one replica."""
    return f"selvage-{drill}-{fault}-{replica}"[:253].lower().replace("_", "-")


def network_chaos(name: str, fault: ScheduledFault, pod: tuple[str, str], lasts_s: float) -> Manifest:
    """NetworkChaos for ``fault`` on ``pod`` (namespace and name); it ends by itself after ``lasts_s``."""
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
    """Whether the status of a NetworkChaos says that it was injected."""
    said = ((found or {}).get("status") or {}).get("conditions") or []
    happened = any(one.get("type") == "AllInjected" and one.get("status") == "True" for one in said)
    return Proof(
        happened=happened, evidence=f"Chaos Mesh says that all was {'' if happened else 'not '}injected"
    )


#: The kind of fault that deletes the pod.
POD_KILL = "crash"


class UnseenError(DrillError):
    """The API server did not say whether the pod exists, so nothing was done to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Steering:
    """Access to the drill port of pods. records: folder for records of calls; the ConfigMap is decisive."""

    token_file: Path
    records: Path
    port: int = DRILL_PORT


def steering_url(pod: DrillPod, port: int) -> str:
    """URL of the drill port of ``pod``."""
    host = f"[{pod.address}]" if ":" in pod.address else pod.address
    return f"http://{host}:{port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChaosMeshFaults:
    """Faults of a drill on one pod that Chaos Mesh injects. names: fault name -> NetworkChaos name."""

    names: Mapping[str, str] = field(default_factory=dict)
    lasts_s: float = 0.0
    """After this time they end by themselves."""
    all: bool = False
    """Chaos Mesh injects all faults; the server itself gets none."""


class PodFaults(ReplicaFaults):
    """``ReplicaFaults`` of ``pod``. admit: raises DrillError if faults may no longer be injected into it."""

    def __init__(
        self,
        cluster: DrillCluster,
        pod: DrillPod,
        steering: Steering,
        admit: Callable[[], None],
        handed: ChaosMeshFaults,
    ) -> None:
        super().__init__(steering_url(pod, steering.port), steering.token_file, steering.records)
        self._cluster, self._pod, self._admit = cluster, pod, admit
        self._handed, self._steering = handed, steering

    def inject(self, fault: ScheduledFault, ttl_s: float) -> Injected:
        """Inject ``fault``; DrillError if faults may no longer be injected into the pod."""
        self._admit()
        if fault.kind != POD_KILL and fault.name not in self._handed.names:
            return super().inject(fault, ttl_s)
        with _as_unseen_error():
            if fault.kind == POD_KILL:
                self._cluster.delete_pod(self._pod.name, self._pod.uid)
            else:
                chaos = self._handed.names[fault.name]
                self._cluster.create_chaos(
                    network_chaos(
                        chaos, fault, (self._cluster.namespace, self._pod.name), self._handed.lasts_s
                    )
                )
        return Injected(fault=wire_form(fault), evidence={}, record=self._steering.records)

    def renew(self, ttl_s: float) -> float:
        """Renew the lease of the server's faults; those of Chaos Mesh end after their own duration."""
        try:
            return ttl_s if self._handed.all else super().renew(ttl_s)
        except UnseenError as error:  # will be retried before the lease ends
            raise ReplicaSilentError(str(error)) from error

    def verify(self, injected: Injected) -> Proof:
        """Proof from the server, or from Chaos Mesh for a fault that it injects."""
        chaos = self._handed.names.get(injected.fault["name"])
        if chaos is None:
            return super().verify(injected)
        with _as_unseen_error():
            return chaos_proof(self._cluster.chaos(chaos))

    def undo(self, name: str = "") -> Undone:
        """End the fault ``name`` ("": all of the server's); the faults of a pod that is gone are closed."""
        with _as_unseen_error():
            if name in self._handed.names:
                self._cluster.delete_chaos(self._handed.names[name])
                return Undone(clean=True)
            if pod_exists(self._cluster, self._pod):
                return super().undo(name)
        for path, kept in records.open_records(self._steering.records):
            if kept.url == self.url and name in ("", kept.fault["name"]):
                records.save(path, kept.closed("gone"))
        return Undone(clean=False, gone=True)

    def _steer(
        self, action: str, body: dict[str, Any] | None = None, within_s: float = 10.0
    ) -> dict[str, Any]:
        with _as_unseen_error():
            there = pod_exists(self._cluster, self._pod)
        if not there:
            raise ReplicaGoneError(f"pod {self._pod.name} ({self._pod.uid}) is gone")
        return super()._steer(action, body, within_s)


@contextmanager
def _as_unseen_error() -> Iterator[None]:
    """Raise UnseenError if the API server refuses or does not answer."""
    try:
        yield
    except ClusterError as error:
        raise UnseenError(str(error)) from error


def drill_pods(cluster: DrillCluster) -> dict[str, DrillPod]:
    """Pods into which drills may inject, by name: labelled for drills and not terminating."""
    found = [pod for pod in cluster.pods({DRILLS: ALLOWED}) if not pod["metadata"].get("deletionTimestamp")]
    return {str(pod["metadata"]["name"]): drill_pod(pod) for pod in found}


def pod_exists(cluster: DrillCluster, pod: DrillPod) -> bool:
    """Whether the pod with this uid still exists and is labelled, at the same address."""
    found = drill_pods(cluster).get(pod.name)
    return found is not None and (found.uid, found.address) == (pod.uid, pod.address)
