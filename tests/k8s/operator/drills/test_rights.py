"""All API calls of the drill runner, compared with its Role."""

from __future__ import annotations

from typing import Any

import pytest
from kubernetes import client

from k8s.api.drills import ApiDrillCluster
from k8s.operator.drills.pods import CHAOS_MESH, HAND_OVER, chaos_name
from k8s.process.drills import LEASE
from k8s.process.election import Leadership
from tests.support.cluster.drilled_pods import DrillWorld, drill_spec
from tests.support.cluster.granted import RUNNER, Account, granted
from tests.support.cluster.kube_api import install_definitions

pytestmark = [
    pytest.mark.needs("kube_api", "vllm", "aiohttp", "own_endpoints"),
    pytest.mark.waits,
    pytest.mark.slow,
]

_CHAOS = ("chaos-mesh.org", "v1alpha1")


def chaos_definition() -> dict[str, Any]:
    """A stand-in for the definition of Chaos Mesh."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1alpha1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": "networkchaos", "singular": "networkchaos", "kind": "NetworkChaos"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "networkchaos.chaos-mesh.org"},
        "spec": {"group": "chaos-mesh.org", "scope": "Namespaced", "names": names, "versions": [version]},
    }


def inject_as_chaos_mesh(world: DrillWorld) -> dict[str, Any] | None:
    """Mark the NetworkChaos as injected; returns its spec, None while it does not exist."""
    name = chaos_name("late", "late", "fp8-0")
    try:
        found: dict[str, Any] = world.bench.custom.get_namespaced_custom_object(
            *_CHAOS, world.bench.namespace, "networkchaos", name
        )
    except client.ApiException:
        return None
    found["status"] = {"conditions": [{"type": "AllInjected", "status": "True"}]}
    world.bench.custom.replace_namespaced_custom_object(
        *_CHAOS, world.bench.namespace, "networkchaos", name, found
    )
    return dict(found["spec"])


def test_the_role_is_what_the_drill_runner_uses(world: DrillWorld) -> None:
    """A drill that uses every feature makes exactly the calls that the Role allows."""
    extensions = client.ApiextensionsV1Api(world.bench.api)
    install_definitions(world.bench.api, [chaos_definition()])
    try:
        recorded = Account(world.bench.api.configuration, RUNNER)
        cluster = ApiDrillCluster(recorded.api, world.bench.namespace, timeout_s=20.0)
        world_runs_everything(world, cluster)
        cluster.hold(world.bench.read("FaultDrill", "late"), held=True)
        world.drills(cluster).turn()  # as after a runner died
        leadership = Leadership(recorded.api, world.bench.namespace, "one", timeout_s=20.0, lease=LEASE)
        assert leadership.step()
        leadership._asked_s = float("-inf")
        assert leadership.step()
    finally:
        extensions.delete_custom_resource_definition("networkchaos.chaos-mesh.org")
    assert cluster.inference_pool("none") is None  # the Role allows it for kernels behind an InferencePool
    assert recorded.calls == granted(RUNNER)


def world_runs_everything(world: DrillWorld, cluster: ApiDrillCluster) -> None:
    """Run a drill with a delay by Chaos Mesh and then a crash of the same pod."""
    late = drill_spec()["faults"][0]
    killed = {"name": "killed", "kind": "crash", "target": late["target"], "onset_s": 8.0}
    world.apply(
        faults=[late, killed],
        time_to_live_s=20.0,
        annotations={HAND_OVER: CHAOS_MESH},
    )
    drills = world.drills(cluster)
    seen: list[dict[str, Any]] = []

    def pods() -> set[str]:
        return {one.metadata.name for one in world.core.list_namespaced_pod(world.bench.namespace).items}

    def injected_and_killed() -> bool:
        if not seen and (spec := inject_as_chaos_mesh(world)) is not None:
            seen.append(spec)
        return "chat-fp8-0" not in pods()

    world.until(drills, injected_and_killed)
    world.endpoints("fp8", [1])
    world.make_pod("fp8", 0)
    world.endpoints("fp8", [0, 1])
    world.until(drills, lambda: world.phase() == "Done")
    (spec,) = seen
    assert spec["delay"] == {"latency": "50ms"}
    assert spec["selector"] == {"pods": {world.bench.namespace: ["chat-fp8-0"]}}
    assert spec["duration"] == "20s"
    assert inject_as_chaos_mesh(world) is None
    assert world.conditions()["Passed"] == ("True", "Passed"), world.bench.read("FaultDrill", "late")[
        "status"
    ]
