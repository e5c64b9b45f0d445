"""Drills that cannot run: refused at apply where the server can, else by a condition; nothing is struck."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from k8s.operator.drills.pods import CHAOS_MESH, HAND_OVER
from tests.support.cluster_worlds import Bench
from tests.support.drilled_pods import DrillWorld, drill_spec, drill_world

pytestmark = [
    pytest.mark.needs("kube_api", "vllm", "aiohttp", "own_endpoints"),
    pytest.mark.slow,
    pytest.mark.timeout(600),
]


def struck(**target: Any) -> list[dict[str, Any]]:
    """The drill's fault on another target."""
    return [drill_spec()["faults"][0] | {"target": target}]


REBUILT = [
    {
        "name": "late",
        "kind": "kernel_regression",
        "condition": "as-measured",
        "onset_s": 4.0,
        "target": {"kernel": "fp8", "replica": 0},
    }
]
GUARD = {"name": "pressure", "metric": "kv_cache_usage", "threshold": 0.5}
#: What is changed of the drill, the condition that is False then, and its reason.
BAD: dict[str, tuple[dict[str, Any], str, str]] = {
    "unknown pool": ({"pool": "nowhere"}, "ResolvedRefs", "RefNotFound"),
    "unknown kernel": ({"faults": struck(kernel="int4", replica=0)}, "ResolvedRefs", "DoesNotFit"),
    "beyond the blast radius": (
        {"faults": struck(kernel="fp8"), "blast_radius": {"replica_ratio_at_most": 0.25}},
        "ResolvedRefs",
        "DoesNotFit",
    ),
    "the last ready pods of a kernel": ({"faults": struck(kernel="fp8")}, "ResolvedRefs", "LastReady"),
    "a pod without the label": (
        {"faults": struck(kernel="bf16", replica=1)},
        "ResolvedRefs",
        "NotForDrills",
    ),
    "a metric that nobody measures": ({"abort_when": [GUARD]}, "Accepted", "Invalid"),
    "a fault that no server takes": (
        {"faults": REBUILT},
        "Accepted",
        "NotInjectable",
    ),
    "Chaos Mesh is missing": ({"annotations": {HAND_OVER: CHAOS_MESH}}, "ResolvedRefs", "ChaosMeshMissing"),
}


def test_bad_input_is_said_and_nothing_is_struck(
    api: client.ApiClient, namespace: str, tmp_path: Path
) -> None:
    """Each drill that makes no sense says why by a condition with what to do, and strikes nothing."""
    with drill_world(Bench(api=api, namespace=namespace), tmp_path, allowed=("fp8",)) as world:
        names = {what: what.lower().replace(" ", "-") for what in BAD}
        for what, (changes, _, _) in BAD.items():
            world.apply(names[what], **changes)
        drills = world.drills()
        for _ in range(2):
            drills.turn()
        for what, (_, kind, reason) in BAD.items():
            assert world.conditions(names[what])[kind] == ("False", reason), what
            assert world.phase(names[what]) == "Pending"
        assert world.in_force("chat-fp8-0") == []


def test_a_drill_without_guards_is_refused_at_apply(bench: Bench) -> None:
    """The API server itself refuses a drill that no guard ends."""
    world = DrillWorld(bench=bench, folder=Path())
    with pytest.raises(client.ApiException, match="needs at least one guard"):
        world.apply(abort_when=[])


def test_a_namespace_that_is_not_allowed_is_said(bench: Bench) -> None:
    """Where drills are not allowed a drill says so, and what to do."""
    world = DrillWorld(bench=bench, folder=Path())
    world.apply()
    world.drills(allowed="elsewhere").turn()
    assert world.conditions()["Accepted"] == ("False", "NamespaceNotAllowed")


def test_a_second_drill_on_a_pool_is_refused(world: DrillWorld) -> None:
    """While a drill runs on a pool another one is refused for good; the first one goes on."""
    world.apply("late")
    world.apply("second")
    drills = world.drills()
    world.until(drills, lambda: world.phase("second") == "Done")
    assert world.conditions("second")["Accepted"] == ("False", "PoolTaken")
    assert world.conditions("late")["Progressing"][0] == "True"
    drills.leave()
