"""One object that causes an unexpected error, and objects that are created again under their names."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import cast

import pytest

from contracts.documents import Document
from k8s.operator import namespace as module
from k8s.operator.admission import ObjectReader, judge_document
from k8s.operator.advice import Advisor
from k8s.operator.namespace import NamespaceOperator
from k8s.operator.objects import Cluster, Manifest
from k8s.operator.pods.replicas import PodReplica
from k8s.operator.route_loop import RouteLoop
from k8s.operator.status.conditions import ResourceCondition
from scripts.studies.operator.resources import PoolSize
from scripts.studies.operator.world import RecordedWorld, recorded_world


@pytest.fixture
def world() -> RecordedWorld:
    """Two small pools with their policies."""
    return recorded_world(2, PoolSize(kernels=2, replicas=1, slices=1), 12)


def turned(world: RecordedWorld, operator: NamespaceOperator, count: int) -> None:
    """Run ``count`` turns."""
    for _ in range(count):
        world.advance()
        operator.turn()


def test_a_promotion_without_a_spec_stops_no_policy(world: RecordedWorld) -> None:
    """A promotion without a spec, stored before the present rules, is reported, and every policy runs."""
    bad: Manifest = {"kind": "KernelPromotion", "metadata": {"name": "odd", "uid": "u", "generation": 1}}
    found = world.cluster.resources()
    world.cluster._resources = replace(
        found, promotions={"odd": {"apiVersion": "selvage.dev/v1alpha1", **bad}}
    )
    operator = world.operator()
    turned(world, operator, 3)
    assert set(operator.loops) == {"pool-0", "pool-1"}
    assert (operator.failures.now, operator.failures.others) == ({}, {})


def test_a_pool_whose_status_cannot_be_made_stops_no_policy(
    world: RecordedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error while judging one pool leaves the statuses of others and all policies unaffected."""
    inner, said = judge_document, Counter[str]()

    def judged(found: Manifest, kind: type[Document], reader: ObjectReader) -> ResourceCondition:
        said[found["metadata"]["name"]] += 1
        if (found["kind"], found["metadata"]["name"]) == ("KernelPool", "pool-0"):
            raise KeyError("unforeseen")
        return inner(found, kind, reader)

    monkeypatch.setattr("k8s.operator.namespace.judge_document", judged)
    operator = world.operator()
    turned(world, operator, 3)
    assert operator.failed
    assert operator.failures.others == {"pool pool-0": "KeyError"}
    assert said["pool-1"] >= 6  # its pool and its contract, in each turn
    assert all(loop.standing.turn is not None for loop in operator.loops.values())


def test_a_deleted_policy_leaves_no_records(world: RecordedWorld) -> None:
    """Refusals, counts and written labels of a policy are dropped when it is deleted."""
    found = world.cluster.resources()
    operator = world.operator()
    operator.advisor = Advisor(cast(Cluster, world.cluster))
    turned(world, operator, 3)
    operator._refused["pool-0"] = module._Refused(wanted="w", told="t", reason="DoesNotFit")
    world.cluster._resources = replace(found, policies={})
    operator.nudge()
    turned(world, operator, 1)
    assert (operator._refused, operator.tallies, operator.loops) == ({}, {}, {})
    assert operator.advisor._written == {}
    assert operator.promotions._policies == {}


def test_a_pod_replaced_under_its_name_is_labelled_again(
    world: RecordedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A StatefulSet's new pod has the old name and lacks our label; deleted pods are forgotten."""
    operator, labelled = world.operator(), Counter[str]()
    operator.advisor = Advisor(cast(Cluster, world.cluster))
    monkeypatch.setattr(world.cluster, "label_pod", lambda name, _key, _value: labelled.update([name]))
    turned(world, operator, 3)
    loop = operator.loops["pool-0"]
    first = loop.discovery.pods[0]
    assert labelled[first.pod] == 1
    loop.discovery._uids = {first.pod: "another"}
    operator.advisor.turned(loop)
    assert labelled[first.pod] == 2
    _gone(loop, loop.discovery.pods[:1])
    operator.advisor.turned(loop)
    assert len(operator.advisor._written["pool-0"]) == 1


def _gone(loop: RouteLoop, pods: tuple[PodReplica, ...]) -> None:
    """Leave only ``pods``."""
    loop.discovery.pods = pods
