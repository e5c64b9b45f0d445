"""What the operator refuses to write, and how it goes on when a write is refused."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np
import pytest

from contracts.telemetry import ReplicaState
from controller.ports import RoutingPlan
from k8s.operator.actuator import ClusterActuator, RouteTarget, unserved_slices
from k8s.operator.objects import Cluster, ClusterError
from k8s.operator.pods.replicas import PodReplica
from k8s.routes.writer import WrittenRoute
from live.ports import LiveReplica
from tests.k8s.routes.test_rules import shape_of
from tests.support.servers.live_fleets import LAYOUT


@pytest.mark.parametrize(
    ("rows", "forbidden", "ready", "empty"),
    [
        ([[0.0, 0.0, 1.0], [0.5, 0.5, 0.0]], None, {"fp16", "fp32"}, ["prose"]),
        ([[0.0, 0.0, 1.0], [0.0, 0.0, 1.0]], None, set(), []),
        ([[0.0, 0.0, 1.0], [0.0, 1.0, 0.0]], [[True, True], [True, False]], {"fp16", "fp32"}, []),
        ([[0.0, 0.0, 1.0], [0.0, 1.0, 0.0]], [[True, False], [True, False]], {"fp16"}, []),
        ([[0.0, 0.0, 1.0], [0.0, 1.0, 0.0]], [[True, False], [True, False]], {"fp32"}, ["prose"]),
        ([[0.0, 0.01, 0.99], [0.0, 1.0, 0.0]], None, {"fp16", "fp32"}, []),
    ],
)
def test_a_slice_is_shed_entirely_only_if_no_kernel_could_serve_it(
    rows: list[list[float]], forbidden: list[list[bool]] | None, ready: set[str], empty: list[str]
) -> None:
    """All of a slice may be shed only if every ready kernel has a hard violation on it."""
    plan = RoutingPlan(
        table=np.array([rows]),
        in_rotation=np.ones((1, 3), dtype=np.bool_),
        version=np.array([1]),
        forbidden=None if forbidden is None else np.array([forbidden]),
    )
    assert unserved_slices(plan, LAYOUT, frozenset(ready)) == empty


@dataclass
class Refusing:
    """A cluster whose admission refuses labels of some pods."""

    refused: set[str]
    put: dict[str, str] = field(default_factory=dict)

    def label_pod(self, name: str, key: str, value: str) -> None:
        """Set the label, or refuse it."""
        if name in self.refused:
            raise ClusterError(f"Pod {name}: the API server said 403 Forbidden: a policy", refused=True)
        self.put[name] = value


def standing(slot: str, *, in_rotation: bool) -> PodReplica:
    """A ready pod with the name of its slot."""
    server = LiveReplica(
        name=slot, kernel=slot.split("-")[0], url="http://x", state=ReplicaState.READY, fingerprint=""
    )
    return PodReplica(slot=slot, pod=slot, in_rotation=in_rotation, replica=server)


@pytest.mark.parametrize(
    ("refused", "put"),
    [
        (set(), {"fp16-1": "true", "fp16-0": "false", "fp32-0": "false"}),
        ({"fp16-1"}, {"fp32-0": "false"}),  # fp16-1 could not be returned, so fp16-0 is not taken out
        ({"fp32-0"}, {"fp16-1": "true", "fp16-0": "false"}),
    ],
)
def test_a_pod_whose_label_is_refused_does_not_stop_others(refused: set[str], put: dict[str, str]) -> None:
    """If admission refuses one pod's label, other pods are still taken out, and no kernel is emptied."""
    cluster = Refusing(refused)
    layout = replace(
        LAYOUT, replicas=("fp16-0", "fp16-1", "fp32-0", "fp32-1"), replica_kernel=np.array([0, 0, 1, 1])
    )
    target = RouteTarget(route=WrittenRoute(name="r", owner="o"), shape=shape_of(2, 2), layout=layout)
    ways = {"fp16-0": True, "fp16-1": False, "fp32-0": True, "fp32-1": True}
    pods = [standing(slot, in_rotation=here) for slot, here in ways.items()]
    actuator = ClusterActuator(cast(Cluster, cluster), target, lambda: pods)
    plan = RoutingPlan(
        table=np.array([[[0.5, 0.5, 0.0], [0.5, 0.5, 0.0]]]),
        in_rotation=np.array([[False, True, False, True]]),
        version=np.array([1]),
        forbidden=None,
    )
    if refused:
        with pytest.raises(ClusterError, match="a policy"):
            actuator._rotate(plan)
    else:
        actuator._rotate(plan)
    assert cluster.put == put


def test_pods_are_not_labelled_after_the_lead_was_lost_in_a_turn() -> None:
    """With a slow server a turn may outlast its lease, and the next leader labels meanwhile."""
    leads = iter([True, False, False, False])
    cluster = Refusing(set())
    layout = replace(
        LAYOUT, replicas=("fp16-0", "fp16-1", "fp32-0", "fp32-1"), replica_kernel=np.array([0, 0, 1, 1])
    )
    target = RouteTarget(route=WrittenRoute(name="r", owner="o"), shape=shape_of(2, 2), layout=layout)
    pods = [standing(slot, in_rotation=slot != "fp16-1") for slot in layout.replicas]
    actuator = ClusterActuator(cast(Cluster, cluster), target, lambda: pods, lambda: next(leads))
    plan = RoutingPlan(
        table=np.array([[[0.5, 0.5, 0.0], [0.5, 0.5, 0.0]]]),
        in_rotation=np.array([[False, True, False, True]]),
        version=np.array([1]),
    )
    with pytest.raises(ClusterError, match="leads no more"):
        actuator._rotate(plan)
    assert cluster.put == {"fp16-1": "true"}
    assert not actuator.write(plan.table[0])
    assert actuator.last_reason == "LeadsNoMore"
