"""The operator of a namespace on a real API server: gets ready, moves weights on a fault, limits writes."""

from __future__ import annotations

import pytest
from kubernetes import client

from k8s.process.metrics import LoopCounts, OperatorCollector
from tests.support.cluster.cluster_worlds import Bench

pytestmark = [pytest.mark.needs("kube_api"), pytest.mark.slow, pytest.mark.waits]

HARD = 0.02
#: ConfigMap that a full cluster creates in each namespace.
OF_EVERY_NAMESPACE = "kube-root-ca.crt"


def test_a_sample_becomes_ready_and_its_route_is_written(bench: Bench) -> None:
    """The sample becomes ready: every slice is on its home kernel, and every condition is set."""
    bench.everything()
    bench.turns(bench.operator(), 4)
    found = bench.conditions()
    assert {kind for kind, (status, _) in found.items() if status == "True"} == {
        "Accepted",
        "ResolvedRefs",
        "Ready",
        "Programmed",
        "TelemetryFresh",
        "MetaContractHeld",
    }
    assert {kind for kind, (status, _) in found.items() if status == "False"} == {
        "Progressing",
        "Degraded",
        "FallbackActive",
    }
    assert bench.weights("prose") == {"chat-fp8": 10_000, "chat-bf16": 0, "selvage-refuse": 0}
    assert bench.weights("numbers") == {"chat-fp8": 0, "chat-bf16": 10_000, "selvage-refuse": 0}
    assert bench.conditions("KernelPool", "chat-pool")["Ready"] == ("True", "Serving")
    assert bench.conditions("KernelContract", "chat-contract")["Accepted"] == ("True", "Valid")


def test_a_fault_moves_the_weights_and_is_reported(bench: Bench) -> None:
    """A fault moves the weights to the other kernel; conditions and Events say so."""
    bench.struck("fp8", HARD)
    assert bench.weights("prose")["chat-bf16"] == 10_000
    assert bench.conditions()["Degraded"][0] == "True"
    events = client.CoreV1Api(bench.api).list_namespaced_event(bench.namespace).items
    warned = {one.reason for one in events if one.type == "Warning"}
    assert any(reason.startswith("Degraded") for reason in warned), warned


def test_a_differing_replica_is_labelled_and_the_last_one_stays(bench: Bench) -> None:
    """A replica that differs from its peer is labelled out of its Service; the peer stays."""
    operator = bench.struck("bf16-1", HARD)
    found = bench.labels()
    assert found["chat-bf16-1"] == "false"
    assert [name for name, place in found.items() if place == "true"] == [
        "chat-bf16-0",
        "chat-fp8-0",
        "chat-fp8-1",
    ]
    bench.endpoints("bf16", ["chat-bf16-0"])
    bench.turns(operator, 3)
    assert {one.pod for one in operator.loops["chat"].discovery.pods if not one.in_rotation} == {
        "chat-bf16-1"
    }


def test_a_deleted_pod_is_no_longer_counted_as_quarantined(bench: Bench) -> None:
    """After a quarantined pod is deleted, it is no longer counted as out of rotation."""
    operator = bench.struck("bf16-1", HARD)
    loop, collector = operator.loops["chat"], OperatorCollector(operator, LoopCounts(), lambda: True)

    def away() -> float:
        found = [one for metric in collector.collect() for one in metric.samples]
        return sum(one.value for one in found if one.name == "selvage_quarantined_replicas")

    assert away() == 1
    bench.endpoints("bf16", ["chat-bf16-0"])
    client.CoreV1Api(bench.api).delete_namespaced_pod(
        "chat-bf16-1", bench.namespace, grace_period_seconds=0, _preload_content=False
    )
    bench.drift.clear()
    bench.turns(operator, 3)
    assert [one.pod for one in loop.discovery.pods if not one.in_rotation] == []
    assert away() == 0


def test_an_observer_writes_nothing_but_status(bench: Bench) -> None:
    """In observe mode the operator writes only status: no route, no label and no ConfigMap."""
    bench.everything()
    bench.change("RoutePolicy", "chat", {"mode": "observe"})
    before = bench.route()["metadata"]["resourceVersion"]
    operator = bench.operator()
    bench.turns(operator, 20)
    bench.drift.update({"fp8": HARD, "bf16-1": HARD})
    bench.turns(operator, 40)
    assert bench.route()["metadata"]["resourceVersion"] == before
    assert set(bench.labels().values()) == {"true"}
    kept = client.CoreV1Api(bench.api).list_namespaced_config_map(bench.namespace).items
    assert [one.metadata.name for one in kept if one.metadata.name != OF_EVERY_NAMESPACE] == []
    assert bench.conditions()["Programmed"] == ("Unknown", "Observing")
    assert bench.conditions()["Ready"][0] == "True"


def test_status_writes_are_bounded(bench: Bench) -> None:
    """A healthy policy's status is written at most once a minute, also when events wake the operator."""
    bench.everything()
    operator = bench.operator()
    bench.turns(operator, 10)
    before = operator.publisher.writes
    for _ in range(120):
        operator.nudge()
        bench.turns(operator, 1)
    assert operator.publisher.writes - before <= 3 * 2


def test_silence_holds_the_last_table(bench: Bench) -> None:
    """While telemetry is silent, the last table stays in force."""
    bench.everything()
    operator = bench.operator()
    bench.turns(operator, 16)
    bench.silent = True
    bench.turns(operator, 60)
    assert bench.weights("prose")["chat-fp8"] == 10_000
    assert bench.conditions()["TelemetryFresh"] == ("False", "Silent")
