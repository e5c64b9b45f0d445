"""Drills that cannot run: refused at apply if the server can, else by a condition; nothing is injected."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from k8s.operator.drills.admission import DrillPlace, judge_drill
from k8s.operator.drills.pods import CHAOS_MESH, HAND_OVER
from k8s.operator.objects import Resources
from tests.support.cluster.cluster_worlds import SHED, Bench
from tests.support.cluster.drilled_pods import DrillWorld, drill_spec, drill_world

pytestmark = [
    pytest.mark.waits,
    pytest.mark.needs("kube_api", "vllm", "aiohttp", "own_endpoints"),
    pytest.mark.slow,
]


def struck(**target: Any) -> list[dict[str, Any]]:
    """The drill's fault with another target."""
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
#: Changes to the drill, the condition that they make False, and its reason.
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
    "a fault that no server takes": (
        {"faults": REBUILT},
        "Accepted",
        "NotInjectable",
    ),
    "Chaos Mesh is missing": ({"annotations": {HAND_OVER: CHAOS_MESH}}, "ResolvedRefs", "ChaosMeshMissing"),
}


def test_bad_input_is_reported_and_nothing_is_injected(
    api: client.ApiClient, namespace: str, tmp_path: Path
) -> None:
    """Each bad drill gets a condition that says what to do, and injects no fault."""
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


@pytest.mark.parametrize(
    ("guards", "said"), [([], "needs at least one guard"), ([GUARD], "a drill watches failure_rate")]
)
def test_a_drill_without_a_valid_guard_is_refused_at_apply(
    bench: Bench, guards: list[dict[str, Any]], said: str
) -> None:
    """The API server refuses a drill without a guard, or with a guard on a metric that drills do not have."""
    world = DrillWorld(bench=bench, folder=Path())
    with pytest.raises(client.ApiException, match=said):
        world.apply(abort_when=guards)


def test_a_drill_from_before_the_servers_rules_is_refused_by_the_runner() -> None:
    """A drill that was stored under an earlier definition is checked again and gets a condition."""
    spec = {**drill_spec(), "abort_when": [GUARD]}
    found = {
        "apiVersion": "selvage.dev/v1alpha1",
        "kind": "FaultDrill",
        "metadata": {"name": "old"},
        "spec": spec,
    }
    place = DrillPlace(namespace="chat", allowed=frozenset({"chat"}), shed=SHED)
    nothing = Resources(contracts={}, pools={}, policies={}, promotions={})
    accepted = judge_drill(found, nothing, place).accepted
    assert (accepted.status, accepted.reason) == ("False", "Invalid")
    assert "failure_rate" in accepted.message


def test_a_namespace_that_is_not_allowed_is_reported(bench: Bench) -> None:
    """In a namespace where drills are not allowed, the condition says so."""
    world = DrillWorld(bench=bench, folder=Path())
    world.apply()
    world.drills(allowed="elsewhere").turn()
    assert world.conditions()["Accepted"] == ("False", "NamespaceNotAllowed")


def test_a_second_drill_on_a_pool_is_refused(world: DrillWorld) -> None:
    """While a drill runs on a pool, a second one is refused for good and the first one continues."""
    world.apply("late")
    world.apply("second")
    drills = world.drills()
    world.until(drills, lambda: world.phase("second") == "Done")
    assert world.conditions("second")["Accepted"] == ("False", "PoolTaken")
    assert world.conditions("late")["Progressing"][0] == "True"
    drills.leave()
