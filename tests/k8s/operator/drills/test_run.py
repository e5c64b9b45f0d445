"""Drills on pods of a real API server, over the extension's endpoint: verified, judged and undone."""

from __future__ import annotations

import json

import pytest

from k8s.api.drills import ApiDrillCluster
from k8s.operator.drills.cluster import FINALIZER
from k8s.operator.objects import Manifest
from tests.support.cluster.drilled_pods import DrillWorld, drill_spec

pytestmark = [
    pytest.mark.needs("kube_api", "vllm", "aiohttp", "own_endpoints"),
    pytest.mark.waits,
    pytest.mark.slow,
]


class Watched(ApiDrillCluster):
    """Records which faults the pod had in force whenever the drill's note was written."""

    def __init__(self, world: DrillWorld) -> None:
        super().__init__(world.bench.api, world.bench.namespace, timeout_s=20.0)
        self._world = world
        self.written: list[tuple[str, list[str]]] = []

    def write_config(self, config: Manifest) -> None:
        """Write the ConfigMap, then read the pod's faults."""
        super().write_config(config)
        state = json.loads(config["data"]["drill.json"])["state"]
        self.written.append((state, self._world.in_force("chat-fp8-0")))


def test_a_drill_is_recorded_verified_judged_and_undone(world: DrillWorld) -> None:
    """The undo is recorded before the injection, the fault is verified, and all is restored."""
    world.apply()
    cluster = Watched(world)
    drills = world.drills(cluster)
    world.until(drills, lambda: world.phase() == "Done")
    found = world.bench.read("FaultDrill", "late")
    assert world.conditions()["Passed"] == ("True", "Passed"), world.told()
    assert world.conditions()["Accepted"][0] == world.conditions()["ResolvedRefs"][0] == "True"
    assert cluster.written[:2] == [("open", []), ("undone", [])]
    assert FINALIZER not in (found["metadata"].get("finalizers") or [])
    assert found["status"]["observedGeneration"] == found["metadata"]["generation"]
    report = json.loads(world.note()["outcome.json"])
    (fault,) = report["faults"]
    assert (fault["before"], fault["happened"], fault["replicas"]) == (False, True, ["fp8-0"])
    events = world.core.list_namespaced_event(world.bench.namespace).items
    assert {"AcceptedValid", "PassedPassed"} <= {one.reason for one in events}


def test_a_drill_that_ended_does_not_run_again(world: DrillWorld) -> None:
    """Neither the same runner nor a new one repeats a drill whose generation has ended."""
    world.apply(time_to_live_s=6.0)
    world.until(world.drills(), lambda: world.phase() == "Done")
    before = world.bench.read("FaultDrill", "late")["metadata"]["resourceVersion"]
    again = world.drills()
    for _ in range(3):
        again.turn()
    assert world.bench.read("FaultDrill", "late")["metadata"]["resourceVersion"] == before


def test_a_pod_kill_deletes_its_pod_and_waits_for_the_next(world: DrillWorld) -> None:
    """A crash deletes the pod, is verified by its absence, and ends when another pod is ready."""
    fault = drill_spec()["faults"][0] | {"name": "killed", "kind": "crash"}
    del fault["dose"]
    world.apply(faults=[fault])
    drills = world.drills()
    uid = world.core.read_namespaced_pod("chat-fp8-0", world.bench.namespace).metadata.uid

    def gone() -> bool:
        pods = world.core.list_namespaced_pod(world.bench.namespace).items
        return all(one.metadata.uid != uid for one in pods)

    world.endpoints("fp8", [0, 1])
    world.until(drills, gone)
    world.endpoints("fp8", [1])
    drills.turn()
    world.make_pod("fp8", 0)
    world.endpoints("fp8", [0, 1])
    world.until(drills, lambda: world.phase() == "Done")
    assert world.conditions()["Passed"] == ("True", "Passed"), world.bench.read("FaultDrill", "late")[
        "status"
    ]
