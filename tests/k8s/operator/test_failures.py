"""Failures: API server down, definition deleted, process killed mid-write; routes always stay complete."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from kubernetes import client

from k8s.api.cluster import ApiCluster
from k8s.operator.objects import ClusterError, Manifest, Resources
from k8s.resources.definition import definition
from k8s.resources.kinds import resource_named
from tests.support.cluster.cluster_worlds import Bench
from tests.support.cluster.kube_api import install_definitions
from tests.support.cluster.route_revisions import assert_never_empty, every_revision

pytestmark = [pytest.mark.needs("kube_api"), pytest.mark.slow, pytest.mark.waits]


class Failing(ApiCluster):
    """A namespace whose API server can be down, or whose operator dies right after writing the route."""

    gone = False
    dies_after_route = False

    def resources(self) -> Resources:
        self._there()
        return super().resources()

    def endpoint_slices(self, service: str) -> list[Manifest]:
        self._there()
        return super().endpoint_slices(service)

    def service(self, name: str) -> Manifest | None:
        self._there()
        return super().service(name)

    def write_status(self, found: Manifest, status: Manifest) -> None:
        self._there()
        super().write_status(found, status)

    def write_config(self, config: Manifest) -> None:
        if self.dies_after_route:
            raise KeyboardInterrupt
        self._there()
        super().write_config(config)

    def _there(self) -> None:
        if self.gone:
            raise ClusterError("the API server does not answer")


def _server_gone(bench: Bench, cluster: Failing) -> None:
    cluster.gone = True
    bench.turns(bench.operator(cluster), 5)
    cluster.gone = False


def _pods_gone(bench: Bench, cluster: Failing) -> None:
    operator = bench.operator(cluster)
    for kernel in ("fp8", "bf16"):
        bench.endpoints(kernel, [])
    bench.turns(operator, 20)
    assert bench.conditions()["Ready"] == ("False", "NoReadyReplicas")
    for kernel in ("fp8", "bf16"):
        bench.endpoints(kernel, [f"chat-{kernel}-{n}" for n in range(2)])


def _silence(bench: Bench, cluster: Failing) -> None:
    bench.silent = True
    bench.turns(bench.operator(cluster), 40)
    bench.silent = False


def _killed_mid_write(bench: Bench, cluster: Failing) -> None:
    """The operator dies after it wrote the route, before it wrote anything else."""
    operator = bench.operator(cluster)
    bench.drift["fp8"] = 0.02
    cluster.dies_after_route = True
    with pytest.raises(KeyboardInterrupt):
        bench.turns(operator, 40)
    cluster.dies_after_route = False


def _definitions_made_again(bench: Bench, cluster: Failing) -> None:
    operator, kind = bench.operator(cluster), resource_named("RoutePolicy")
    bench.turns(operator, 3)
    extensions = client.ApiextensionsV1Api(bench.api)
    extensions.delete_custom_resource_definition(kind.crd_name)
    bench.turns(operator, 8)
    _await_gone(extensions, kind.crd_name)
    install_definitions(bench.api, [definition(kind)])
    bench.turns(operator, 8)
    bench.apply("policy")
    bench.turns(operator, 8)


def _new_leaders(bench: Bench, cluster: Failing) -> None:
    """Three leaders in turn, while weights move."""
    for drift in (0.02, 0.0, 0.02):
        bench.drift["fp8"] = drift
        bench.turns(bench.operator(cluster), 12)


def _state_lost(bench: Bench, cluster: Failing) -> None:
    bench.drift["fp8"] = 0.02
    bench.turns(bench.operator(cluster), 20)
    client.CoreV1Api(bench.api).delete_namespaced_config_map("selvage-state-chat", bench.namespace)
    bench.turns(bench.operator(cluster), 20)


def _state_torn(bench: Bench, cluster: Failing) -> None:
    torn = {"data": {"documents.json": "{", "state-sha256": "0"}}
    client.CoreV1Api(bench.api).patch_namespaced_config_map("selvage-state-chat", bench.namespace, torn)
    bench.turns(bench.operator(cluster), 20)


def _foreign_edit(bench: Bench, cluster: Failing) -> None:
    """Another client swaps the weights of a rule; they stay so until the route is handed back."""
    operator = bench.operator(cluster)
    bench.edit_route(_turned_round)
    edited = bench.route()["spec"]
    bench.drift["fp8"] = 0.02
    bench.turns(operator, 20)
    assert bench.route()["spec"] == edited
    assert bench.conditions()["Programmed"] == ("False", "ForeignEdit")
    bench.edit_route(lambda found: found["metadata"]["annotations"].pop("selvage.dev/rules-sha256"))
    bench.turns(operator, 8)
    assert bench.conditions()["Programmed"][0] == "True"


def _turned_round(route: Manifest) -> None:
    refs = route["spec"]["rules"][0]["backendRefs"]
    refs[0]["weight"], refs[1]["weight"] = refs[1]["weight"], refs[0]["weight"]


def _refused_artefact(bench: Bench, cluster: Failing) -> None:
    """A profile that cannot be fetched and a network with another hash are configured, then corrected."""
    operator = bench.operator(cluster)
    bench.turns(operator, 2)

    def changed(kind: str, name: str, spec: Manifest) -> str:
        bench.change(kind, name, spec)
        operator.nudge()
        bench.turns(operator, 6)
        return bench.conditions()["ResolvedRefs"][0]

    kernels = bench.read("KernelPool", "chat-pool")["spec"]["kernels"]
    unfetched = _profiled(kernels[0], f"oci://registry.invalid/kernels@sha256:{'0' * 64}")
    assert changed("KernelPool", "chat-pool", {"kernels": [unfetched, *kernels[1:]]}) == "False"
    assert changed("KernelPool", "chat-pool", {"kernels": kernels}) == "True"
    other = {"uri": "package:contracts/library/policies/routing.yaml", "sha256": "0" * 64}
    assert changed("RoutePolicy", "chat", {"policy": "learned", "artifact": other}) == "False"
    assert changed("RoutePolicy", "chat", {"policy": "hysteresis", "artifact": None}) == "True"


def _profiled(kernel: Manifest, uri: str) -> Manifest:
    """The kernel with a profile that must be read, because its capacity is stated nowhere else."""
    return {key: one for key, one in kernel.items() if key != "capacity_rps"} | {"profile": uri}


FAILURES: dict[str, Callable[[Bench, Failing], None]] = {
    "server gone": _server_gone,
    "pods gone": _pods_gone,
    "silence": _silence,
    "killed mid-write": _killed_mid_write,
    "definitions made again": _definitions_made_again,
    "new leaders": _new_leaders,
    "state lost": _state_lost,
    "state torn": _state_torn,
    "foreign edit": _foreign_edit,
    "refused artefact": _refused_artefact,
}


@pytest.mark.parametrize("name", sorted(FAILURES))
def test_no_revision_of_the_route_leaves_a_slice_without_a_kernel(bench: Bench, name: str) -> None:
    """During and after each failure, every revision of the route gives each slice a kernel with weight."""
    bench.everything()
    cluster = Failing(bench.api, bench.namespace, timeout_s=20.0)
    bench.turns(bench.operator(cluster), 5)
    with every_revision(bench) as seen:
        FAILURES[name](bench, cluster)
        bench.drift["fp8"] = 0.02
        bench.turns(bench.operator(cluster), 40)
    assert_never_empty(seen)
    assert bench.weights("prose")["chat-bf16"] == 10_000


def test_a_new_leader_keeps_dwell_and_quarantine(bench: Bench) -> None:
    """A new leader continues with the table in force and with its predecessor's quarantines."""
    operator = bench.struck("bf16-1")
    before = operator.loops["chat"].controller.state
    assert before.quarantined.any()
    second = bench.operator()
    bench.turns(second, 1)
    after = second.loops["chat"].controller.state
    assert after.quarantined.tolist() == before.quarantined.tolist()
    assert after.ticks[0] > 16


def test_a_leader_without_a_kept_state_keeps_the_table_in_force(bench: Bench) -> None:
    """A leader without a kept state starts from the table in the route and moves nothing at once."""
    bench.everything()
    operator = bench.operator()
    bench.turns(operator, 5)
    bench.drift["fp8"] = 0.02
    bench.turns(operator, 40)
    client.CoreV1Api(bench.api).delete_namespaced_config_map("selvage-state-chat", bench.namespace)
    bench.turns(bench.operator(), 1)
    assert bench.weights("prose")["chat-bf16"] > 0


def test_definitions_deleted_and_created_again_leave_the_route(bench: Bench) -> None:
    """If definitions are deleted and created again, with resources, the route stays and control resumes."""
    bench.everything()
    operator = bench.operator()
    bench.turns(operator, 5)
    kind = resource_named("RoutePolicy")
    extensions = client.ApiextensionsV1Api(bench.api)
    extensions.delete_custom_resource_definition(kind.crd_name)
    before = bench.route()["spec"]
    bench.turns(operator, 8)
    assert bench.route()["spec"] == before
    _await_gone(extensions, kind.crd_name)
    install_definitions(bench.api, [definition(kind)])
    bench.apply("policy")
    bench.turns(operator, 8)
    assert bench.conditions()["Ready"][0] == "True"


def _await_gone(extensions: client.ApiextensionsV1Api, name: str) -> None:
    """Wait until the definition is deleted."""
    for _ in range(600):
        names = [one.metadata.name for one in extensions.list_custom_resource_definition().items]
        if name not in names:
            return
        threading.Event().wait(0.1)
    raise AssertionError(f"{name} is still there")
