"""Pods that return from quarantine: held back until their generations agree, let in step by step, or not."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import wait
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import pytest
from kubernetes import client

from contracts.telemetry import ReplicaState
from controller.healing.records import Flush, HealingTerms
from controller.ports import RoutingPlan
from k8s.operator.actuator import ClusterActuator, RouteTarget
from k8s.operator.loop_standing import SwitchedActuator
from k8s.operator.namespace import NamespaceOperator
from k8s.operator.objects import Cluster
from k8s.operator.pods.replicas import PodDiscovery, PodReplica
from k8s.operator.pods.returns import PATIENCE_S, PodReturns
from k8s.operator.report import returns_condition
from k8s.routes.writer import WrittenRoute
from live.heal.playbook import Mender
from live.ports import LiveReplica
from tests.k8s.routes.test_rules import shape_of
from tests.support.cluster.cluster_worlds import Bench
from tests.support.servers.live_fleets import LAYOUT

TERMS = HealingTerms(verify_probes=4, readmit_over_s=8.0, steps=4, wait_s=2.0, most_wait_s=2.0)
FOUR = replace(LAYOUT, replicas=("a-0", "a-1", "b-0", "b-1"), replica_kernel=np.array([0, 0, 1, 1]))


@dataclass
class Scripted:
    """A ``PodVerifier`` and the mender of every pod, with fixed answers."""

    terms: HealingTerms = TERMS
    ready: bool = True
    unverified: str = ""
    right: bool = True
    asked: list[str] = field(default_factory=list)

    def mender(self, slot: str) -> Mender:
        """Itself, for any pod."""
        self.asked.append(slot)
        return self

    def restart(self) -> tuple[bool, str]:
        """Restarts are not permitted."""
        return False, "nobody may"

    def flush(self) -> tuple[Flush, str]:
        """The flush succeeds."""
        return Flush.FLUSHED, ""

    def probe(self, number: int) -> tuple[bool, str]:
        """Right or wrong, as ``right`` says."""
        del number
        return self.right, "" if self.right else "pair_gap 3"


@dataclass
class There:
    """The part of a discovery that returns need."""

    occupants: dict[str, tuple[str, str]]


def returns_of(verifier: Scripted, there: There, pending: tuple[str, ...] = ()) -> PodReturns:
    """Returns over the given pods."""
    return PodReturns(verifier, cast(PodDiscovery, there), pending)


def said_of(returns: PodReturns) -> tuple[str, str]:
    """Status and reason of the condition."""
    found = returns_condition(returns)
    return found.status, found.reason


def test_a_new_pod_in_the_slot_of_a_returning_one_does_not_wait() -> None:
    """A return ends with its pod: a new pod in the slot was never unhealthy."""
    there = There({"a-0": ("pod-0", "u0"), "a-1": ("pod-1", "u1")})
    found = returns_of(Scripted(right=False), there)
    found.turn(0.0, ["a-0", "a-1"], [])
    assert found.shares == {"a-0": 0.0, "a-1": 0.0}
    there.occupants = {"a-0": ("pod-0", "other"), "a-1": ("pod-1", "u1")}
    found.turn(1.0, [], [])
    assert found.shares == {"a-1": 0.0}
    there.occupants = {}
    found.turn(2.0, ["a-0"], [])  # its quarantine ended because the pod is gone
    assert found.shares == {}


def test_a_pod_waits_for_the_reference_for_a_limited_time() -> None:
    """Without a reference pods are held back; after a timeout they return, and the reason is reported."""
    verifier = Scripted(ready=False)
    found = returns_of(verifier, There({"a-0": ("pod-0", "u")}))
    found.turn(0.0, ["a-0"], [])
    assert found.shares == {"a-0": 0.0}
    assert said_of(found) == ("Unknown", "ReferenceAwaited")
    verifier.unverified = "no pod of bf16 is ready"
    assert found.turn(PATIENCE_S - 1.0, [], []) == ()
    assert said_of(found) == ("False", "NoReference")
    assert "a-0: waits" in returns_condition(found).message
    (line,) = found.turn(PATIENCE_S, [], [])
    assert "unverified: no pod of bf16 is ready" in line
    assert found.shares == {}
    verifier.ready = True
    found.turn(PATIENCE_S + 1.0, ["a-0"], [])
    assert found.shares == {"a-0": 0.0}
    assert verifier.asked == ["a-0"]
    assert said_of(found) == ("True", "Verified")
    assert returns_condition(None).reason == "NotAsked"


def test_pending_returns_start_again_once_pods_are_known() -> None:
    """A new leader keeps pending returns until it sees the pods, and drops those whose pod is gone."""
    there = There({})
    found = returns_of(Scripted(right=False), there, pending=("a-0", "gone"))
    found.turn(0.0, [], [])
    assert list(found.names) == ["a-0", "gone"]
    there.occupants = {"a-0": ("pod-0", "u")}
    found.turn(1.0, [], [])
    assert list(found.names) == ["a-0"]


@dataclass
class Labels:
    """A cluster that keeps labels and routes."""

    put: dict[str, str] = field(default_factory=dict)

    def label_pod(self, name: str, key: str, value: str) -> None:
        """Keep the label."""
        del key
        self.put[name] = value


def pods_of(out: set[str]) -> list[PodReplica]:
    """Ready pods in all four slots; those in ``out`` are not in rotation."""
    return [
        PodReplica(
            slot=slot,
            pod=slot,
            in_rotation=slot not in out,
            replica=LiveReplica(name=slot, kernel=kernel, url="http://x", state=ReplicaState.READY),
        )
        for slot, kernel in zip(FOUR.replicas, ("fp16", "fp16", "fp32", "fp32"), strict=True)
    ]


#: Row of the table, parts, pods out of rotation, labels that are written, and the first kernel's share.
SHARES: list[tuple[list[float], dict[str, float], set[str], dict[str, str], float]] = [
    ([0.5, 0.5, 0.0], {"a-1": 0.0}, {"a-1"}, {}, 0.5),
    ([0.5, 0.5, 0.0], {"a-1": 0.2}, {"a-1"}, {"a-1": "true"}, 0.5),
    ([0.5, 0.5, 0.0], {"a-1": 0.0}, set(), {"a-1": "false"}, 0.5),
    ([0.5, 0.5, 0.0], {"a-0": 0.0, "a-1": 0.0}, {"a-0", "a-1"}, {}, 0.0),
    ([0.5, 0.5, 0.0], {"a-0": 0.2, "a-1": 0.2}, {"a-0", "a-1"}, {"a-0": "true", "a-1": "true"}, 0.0),
    ([0.5, 0.5, 0.0], {"a-0": 0.2, "a-1": 0.2}, set(), {}, 0.2 / 0.7),
    ([1.0, 0.0, 0.0], {"a-0": 0.0, "a-1": 0.0}, {"a-0", "a-1"}, {"a-0": "true", "a-1": "true"}, 1.0),
]


@pytest.mark.parametrize(("row", "parts", "out", "labels", "share"), SHARES)
def test_parts_of_pods_are_labels_and_weights(
    row: list[float], parts: dict[str, float], out: set[str], labels: dict[str, str], share: float
) -> None:
    """A pod is not in rotation before its first step, unless its kernel could not serve otherwise.

    A kernel without a fully returned pod gets weight in proportion to its pods' parts in rotation.
    """
    cluster = Labels()
    target = RouteTarget(route=WrittenRoute(name="r", owner="o"), shape=shape_of(2, 2), layout=FOUR)
    actuator = ClusterActuator(cast(Cluster, cluster), target, lambda: pods_of(out))
    actuator.admit(parts)
    plan = RoutingPlan(
        table=np.array([[row, row]]), in_rotation=np.ones((1, 4), dtype=np.bool_), version=np.array([1])
    )
    assert actuator._held(plan.table[0])[0, 0] == pytest.approx(share * (1.0 - row[-1]))
    actuator._rotate(plan)
    assert cluster.put == labels


def turns_until(bench: Bench, operator: NamespaceOperator, holds: Callable[[], bool]) -> None:
    """Run turns until ``holds``; requests to pods complete in between, and EndpointSlices follow labels."""
    listed: list[str] = []
    for _ in range(300):
        before = listed
        listed = [name for name, label in bench.labels().items() if label == "true" and "bf16" in name]
        if listed != before:
            bench.endpoints("bf16", listed)
        bench.turns(operator, 1)
        if holds():
            return
        inner: Any = operator.loops["chat"].returns
        wait([one for book in inner._inner._books.values() if (one := book._doing) is not None])
    raise AssertionError(f"it did not happen: {bench.read('RoutePolicy', 'chat')['status']['conditions']}")


@pytest.mark.needs("kube_api")
@pytest.mark.slow
@pytest.mark.waits
def test_a_pod_returns_only_when_it_answers_right(bench: Bench) -> None:
    """A pod stays out while its generations differ, also under the next leader; it returns once they agree.

    The first generation that differs takes it out again.
    """
    bench.verifier = verifier = Scripted(right=False)
    operator = bench.struck("bf16-1")
    assert bench.labels()["chat-bf16-1"] == "false"
    bench.endpoints("bf16", ["chat-bf16-0"])
    core = client.CoreV1Api(bench.api)
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}], "podIP": "127.0.0.2"}}
    core.patch_namespaced_pod_status("chat-bf16-1", bench.namespace, ready)
    bench.drift.clear()
    turns_until(bench, operator, lambda: returning(operator) == ["bf16-1"])
    turns_until(bench, operator, lambda: "pair_gap 3" in told(bench))
    assert bench.labels()["chat-bf16-1"] == "false"
    assert bench.conditions()["ReturnsVerified"] == ("True", "Verified")
    second = bench.operator()
    bench.turns(second, 5)
    assert returning(second) == ["bf16-1"]
    assert bench.labels()["chat-bf16-1"] == "false"
    verifier.right = True
    turns_until(bench, second, lambda: bench.labels()["chat-bf16-1"] == "true")
    assert "gets 20%" in told(bench)
    verifier.right = False
    turns_until(bench, second, lambda: bench.labels()["chat-bf16-1"] == "false")
    verifier.right = True
    turns_until(bench, second, lambda: returning(second) == [])
    assert bench.labels()["chat-bf16-1"] == "true"


def returning(operator: NamespaceOperator) -> list[str]:
    """Slots of pods that are returning."""
    return list(operator.loops["chat"].returning)


def told(bench: Bench) -> str:
    """Message of the condition about returning pods."""
    listed = bench.read("RoutePolicy", "chat")["status"]["conditions"]
    return str(next(one["message"] for one in listed if one["type"] == "ReturnsVerified"))


@dataclass
class Inner:
    """The actuator behind the break-glass switch. confirmed: whether it ever wrote the route."""

    confirmed: bool
    told: list[dict[str, float]] = field(default_factory=list)

    def admit(self, shares: dict[str, float]) -> None:
        """Keep the parts."""
        self.told.append(shares)

    def apply(self, plan: RoutingPlan) -> bool:
        """Accept any plan."""
        del plan
        return True


@pytest.mark.parametrize("confirmed", [True, False])
def test_parts_do_not_change_during_break_glass(confirmed: bool) -> None:
    """New parts wait for the end of break-glass, unless the leader has never written the route."""
    inner = Inner(confirmed)
    switch = SwitchedActuator(cast(ClusterActuator, inner))
    plan = cast(RoutingPlan, None)
    switch.frozen = True
    switch.admit({"a-0": 0.2})
    assert not switch.apply(plan)
    assert inner.told == ([] if confirmed else [{"a-0": 0.2}])
    switch.frozen = False
    assert switch.apply(plan)
    assert inner.told == [{"a-0": 0.2}]
