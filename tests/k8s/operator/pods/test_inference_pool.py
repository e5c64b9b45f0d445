"""Kernels behind InferencePools on a real API server: the route names them, their selectors find the pods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import yaml
from kubernetes import client

from contracts.documents.pool import POOL_GROUP, BackendRef
from k8s.api.watched import NamespaceWatch
from k8s.operator.pods.endpoints import ready_url, selector_of
from k8s.operator.pods.pod_facts import IN_ROTATION
from tests.support.cluster.cluster_worlds import SAMPLE, Bench, Object, pod
from tests.support.waiting import until

pytestmark = [pytest.mark.needs("kube_api"), pytest.mark.slow, pytest.mark.waits]

EXAMPLE = SAMPLE.parent / "inference-pool"
HARD = 0.02
PLACE = (POOL_GROUP, "v1")


def written(name: str) -> list[Object]:
    """Objects in one file of the example."""
    return list(yaml.safe_load_all((EXAMPLE / f"{name}.yaml").read_text(encoding="utf-8")))


class Pooled:
    """The example in a namespace; its pods have addresses and are ready."""

    def __init__(self, bench: Bench, change: Callable[[Object], object] | None = None) -> None:
        self.bench, self.core = bench, client.CoreV1Api(bench.api)
        (pool,) = written("pool")
        bench.everything(lambda found: found.update(spec=pool["spec"]))
        for found in written("pools"):
            if change is not None:
                change(found)
            bench.custom.create_namespaced_custom_object(
                *PLACE, bench.namespace, "inferencepools", found, field_validation="Strict"
            )
        for at, name in enumerate(sorted(bench.labels())):
            self.serve(name, at)

    def serve(self, name: str, at: int, phase: str = "Running") -> None:
        """Set a pod's status as a kubelet would for a running server."""
        status = {
            "phase": phase,
            "podIP": f"127.0.0.{at + 1}",
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        self.core.patch_namespaced_pod_status(name, self.bench.namespace, {"status": status})

    def edit(self, name: str, spec: dict[str, Any]) -> None:
        """Change an InferencePool."""
        self.bench.custom.patch_namespaced_custom_object(
            *PLACE,
            self.bench.namespace,
            "inferencepools",
            name,
            {"spec": spec},
            _content_type="application/merge-patch+json",
        )

    def selected(self, name: str) -> set[str]:
        """Pods that the InferencePool selects, as its endpoint picker queries them."""
        found = self.bench.custom.get_namespaced_custom_object(
            *PLACE, self.bench.namespace, "inferencepools", name
        )
        labels = found["spec"]["selector"]["matchLabels"].items()
        chosen = ",".join(f"{key}={value}" for key, value in labels)
        pods = self.core.list_namespaced_pod(self.bench.namespace, label_selector=chosen).items
        return {one.metadata.name for one in pods}

    def resolved(self) -> dict[str, Any]:
        """The condition ResolvedRefs."""
        conditions = self.bench.read("RoutePolicy", "chat")["status"]["conditions"]
        found: dict[str, Any] = next(one for one in conditions if one["type"] == "ResolvedRefs")
        return found


def test_the_route_names_the_pools_and_weights_move(bench: Bench) -> None:
    """The rules name the pools by group and kind without a port; a fault moves weights between them."""
    Pooled(bench)
    operator = bench.operator()
    bench.turns(operator, 16)
    for rule in bench.route()["spec"]["rules"]:
        named = [(one["group"], one["kind"], one["name"], one.get("port")) for one in rule["backendRefs"]]
        assert named == [
            (POOL_GROUP, "InferencePool", "chat-fp8", None),
            (POOL_GROUP, "InferencePool", "chat-bf16", None),
            ("", "Service", "selvage-refuse", 8080),
        ]
    assert bench.weights("prose") == {"chat-fp8": 10_000, "chat-bf16": 0, "selvage-refuse": 0}
    assert bench.conditions()["Ready"] == ("True", "Serving")
    bench.drift["fp8"] = HARD
    bench.turns(operator, 40)
    assert bench.weights("prose")["chat-bf16"] == 10_000
    bench.turns(bench.operator(), 1)  # a new leader starts from the table in the route
    assert bench.weights("prose")["chat-bf16"] == 10_000


def test_quarantine_takes_a_pod_out_of_the_pools_set(bench: Bench) -> None:
    """A quarantined replica leaves its InferencePool's selection but is still observed; its peer stays."""
    pooled = Pooled(bench)
    operator = bench.operator()
    bench.turns(operator, 16)
    assert pooled.selected("chat-bf16") == {"chat-bf16-0", "chat-bf16-1"}
    bench.drift["bf16-1"] = HARD
    bench.turns(operator, 40)
    assert pooled.selected("chat-bf16") == {"chat-bf16-0"}
    out = [one for one in operator.loops["chat"].discovery.pods if not one.in_rotation]
    assert [one.pod for one in out] == ["chat-bf16-1"]
    backend = BackendRef(group=POOL_GROUP, kind="InferencePool", name="chat-bf16")
    cluster = bench.cluster()
    assert selector_of(cluster, backend) == bench_labels("bf16")
    assert ready_url(cluster, backend) in {one.replica.url for one in operator.loops["chat"].discovery.pods}
    assert out[0].replica.url.endswith(":8000")


def test_a_pool_without_the_label_is_reported_and_no_pod_is_labelled(bench: Bench) -> None:
    """If the selector lacks the label, ResolvedRefs is False with the next step, and no pod is labelled."""

    def bare(found: Object) -> None:
        del found["spec"]["selector"]["matchLabels"][IN_ROTATION]

    pooled = Pooled(bench, bare)
    operator = bench.operator()
    bench.turns(operator, 16)
    found = pooled.resolved()
    assert (found["status"], found["reason"]) == ("False", "NotInSelector")
    assert "add it there and to the pods' template" in found["message"]
    assert "kernel fp8: InferencePool chat-fp8" in found["message"]
    bench.drift["bf16-1"] = HARD
    bench.turns(operator, 40)
    assert set(bench.labels().values()) == {"true"}
    for name in ("chat-fp8", "chat-bf16"):
        pooled.edit(name, {"selector": {"matchLabels": {IN_ROTATION: "true"}}})
    bench.turns(operator, 2)
    assert pooled.resolved()["status"] == "True"


def test_what_a_pool_lacks_is_named(bench: Bench) -> None:
    """A pool that is missing or has several ports has no replicas and a reason; the other pool serves."""
    pooled = Pooled(bench)
    operator = bench.operator()
    pooled.edit("chat-fp8", {"targetPorts": [{"number": 8000}, {"number": 8001}]})
    bench.turns(operator, 4)
    assert pooled.resolved()["reason"] == "NotOneTargetPort"
    bench.custom.delete_namespaced_custom_object(*PLACE, bench.namespace, "inferencepools", "chat-fp8")
    bench.turns(operator, 4)
    assert pooled.resolved()["reason"] == "BackendNotFound"
    assert {one.replica.kernel for one in operator.loops["chat"].discovery.pods} == {"bf16"}


def test_a_pod_that_ended_or_has_no_address_is_no_replica(bench: Bench) -> None:
    """An evicted pod still exists with its labels, but takes no slot of its kernel."""
    pooled = Pooled(bench)
    pooled.core.create_namespaced_pod(
        bench.namespace,
        pod("chat-fp8-a", bench_labels("fp8")),
    )
    pooled.serve("chat-fp8-0", 1, phase="Failed")
    operator = bench.operator()
    bench.turns(operator, 2)
    names = [one.pod for one in operator.loops["chat"].discovery.pods if one.replica.kernel == "fp8"]
    assert names == ["chat-fp8-1"]


def bench_labels(kernel: str) -> dict[str, str]:
    """Labels of a pod of ``kernel``."""
    found = next(one for one in written("pools") if one["metadata"]["name"] == f"chat-{kernel}")
    return dict(found["spec"]["selector"]["matchLabels"])


def test_watched_pools_equal_a_listing(bench: Bench) -> None:
    """An InferencePool is watched from the first request; later changes are seen without a call."""
    pooled = Pooled(bench)
    with NamespaceWatch(bench.account.api, bench.namespace, timeout_s=20.0) as watched:
        until(lambda: watched.places is not None)
        cluster = bench.cluster(watched=watched)

        def ports(name: str) -> list[int]:
            spec = (cluster.inference_pool(name) or {"spec": {"targetPorts": []}})["spec"]
            return [one["number"] for one in spec["targetPorts"]]

        assert ports("chat-fp8") == [8000]
        until(lambda: watched._places.inference_pool("chat-fp8") is not None)
        version = cluster.places_version
        pooled.edit("chat-fp8", {"targetPorts": [{"number": 9000}]})
        until(lambda: ports("chat-fp8") == [9000])
        assert version is not None
        assert (cluster.places_version or 0) > version
        bench.custom.delete_namespaced_custom_object(*PLACE, bench.namespace, "inferencepools", "chat-fp8")
        until(lambda: ports("chat-fp8") == [])
        assert ports("chat-bf16") == [8000]


def test_a_cluster_without_the_kind_has_no_pool(bench: Bench) -> None:
    """If InferencePool is not installed, there is no pool; Services and pods are still watched."""
    with NamespaceWatch(bench.account.api, bench.namespace, timeout_s=20.0) as watched:
        watched._methods["inferencepools"] = _unknown_kind(bench)
        cluster = bench.cluster(watched=watched)
        until(lambda: watched.places is not None)
        assert cluster.inference_pool("chat-fp8") is None
        until(lambda: watched._places.lists("inferencepools"))
        assert cluster.inference_pool("chat-fp8") is None
        assert watched.places is not None


def _unknown_kind(bench: Bench) -> Callable[..., Any]:
    """A listing of a kind that the server does not have."""

    def listed(namespace: str, **asked: Any) -> Any:
        return bench.custom.list_namespaced_custom_object(POOL_GROUP, "v1", namespace, "nothings", **asked)

    return listed
