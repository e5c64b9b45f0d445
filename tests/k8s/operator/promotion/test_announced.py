"""A planned in-place upgrade on a real API server: a promotion if announced, else a broken clause."""

from __future__ import annotations

from typing import Any

import pytest
from kubernetes import client

from k8s.operator.namespace import NamespaceOperator
from k8s.operator.pods.pod_facts import FINGERPRINT, IN, IN_ROTATION, OUT, UPGRADED
from tests.support.cluster.cluster_worlds import Bench, Object, sample
from tests.support.cluster.promotions import CANDIDATE, evidence, promote, until, with_candidate

pytestmark = [pytest.mark.needs("kube_api"), pytest.mark.slow, pytest.mark.waits]

OLD, NEW = "vllm-0.32-a", "vllm-0.33-b"
OWN = f"chat-{CANDIDATE}"
PODS = [f"chat-fp8-{n}" for n in range(2)]


@pytest.fixture
def bench(bench: Bench) -> Bench:
    """The sample with fp8 servers that state their build, and a candidate that shares their Deployment."""

    def stated(pool: Object) -> None:
        kernel = pool["spec"]["kernels"][0]
        kernel["fingerprint"] = {
            "engine": "vllm",
            "engine_version": "0.32",
            "dtype": "bfloat16",
            "system_fingerprint": OLD,
        }
        with_candidate(pool, "w8a8", {})

    bench.everything(stated)
    _, service = sample("fp8")
    service["metadata"]["name"] = OWN
    service["spec"]["selector"][IN_ROTATION] = UPGRADED
    client.CoreV1Api(bench.api).create_namespaced_service(bench.namespace, service)
    for name in PODS:
        annotate(bench, name, OLD)
    return bench


def annotate(bench: Bench, name: str, build: str) -> None:
    """Annotate a pod of the Deployment with ``build``, as its template would."""
    body = {"metadata": {"annotations": {FINGERPRINT: build}}}
    client.CoreV1Api(bench.api).patch_namespaced_pod(name, bench.namespace, body)


def follow(bench: Bench) -> None:
    """Do what the endpoints controller does: each Service lists the pods whose label it selects."""
    labels = bench.labels()
    for service, value in (("fp8", IN), (CANDIDATE, UPGRADED)):
        bench.endpoints(service, [name for name in PODS if labels[name] == value])


def turns(bench: Bench, operator: NamespaceOperator, count: int) -> None:
    """Run ``count`` turns; endpoints follow the labels after each."""
    for _ in range(count):
        bench.turns(operator, 1)
        follow(bench)


def servers(operator: NamespaceOperator) -> dict[str, str]:
    """Pod -> kernel to which it is assigned."""
    return {one.pod: one.replica.kernel for one in operator.loops["chat"].discovery.pods}


def announced(bench: Bench, **changes: Any) -> Object:
    """A promotion that announces the new build of fp8."""
    return promote(bench, evidence(bench), replaces="fp8", announced_fingerprint=NEW, **changes)


def broken(operator: NamespaceOperator) -> bool:
    """Whether a hard clause is broken, or a server was quarantined for one."""
    turn: Any = operator.loops["chat"].standing.turn
    return bool(turn.decision.judgement.hard_violated.any() or turn.decision.quarantined.any())


def test_an_unannounced_build_breaks_the_clause(bench: Bench) -> None:
    """Without a promotion that announces it, a new build behind the kernel breaks its clause."""
    operator = bench.operator()
    turns(bench, operator, 3)
    assert not broken(operator)
    annotate(bench, PODS[1], NEW)
    turns(bench, operator, 3)
    assert broken(operator)
    assert servers(operator)[PODS[1]] == "fp8"


def test_a_build_that_is_not_the_announced_one_raises(bench: Bench) -> None:
    """A promotion announces one build; any other build behind the kernel breaks its clause."""
    announced(bench)
    operator = bench.operator()
    turns(bench, operator, 3)
    annotate(bench, PODS[1], "nobody-knows")
    turns(bench, operator, 3)
    assert broken(operator)
    assert servers(operator)[PODS[1]] == "fp8"


def test_an_announced_upgrade_goes_through_the_stages(bench: Bench) -> None:
    """The upgraded pod moves to the candidate's Service and gets at most the share of its stage.

    Its build breaks no clause; after full promotion the slices' home traffic goes to the candidate.
    """
    announced(bench)
    operator = bench.operator()
    turns(bench, operator, 3)
    assert bench.conditions()["Degraded"] == ("False", "Healthy")
    annotate(bench, PODS[1], NEW)
    turns(bench, operator, 2)
    assert [bench.labels()[name] for name in PODS] == [IN, UPGRADED]
    assert servers(operator)[PODS[1]] == CANDIDATE
    assert not broken(operator)
    shadow = until(bench, operator, "Canary")
    assert all(seen[OWN] == 0 for seen in shadow)
    assert shadow[-1]["chat-fp8"] == 10_000
    canary = until(bench, operator, "Full")
    assert 0 < max(seen[OWN] for seen in canary) <= 500
    assert not broken(operator)
    annotate(bench, PODS[0], NEW)
    turns(bench, operator, 60)
    assert bench.weights("prose")[OWN] == 10_000
    assert {bench.labels()[name] for name in PODS} == {UPGRADED}
    assert not broken(operator)
    assert bench.conditions("KernelPromotion", CANDIDATE)["Promoted"] == ("True", "Successful")


def test_a_withdrawn_upgrade_gets_no_traffic(bench: Bench) -> None:
    """After a rollback the upgraded pod gets no traffic of either Service.

    Once the promotion is deleted, the pod belongs to the kernel again and breaks its clause.
    """
    announced(bench)
    operator = bench.operator()
    turns(bench, operator, 3)
    annotate(bench, PODS[1], NEW)
    until(bench, operator, "Shadow")
    follow(bench)
    bench.change("KernelPromotion", CANDIDATE, {"rollback": True})
    operator.nudge()
    turns(bench, operator, 3)
    assert bench.weights("prose")[OWN] == 0
    assert bench.labels()[PODS[1]] == UPGRADED
    bench.delete("KernelPromotion", CANDIDATE)
    client.CoreV1Api(bench.api).patch_namespaced_pod(
        PODS[1], bench.namespace, {"metadata": {"labels": {IN_ROTATION: IN}}}
    )
    follow(bench)
    operator.nudge()
    turns(bench, operator, 3)
    assert servers(operator)[PODS[1]] == "fp8"
    assert broken(operator)


def test_a_new_leader_continues_an_announced_upgrade(bench: Bench) -> None:
    """A new operator assigns the upgraded pod to the candidate at once and changes no label."""
    announced(bench)
    first = bench.operator()
    turns(bench, first, 3)
    annotate(bench, PODS[1], NEW)
    turns(bench, first, 3)
    before = bench.labels()
    first.forget()
    second = bench.operator()
    turns(bench, second, 2)
    assert servers(second)[PODS[1]] == CANDIDATE
    assert bench.labels() == before
    assert not broken(second)


def test_the_last_server_of_a_loaded_kernel_stays_until_its_traffic_is_gone(bench: Bench) -> None:
    """If all pods are upgraded at once, one stays in the Service until the kernel has no weight."""
    announced(bench)
    operator = bench.operator()
    turns(bench, operator, 3)
    for name in PODS:
        annotate(bench, name, NEW)
    for _ in range(40):
        loaded = any(bench.weights(one)["chat-fp8"] > 0 for one in ("prose", "numbers"))
        turns(bench, operator, 1)
        if loaded and any(bench.weights(one)["chat-fp8"] > 0 for one in ("prose", "numbers")):
            assert IN in {bench.labels()[name] for name in PODS}
    assert bench.weights("prose")["chat-bf16"] == 10_000
    assert {bench.labels()[name] for name in PODS} == {UPGRADED}


def test_an_upgrade_without_a_distinguishing_label_is_reported(bench: Bench) -> None:
    """A candidate with an unrelated selector is no in-place upgrade: ResolvedRefs says what to write."""
    core = client.CoreV1Api(bench.api)
    core.patch_namespaced_service(
        OWN, bench.namespace, {"spec": {"selector": {"selvage.dev/kernel": "other"}}}
    )
    announced(bench)
    operator = bench.operator()
    turns(bench, operator, 3)
    assert bench.conditions()["ResolvedRefs"] == ("False", "NotInPlace")


def test_announcing_the_present_build_is_refused(bench: Bench) -> None:
    """Announcing the build that the kernel already states is refused."""
    promote(bench, evidence(bench), replaces="fp8", announced_fingerprint=OLD)
    operator = bench.operator()
    bench.turns(operator, 2)
    assert bench.conditions("KernelPromotion", CANDIDATE)["ResolvedRefs"] == ("False", "FingerprintDiffers")
    assert OUT not in bench.labels().values()
