"""Cache of the objects that lead from a backend to its pods in one namespace, fed by watches.

Only the fields that discovery reads are stored. ``version`` rises if one of them changes and when a kind is
listed for the first time; a pod's heartbeat does not count. Safe for one writer per kind and any number of
readers.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from k8s.operator.objects import Manifest
from k8s.operator.pods.pod_facts import CONTAINERS

SERVICES, SLICES, PODS, POOLS = "services", "endpointslices", "pods", "inferencepools"
KINDS = (SERVICES, SLICES, PODS, POOLS)
#: Kinds that every cluster has; InferencePools may be missing.
BUILT_IN = (SERVICES, SLICES, PODS)
#: Version of InferencePool that is read.
POOL_VERSION = "v1"
#: Label of an EndpointSlice with the name of its Service.
OF_SERVICE = "kubernetes.io/service-name"
#: Prefix of Selvage's annotations of pods.
_OURS = "selvage.dev/"


class Places:
    """Services, EndpointSlices, pods and InferencePools of one namespace, by name and label."""

    def __init__(self) -> None:
        self.version = 0
        self._objects: dict[str, dict[str, Manifest]] = {kind: {} for kind in KINDS}
        self._labelled: dict[str, dict[tuple[str, str], set[str]]] = {
            kind: defaultdict(set) for kind in (SLICES, PODS)
        }
        self._lock = threading.Lock()
        self._listed: set[str] = set()

    def renew(self, kind: str, objects: Iterable[Manifest]) -> None:
        """Replace all objects of ``kind`` with ``objects``, the result of a list request."""
        listed = {str(one["metadata"]["name"]): one for one in objects}
        with self._lock:
            for name in self._objects[kind].keys() - listed.keys():
                self._take(kind, name, None)
            for name, found in listed.items():
                self._take(kind, name, read_of(kind, found))
            if kind not in self._listed:
                self._listed.add(kind)
                self.version += 1

    def put(self, kind: str, found: Manifest) -> None:
        """Store an object of ``kind`` that was added or modified."""
        with self._lock:
            self._take(kind, str(found["metadata"]["name"]), read_of(kind, found))

    def drop(self, kind: str, name: str) -> None:
        """Remove an object of ``kind`` that was deleted."""
        with self._lock:
            self._take(kind, name, None)

    def lists(self, kind: str) -> bool:
        """Whether ``kind`` was ever listed."""
        return kind in self._listed

    def service(self, name: str) -> Manifest | None:
        """A Service, None if there is none."""
        return self._objects[SERVICES].get(name)

    def inference_pool(self, name: str) -> Manifest | None:
        """An InferencePool, None if there is none."""
        return self._objects[POOLS].get(name)

    def endpoint_slices(self, service: str) -> list[Manifest]:
        """EndpointSlices of a Service, by name."""
        return self._with(SLICES, {OF_SERVICE: service})

    def pods(self, selector: Mapping[str, str]) -> list[Manifest]:
        """Pods with these labels, by name."""
        return self._with(PODS, selector)

    def _with(self, kind: str, selector: Mapping[str, str]) -> list[Manifest]:
        with self._lock:
            labelled = self._labelled[kind]
            sets = [labelled.get(label, set()) for label in selector.items()]
            names = set.intersection(*sets) if sets else set(self._objects[kind])
            return [self._objects[kind][name] for name in sorted(names)]

    def _take(self, kind: str, name: str, found: Manifest | None) -> None:
        objects, before = self._objects[kind], self._objects[kind].get(name)
        if found == before:
            return
        self.version += 1
        labelled = self._labelled.get(kind)
        if labelled is not None:
            for label in _labels(before) - _labels(found):
                labelled[label].discard(name)
                if not labelled[label]:
                    del labelled[label]
            for label in _labels(found):
                labelled[label].add(name)
        if found is None:
            del objects[name]
        else:
            objects[name] = found


def _labels(found: Manifest | None) -> set[tuple[str, str]]:
    return set() if found is None else set((found["metadata"].get("labels") or {}).items())


def read_of(kind: str, found: Mapping[str, Any]) -> Manifest:
    """The fields of an object of ``kind`` that discovery reads. Idempotent."""
    metadata = found["metadata"]
    kept = {key: metadata[key] for key in ("name", "uid", "labels", "deletionTimestamp") if metadata.get(key)}
    if kind == SERVICES:
        spec = found.get("spec") or {}
        named = [
            {key: one.get(key) for key in ("name", "port", "targetPort", "protocol")}
            for one in spec.get("ports") or []
        ]
        read = {"selector": dict(spec.get("selector") or {}), "ports": named}
        return {"metadata": kept, "spec": {**read, "ipFamilies": list(spec.get("ipFamilies") or [])}}
    if kind == POOLS:
        spec = found.get("spec") or {}
        return {"metadata": kept, "spec": {key: spec.get(key) for key in ("selector", "targetPorts")}}
    if kind == SLICES:
        return {"metadata": kept, **{key: found.get(key) for key in ("addressType", "ports", "endpoints")}}
    annotations = metadata.get("annotations") or {}
    kept["annotations"] = {key: value for key, value in annotations.items() if key.startswith(_OURS)}
    status, spec = found.get("status") or {}, found.get("spec") or {}
    conditions = [{"type": one["type"], "status": one["status"]} for one in status.get("conditions") or []]
    shown = {key: status.get(key) or "" for key in ("podIP", "phase")}
    addresses = [{"ip": one["ip"]} for one in status.get("podIPs") or []]
    containers = {kind: [_ports_of(one) for one in spec.get(kind) or []] for kind in CONTAINERS}
    return {
        "metadata": kept,
        "spec": containers,
        "status": {**shown, "podIPs": addresses, "conditions": conditions},
    }


def _ports_of(container: Mapping[str, Any]) -> Manifest:
    """The fields of a container that determine its ports."""
    ports = [
        {key: one.get(key) for key in ("name", "containerPort", "protocol")}
        for one in container.get("ports") or []
    ]
    return {"restartPolicy": container.get("restartPolicy"), "ports": ports}
