"""A Deployment scaled by an autoscaler: replicas seen, conditions set, and the capacity of a fallback."""

from __future__ import annotations

import numpy as np
import pytest
from kubernetes import client

from k8s.operator.namespace import NamespaceOperator
from tests.support.cluster.cluster_worlds import Bench, Object, pod, sample

pytestmark = [pytest.mark.needs("kube_api"), pytest.mark.slow, pytest.mark.waits]

HARD = 0.02


class Autoscaled:
    """Pods and endpoints of a kernel, scaled as its Deployment would be.

    The API server of the tests has no Deployments and no controllers.
    """

    def __init__(self, bench: Bench, kernel: str) -> None:
        self._bench, self._kernel = bench, kernel
        self._core = client.CoreV1Api(bench.api)
        deployment, _ = sample(kernel)
        self._labels = dict(deployment["spec"]["template"]["metadata"]["labels"])

    def scale(self, replicas: int) -> None:
        """Have ``replicas`` pods, as after a decision of a HorizontalPodAutoscaler."""
        name = f"chat-{self._kernel}"
        found = self._core.list_namespaced_pod(
            self._bench.namespace, label_selector=f"selvage.dev/kernel={self._kernel}"
        )
        there = {one.metadata.name for one in found.items}
        wanted = [f"{name}-{n}" for n in range(replicas)]
        for one in sorted(set(wanted) - there):
            self._core.create_namespaced_pod(self._bench.namespace, pod(one, self._labels))
        for one in sorted(there - set(wanted)):
            self._core.delete_namespaced_pod(
                one, self._bench.namespace, grace_period_seconds=0, _preload_content=False
            )
        self._bench.endpoints(self._kernel, wanted)


def told(bench: Bench, kind: str) -> str:
    """Message of a condition of the policy."""
    conditions = bench.read("RoutePolicy", "chat")["status"]["conditions"]
    return str(next(one["message"] for one in conditions if one["type"] == kind))


def known_good(operator: NamespaceOperator) -> tuple[int, float]:
    """Ready replicas of the known-good kernel, and what they carry in requests per second."""
    loop = operator.loops["chat"]
    turn, k = loop.standing.turn, loop.setup.layout.known_good
    assert turn is not None
    assert turn.decision is not None
    seen = turn.decision.observation
    return int(seen.ready[0, k]), float(seen.capacity_rps[0, k])


def test_servers_beyond_the_declared_ones_are_reported(bench: Bench) -> None:
    """Ready servers beyond the declared replicas set a condition with the next step until they are gone."""
    bench.everything()
    operator, scaler = bench.operator(), Autoscaled(bench, "fp8")
    bench.turns(operator, 3)
    assert bench.conditions()["Degraded"] == ("False", "Healthy")
    scaler.scale(5)
    bench.turns(operator, 3)
    found = bench.conditions()
    assert found["Degraded"] == ("True", "MoreThanDeclared")
    assert found["TelemetryFresh"] == ("True", "MoreThanDeclared")
    assert found["Ready"] == ("True", "Serving")
    assert "kernel fp8: 3 ready servers beyond its replicas (2)" in told(bench, "Degraded")
    assert "raise replicas in the KernelPool" in told(bench, "Degraded")
    assert len(operator.loops["chat"].discovery.pods) == 4
    scaler.scale(1)
    bench.turns(operator, 3)
    assert bench.conditions()["Degraded"] == ("False", "Healthy")


def test_a_fallback_counts_on_ready_servers_alone(bench: Bench) -> None:
    """The known-good kernel's capacity counts ready servers only, not declared replicas.

    What it cannot carry is shed, and admitted step by step while queues are empty.
    """
    bench.everything(_roomy)
    operator, scaler = bench.operator(), Autoscaled(bench, "bf16")
    for ready in (6, 1, 4):
        scaler.scale(ready)
        bench.turns(operator, 3)
        found, carried_rps = known_good(operator)
        assert (found, round(carried_rps, 3)) == (ready, 2.0 * ready)
    scaler.scale(1)
    bench.turns(operator, 16)
    bench.drift["fp8"] = HARD
    bench.turns(operator, 40)
    table = operator.loops["chat"].controller.state.table[0]
    layout = operator.loops["chat"].setup.layout
    assert not table[:, layout.kernels.index("fp8")].any()
    carried_rps = 3.0 * table[:, layout.known_good].sum()
    let_in = operator.loops["chat"].controller.state.load["ratio"][0, layout.known_good] / 1.05
    assert 1.5 < carried_rps / let_in < 2.3  # of 6 offered; six declared replicas would have carried 12
    assert np.allclose(table[:, layout.known_good] + table[:, -1], 1.0)


def test_a_declared_headroom_warns_and_moves_nothing(bench: Bench) -> None:
    """Headroom below the declared share sets a condition on the pool and moves no weights."""
    bench.everything(_half)
    operator, scaler = bench.operator(), Autoscaled(bench, "bf16")
    bench.turns(operator, 4)
    assert bench.conditions("KernelPool", "chat-pool")["KnownGoodHeadroom"] == ("True", "Enough")
    before = operator.loops["chat"].controller.state.table.copy()
    bench.change("KernelPool", "chat-pool", {"known_good_headroom_ratio": 1.0})
    operator.nudge()
    bench.turns(operator, 3)
    found = bench.conditions("KernelPool", "chat-pool")
    assert (found["KnownGoodHeadroom"], found["Ready"][0]) == (("False", "TooLittle"), "True")
    assert (operator.loops["chat"].controller.state.table == before).all()
    scaler.scale(4)
    bench.turns(operator, 3)
    assert bench.conditions("KernelPool", "chat-pool")["KnownGoodHeadroom"] == ("True", "Enough")


def _half(pool: Object) -> None:
    _roomy(pool)
    pool["spec"]["known_good_headroom_ratio"] = 0.5


def _roomy(pool: Object) -> None:
    """Declare as many replicas as the autoscaler may reach, of 2 requests per second each."""
    for kernel in pool["spec"]["kernels"]:
        if kernel["name"] == "bf16":
            kernel.update(replicas=6, capacity_rps=2.0)
