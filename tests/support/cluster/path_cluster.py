"""The work of a cluster's controllers and of a gateway, for a test's namespace: EndpointSlices, and Envoy.

Both use the API server's objects alone. Services select pods by their labels; from the HTTPRoute and the
EndpointSlices a real Envoy gets its configuration (``tests.support.cluster.route_envoy``).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kubernetes import client

from contracts.loading.files import json_text, write_pinned
from live.fleet.envoy import with_ports
from live.gateway.admin import EnvoyAdmin
from live.gateway.driver import GatewayDriver, WatchedFile, listener_file, write_files
from live.gateway.listeners import bootstrap
from live.gateway.process import envoy_command, find_envoy, free_ports, validate
from live.gateway.settings import GatewayFiles, GatewaySettings
from tests.support.cluster.cluster_worlds import Bench, Object
from tests.support.cluster.e5_clusters import repeated
from tests.support.cluster.route_envoy import backends, gateway_files, ready_addresses
from tests.support.guarded import guarded
from tests.support.waiting import PATIENCE_S

_SERVICE = "kubernetes.io/service-name"


def keep_endpoints(bench: Bench) -> None:
    """Write the EndpointSlice of every Service that selects pods, as the cluster's own controller does."""
    core = client.CoreV1Api(bench.api)
    pods = core.list_namespaced_pod(bench.namespace).items
    for service in core.list_namespaced_service(bench.namespace).items:
        selector = service.spec.selector
        if selector:
            chosen = [one for one in pods if selector.items() <= (one.metadata.labels or {}).items()]
            port = int(service.spec.ports[0].target_port)
            write_slice(bench, service.metadata.name, port, [_endpoint(one) for one in chosen])


def write_slice(bench: Bench, service: str, port: int, endpoints: list[Object]) -> None:
    """Write the one EndpointSlice of a Service, if it changed."""
    discovery, name = client.DiscoveryV1Api(bench.api), f"{service}-a"
    body = {
        "metadata": {"name": name, "labels": {_SERVICE: service}},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": port, "protocol": "TCP"}],
        "endpoints": endpoints,
    }
    found = {str(one["metadata"]["name"]): one for one in endpoint_slices(bench)}
    if name not in found:
        discovery.create_namespaced_endpoint_slice(bench.namespace, body)
    elif (found[name].get("endpoints") or []) != endpoints:
        discovery.replace_namespaced_endpoint_slice(name, bench.namespace, body)


def endpoint_slices(bench: Bench) -> list[Object]:
    """EndpointSlices of the namespace, as the server has them."""
    found = client.DiscoveryV1Api(bench.api).list_namespaced_endpoint_slice(bench.namespace)
    plain: list[Object] = bench.api.sanitize_for_serialization(found)["items"]
    return plain


def _endpoint(pod: Any) -> Object:
    conditions = {one.type: one.status for one in pod.status.conditions or []}
    return {
        "addresses": [pod.status.pod_ip],
        "conditions": {"ready": conditions.get("Ready") == "True"},
        "targetRef": {"kind": "Pod", "name": pod.metadata.name, "namespace": pod.metadata.namespace},
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class InForce:
    """A table that Envoy acknowledged. at_s: when, on the monotonic clock; pods: those that get requests."""

    at_s: float
    weights: dict[str, dict[str, int]]  # rule -> Service -> weight
    pods: frozenset[str]


@dataclass
class Gateway:
    """An Envoy that follows the route of ``bench``. ``history``: tables in force, oldest first."""

    bench: Bench
    folder: Path
    settings: GatewaySettings = field(
        default_factory=lambda: with_ports(GatewaySettings(resettable=False), free_ports(2))
    )
    history: list[InForce] = field(default_factory=list)
    _versions: dict[Path, str] = field(default_factory=dict)
    _pods: frozenset[str] = frozenset()

    @property
    def url(self) -> str:
        """URL for requests."""
        return f"http://127.0.0.1:{self.settings.listen_port}"

    @property
    def metrics(self) -> str:
        """Prometheus metrics of its clusters."""
        return f"http://127.0.0.1:{self.settings.admin_port}/stats/prometheus?filter=upstream_rq"

    def shares(self, rule: str, at_s: float | None = None) -> dict[str, float]:
        """Service -> its share of a rule's requests at that time (None: now); pods separately."""
        known = [one for one in self.history if at_s is None or one.at_s <= at_s]
        weights = known[-1].weights[rule]
        return {name: weight / sum(weights.values()) for name, weight in weights.items()}

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run Envoy, which follows the operator's route until the block ends."""
        files, log = GatewayFiles(folder=self.folder / "gateway"), self.folder / "gateway.log"
        route = self.bench.route()
        wanted = self._files(route, files)
        files.folder.mkdir(parents=True)
        clusters = [one.cluster for rule in backends(route) for one in rule]
        start = bootstrap(self.settings, files, clusters, ())
        write_pinned(files.bootstrap, f"{json_text(start, indent=1)}\n".encode())
        write_files([*wanted, listener_file(self.settings, files, ())])
        validate(find_envoy(), files)
        admin = EnvoyAdmin(f"http://127.0.0.1:{self.settings.admin_port}")
        with guarded(envoy_command(find_envoy(), self.settings, files), log, os.environ):
            until_at_s = time.monotonic() + PATIENCE_S
            while not admin.is_live():
                assert time.monotonic() < until_at_s, log.read_text()[-3000:]
                time.sleep(0.05)
            driver = GatewayDriver(self.settings, files, admin, timeout_s=PATIENCE_S)
            with closing(driver), repeated(lambda: self._follow(driver), 0.2):
                yield

    def _follow(self, driver: GatewayDriver) -> None:
        """Give Envoy the API server's present objects, if they are new, and wait until they are in force."""
        route = self.bench.route()
        wanted = self._files(route, driver.files)
        changed = [one for one in wanted if self._versions.get(one.path) != one.version]
        if not changed:
            return
        driver.exchange(changed)
        self._versions |= {one.path: one.version for one in changed}
        told = {
            str(rule["name"]): {one["name"]: int(one["weight"]) for one in rule["backendRefs"]}
            for rule in route["spec"]["rules"]
        }
        self.history.append(InForce(at_s=time.monotonic(), weights=told, pods=self._pods))

    def _files(self, route: Object, files: GatewayFiles) -> list[WatchedFile]:
        slices = endpoint_slices(self.bench)
        behind = ready_addresses(slices)
        self._pods = frozenset(one.replica for each in behind.values() for one in each)
        return gateway_files(route, slices, self.settings, files)
