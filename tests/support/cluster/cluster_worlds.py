"""The sample of ``k8s/examples/chat`` on a real API server, with pods of a test and made-up telemetry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import numpy as np
import yaml
from kubernetes import client

from contracts.telemetry import FleetTelemetry, ReplicaState
from contracts.units import MS_PER_S
from k8s.api.cluster import ApiCluster
from k8s.operator.namespace import NamespaceOperator
from k8s.operator.pods.pod_facts import IN_ROTATION
from k8s.operator.pods.returns import PodVerifier
from k8s.operator.promotion.calls import HookCaller
from k8s.operator.route_loop import LoopParts
from k8s.operator.telemetry.pool_reader import Sensing
from k8s.operator.telemetry.pool_source import fingerprints
from k8s.resources.kinds import GROUP, VERSION, resource_named
from k8s.routes.rules import Backend
from tests.support.cluster.full_cluster import unstarted
from tests.support.cluster.granted import Account
from tests.support.cluster.kube_assets import full_cluster
from tests.support.fleets.builders import quiet_telemetry, with_probes
from tests.support.paths import ROOT

Object = dict[str, Any]

SAMPLE = ROOT / "k8s" / "examples" / "chat"
SHED = Backend(name="selvage-refuse", port=8080)
_GATEWAY = ("gateway.networking.k8s.io", "v1")
#: Requests per second and slice: one kernel of the sample carries both slices.
_OFFERED = 3
_BEGAN_S = 1_800_000_000.0


def sample(name: str) -> list[Object]:
    """The objects of one file of the sample."""
    return list(yaml.safe_load_all((SAMPLE / f"{name}.yaml").read_text(encoding="utf-8")))


@dataclass
class Bench:
    """One namespace with the sample in it. drift: KL of the probes of a kernel or replica."""

    api: client.ApiClient
    namespace: str
    now_s: float = _BEGAN_S
    drift: dict[str, float] = field(default_factory=dict)
    silent: bool = False
    verifier: PodVerifier | None = None

    def now_ms(self) -> float:
        """``Clock``: moves with ``turns`` alone."""
        return self.now_s * MS_PER_S

    @cached_property
    def account(self) -> Account:
        """The operator's account, with the rights of its Role."""
        return Account(self.api.configuration)

    def cluster(self, **others: Any) -> ApiCluster:
        """The namespace as the operator sees it, with its rights."""
        return ApiCluster(self.account.api, self.namespace, **{"timeout_s": 20.0, **others})

    @property
    def custom(self) -> client.CustomObjectsApi:
        """Custom resources."""
        return client.CustomObjectsApi(self.api)

    def apply(self, name: str, change: Callable[[Object], object] | None = None) -> Object:
        """Create the sample's contract, pool, policy or route, after ``change``."""
        (found,) = sample(name)
        if name == "route":
            found["metadata"]["annotations"] = {"selvage.dev/route-policy": f"{self.namespace}/chat"}
        if change is not None:
            change(found)
        group, version, plural = self._place(found)
        made: Object = self.custom.create_namespaced_custom_object(
            group, version, self.namespace, plural, found, field_validation="Strict"
        )
        return made

    def change(self, kind: str, name: str, spec: Object) -> None:
        """Merge ``spec`` into a resource's."""
        plural = resource_named(kind).plural
        self.custom.patch_namespaced_custom_object(
            GROUP, VERSION, self.namespace, plural, name, {"spec": spec}, _content_type=_MERGE
        )

    def delete(self, kind: str, name: str) -> None:
        """Delete a resource."""
        plural = resource_named(kind).plural
        self.custom.delete_namespaced_custom_object(GROUP, VERSION, self.namespace, plural, name)

    def read(self, kind: str, name: str) -> Object:
        """One of our resources."""
        plural = resource_named(kind).plural
        found: Object = self.custom.get_namespaced_custom_object(GROUP, VERSION, self.namespace, plural, name)
        return found

    def conditions(self, kind: str = "RoutePolicy", name: str = "chat") -> dict[str, tuple[str, str]]:
        """Type -> status and reason."""
        status = self.read(kind, name).get("status") or {}
        return {one["type"]: (one["status"], one["reason"]) for one in status.get("conditions") or []}

    def route(self) -> Object:
        """The route."""
        found: Object = self.custom.get_namespaced_custom_object(
            *_GATEWAY, self.namespace, "httproutes", "chat"
        )
        return found

    def weights(self, slice_name: str) -> dict[str, int]:
        """Service -> weight in the rule of a slice."""
        rule = next(one for one in self.route()["spec"]["rules"] if one.get("name") == slice_name)
        return {one["name"]: one["weight"] for one in rule["backendRefs"]}

    def edit_route(self, change: Callable[[Object], object]) -> None:
        """A change by another client."""
        found = self.route()
        change(found)
        self.custom.replace_namespaced_custom_object(*_GATEWAY, self.namespace, "httproutes", "chat", found)

    def servers(self, replicas: int = 2, port: int = 8000) -> None:
        """Services, pods and EndpointSlices of both kernels, all ready."""
        core = client.CoreV1Api(self.api)
        for kernel in ("fp8", "bf16"):
            _, service = sample(kernel)
            core.create_namespaced_service(self.namespace, service)
            labels = dict(service["spec"]["selector"])
            names = [f"chat-{kernel}-{n}" for n in range(replicas)]
            for name in names:
                core.create_namespaced_pod(self.namespace, pod(name, labels))
            self.endpoints(kernel, names, port)

    def endpoints(self, kernel: str, names: list[str], port: int = 8000) -> None:
        """The EndpointSlice of a kernel, as the cluster's controller would write it."""
        discovery, name = client.DiscoveryV1Api(self.api), f"chat-{kernel}-a"
        there = client.CoreV1Api(self.api).list_namespaced_pod(self.namespace).items
        uids = {one.metadata.name: one.metadata.uid for one in there}
        body = {
            "metadata": {"name": name, "labels": {"kubernetes.io/service-name": f"chat-{kernel}"}},
            "addressType": "IPv4",
            "ports": [{"name": "http", "port": port, "protocol": "TCP"}],
            "endpoints": [
                {
                    "addresses": [f"{LOCAL}.{n + 1}"],
                    "conditions": {"ready": True},
                    "targetRef": {
                        "kind": "Pod",
                        "name": pod,
                        "namespace": self.namespace,
                        "uid": uids.get(pod, ""),
                    },
                }
                for n, pod in enumerate(names)
            ],
        }
        found = discovery.list_namespaced_endpoint_slice(self.namespace).items
        if any(one.metadata.name == name for one in found):
            discovery.replace_namespaced_endpoint_slice(name, self.namespace, body)
        else:
            discovery.create_namespaced_endpoint_slice(self.namespace, body)

    def labels(self) -> dict[str, str]:
        """Pod -> its place in rotation."""
        pods = client.CoreV1Api(self.api).list_namespaced_pod(self.namespace).items
        return {pod.metadata.name: pod.metadata.labels[IN_ROTATION] for pod in pods}

    def everything(self, change_pool: Callable[[Object], object] | None = None) -> None:
        """The whole sample, judged by shorter windows."""
        self.apply("contract", _soon)
        self.apply("pool", change_pool)
        for name in ("policy", "route"):
            self.apply(name)
        self.servers()

    def operator(
        self,
        cluster: ApiCluster | None = None,
        *,
        advises: bool = False,
        caller: HookCaller | None = None,
        **others: Any,
    ) -> NamespaceOperator:
        """A fresh operator of the namespace; ``others``: replacements of the made-up parts."""
        parts = LoopParts(
            cluster=cluster or self.cluster(),
            clock=self,
            source=lambda sensing: MadeUp(self, sensing),
            now=lambda: datetime.fromtimestamp(self.now_s, UTC),
            shed=SHED,
        )
        return NamespaceOperator(replace(parts, **others), advises=advises, caller=caller)

    def struck(self, whom: str, kl: float = 0.02) -> NamespaceOperator:
        """An operator of everything, at rest, that then acted on a kernel's or replica's wrong numbers."""
        self.everything()
        operator = self.operator()
        self.turns(operator, 16)
        self.drift[whom] = kl
        self.turns(operator, 40)
        return operator

    def turns(self, operator: NamespaceOperator, count: int) -> None:
        """Run ``count`` ticks of one second."""
        for _ in range(count):
            self.now_s += 1.0
            operator.turn()

    def _place(self, found: Object) -> tuple[str, str, str]:
        if found["kind"] == "HTTPRoute":
            return (*_GATEWAY, "httproutes")
        return GROUP, VERSION, resource_named(found["kind"]).plural


class MadeUp:
    """``route_loop.Source``: every replica is probed on every slice each second."""

    problem = ""
    failure = None

    def __init__(self, bench: Bench, sensing: Sensing) -> None:
        self._bench, self._layout, self._discovery = bench, sensing.setup.layout, sensing.discovery
        self._clock, self._expected = sensing.clock, fingerprints(sensing.documents)
        self._last_s = self._clock.now_ms() / MS_PER_S
        self._rng = np.random.Generator(np.random.PCG64(7))

    @property
    def verifier(self) -> PodVerifier | None:
        """Verifier of returning pods."""
        return self._bench.verifier

    @property
    def sent_tokens(self) -> dict[str, int]:
        """No tokens."""
        return {}

    def close(self) -> None:
        """Nothing is open."""

    def read(self) -> FleetTelemetry:
        """The bench's telemetry."""
        bench, layout = self._bench, self._layout
        now_ms = self._clock.now_ms()
        at_s = self._last_s if bench.silent else now_ms / MS_PER_S
        seen = quiet_telemetry(layout, at_s)
        replicas = {one.name: one for one in self._discovery.replicas()}
        _, slices, _ = layout.shape
        clean = np.full((1, len(layout.replicas), slices, len(layout.probe_metrics)), 2e-4)
        clean *= self._rng.uniform(0.8, 1.2, clean.shape)
        for r, name in enumerate(layout.replicas):
            kernel = layout.kernels[layout.replica_kernel[r]]
            clean[0, r] += bench.drift.get(name, bench.drift.get(kernel, 0.0))
            found = replicas.get(name)
            seen.replica_state[0, r] = int(ReplicaState.ABSENT if found is None else found.state)
            stated = "" if found is None else found.fingerprint
            if stated and kernel in self._expected:
                seen.fingerprint_match[0, r] = float(stated == self._expected[kernel])
        seen.now_ms[:] = now_ms
        seen.offered[:] = _OFFERED
        if bench.silent:
            return seen
        self._last_s = now_ms / MS_PER_S
        return with_probes(seen, layout, clean)


LOCAL = "10.254.0" if full_cluster() else "127.0.0"
_MERGE = "application/merge-patch+json"


def pod(name: str, labels: dict[str, str]) -> Object:
    """A pod of one server."""
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"containers": [{"name": "vllm", "image": "vllm"}], **unstarted()},
    }


def _soon(contract: Object) -> None:
    contract["spec"]["detection"].update(window_s=15.0, min_samples=10)
