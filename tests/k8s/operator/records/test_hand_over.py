"""Pods out of rotation stay out under the next leader, even if it cannot read the kept state."""

from __future__ import annotations

import base64
import gzip
from typing import Any

import pytest
from kubernetes import client

from contracts.loading.files import canonical_sha256
from controller.state_json import STATE_VERSION
from k8s.operator.pods.pod_facts import IN_ROTATION, OUT
from tests.support.cluster.cluster_worlds import Bench, pod, sample
from tests.support.cluster.route_revisions import assert_never_empty, every_revision

pytestmark = [pytest.mark.needs("kube_api"), pytest.mark.waits]


def ready(bench: Bench) -> None:
    """Set every pod's status to ready, in rotation or not, as a kubelet does."""
    core = client.CoreV1Api(bench.api)
    status = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    for one in core.list_namespaced_pod(bench.namespace).items:
        core.patch_namespaced_pod_status(one.metadata.name, bench.namespace, status)


def replaced(bench: Bench) -> Any:
    """An operator under which the first pod of bf16 was replaced: order of slots and of names differ."""
    bench.everything()
    operator = bench.operator()
    bench.turns(operator, 3)
    core = client.CoreV1Api(bench.api)
    core.delete_namespaced_pod("chat-bf16-0", bench.namespace, grace_period_seconds=0, _preload_content=False)
    bench.endpoints("bf16", ["chat-bf16-1"])
    bench.turns(operator, 2)
    _, service = sample("bf16")
    core.create_namespaced_pod(bench.namespace, pod("chat-bf16-2", dict(service["spec"]["selector"])))
    bench.endpoints("bf16", ["chat-bf16-1", "chat-bf16-2"])
    ready(bench)
    bench.turns(operator, 12)
    return operator


def taken_out(bench: Bench) -> list[str]:
    """Pods out of rotation."""
    return sorted(name for name, label in bench.labels().items() if label == OUT)


def struck(bench: Bench, operator: Any) -> None:
    """The second pod of bf16 answers wrongly until it is out of rotation and of the endpoints."""
    bench.drift["bf16-1"] = 0.02
    bench.turns(operator, 40)
    assert taken_out(bench) == ["chat-bf16-1"]
    bench.endpoints("bf16", ["chat-bf16-2"])
    bench.turns(operator, 1)


def test_a_new_leader_takes_no_other_pod_out_than_its_predecessor(bench: Bench) -> None:
    """The kept state says which pod is in which slot, since evidence is kept by slot."""
    struck(bench, replaced(bench))
    bench.turns(bench.operator(), 3)
    assert taken_out(bench) == ["chat-bf16-1"]


def test_documents_that_change_move_no_pod_to_another_slot(bench: Bench) -> None:
    """After a change of documents, each pod is still in the slot under which its evidence is kept."""
    operator = replaced(bench)
    struck(bench, operator)
    bench.change("RoutePolicy", "chat", {"description": "changed"})
    operator.nudge()
    bench.turns(operator, 3)
    assert taken_out(bench) == ["chat-bf16-1"]


def places(bench: Bench, operator: Any) -> set[str]:
    """Occupied slots of bf16 after another turn."""
    bench.turns(operator, 1)
    return {one.slot for one in operator.loops["chat"].discovery.pods if one.slot.startswith("bf16")}


def test_a_pod_replaced_under_its_name_between_leaders_is_a_new_replica(bench: Bench) -> None:
    """As in a StatefulSet, a pod is replaced between two leaders: its slot is empty once.

    So the new pod is not taken for the old one; the other pod keeps its slot, and then nothing changes.
    """
    operator = bench.struck("bf16-1")
    assert taken_out(bench) == ["chat-bf16-1"]
    bench.endpoints("bf16", ["chat-bf16-0"])
    assert places(bench, operator) == {"bf16-0", "bf16-1"}
    core = client.CoreV1Api(bench.api)
    core.delete_namespaced_pod("chat-bf16-1", bench.namespace, grace_period_seconds=0, _preload_content=False)
    _, service = sample("bf16")
    core.create_namespaced_pod(bench.namespace, pod("chat-bf16-1", dict(service["spec"]["selector"])))
    bench.endpoints("bf16", ["chat-bf16-0", "chat-bf16-1"])
    ready(bench)
    second = bench.operator()
    assert places(bench, second) == {"bf16-0"}
    assert places(bench, second) == {"bf16-0", "bf16-1"}
    bench.turns(second, 16)  # the new uid is kept by now
    assert places(bench, bench.operator()) == {"bf16-0", "bf16-1"}


def _older(bench: Bench) -> None:
    """A state kept by an earlier version of the operator."""
    core, name = client.CoreV1Api(bench.api), "selvage-state-chat"
    found = core.read_namespaced_config_map(name, bench.namespace)
    text = gzip.decompress(base64.b64decode(found.binary_data["state.json.gz"])).decode()
    text = text.replace(f'"version": {STATE_VERSION}', f'"version": {STATE_VERSION - 1}')
    found.binary_data = {"state.json.gz": base64.b64encode(gzip.compress(text.encode())).decode()}
    found.data["state-sha256"] = canonical_sha256(text)
    core.replace_namespaced_config_map(name, bench.namespace, found)


def _unplaced(bench: Bench) -> None:
    """A state kept by a version that did not record which pod is in which slot."""
    core, name = client.CoreV1Api(bench.api), "selvage-state-chat"
    found = core.read_namespaced_config_map(name, bench.namespace)
    del found.data["slots.json"]
    core.replace_namespaced_config_map(name, bench.namespace, found)


def _lost(bench: Bench) -> None:
    """No state is kept."""
    client.CoreV1Api(bench.api).delete_namespaced_config_map("selvage-state-chat", bench.namespace)


def _larger(bench: Bench) -> None:
    """Another fleet: the pool declares one more replica of the kernel."""
    (found,) = sample("pool")
    kernels = found["spec"]["kernels"]
    next(one for one in kernels if one["name"] == "bf16")["replicas"] += 1
    bench.change("KernelPool", found["metadata"]["name"], {"kernels": kernels})


@pytest.mark.parametrize("change", [_older, _unplaced, _lost, _larger])
def test_a_state_that_cannot_be_read_returns_no_pod(bench: Bench, change: Any) -> None:
    """If only a pod's label says that it is quarantined, it stays out, and the route stays."""
    operator = bench.struck("bf16-1")
    assert taken_out(bench) == ["chat-bf16-1"]
    bench.endpoints("bf16", ["chat-bf16-0"])
    ready(bench)
    bench.turns(operator, 1)
    rules = bench.route()["spec"]["rules"]
    change(bench)
    with every_revision(bench) as seen:
        second = bench.operator()
        bench.turns(second, 10)
        assert bench.route()["spec"]["rules"] == rules
        assert taken_out(bench) == ["chat-bf16-1"]
        bench.turns(second, 30)
    assert taken_out(bench) == ["chat-bf16-1"]
    assert_never_empty(seen)


def test_a_healthy_pod_returns_although_its_quarantine_is_forgotten(bench: Bench) -> None:
    """The label alone does not hold a pod forever: it returns after enough good answers."""
    operator = bench.struck("bf16-1")
    bench.endpoints("bf16", ["chat-bf16-0"])
    ready(bench)
    bench.turns(operator, 1)
    _lost(bench)
    bench.drift.clear()
    bench.turns(bench.operator(), 240)
    assert taken_out(bench) == []


def test_not_every_pod_of_a_kernel_is_held_by_its_label(bench: Bench) -> None:
    """If labels would leave a kernel without a server, as after a template error, one pod is returned."""
    bench.everything()
    core = client.CoreV1Api(bench.api)
    for name in ("chat-bf16-0", "chat-bf16-1"):
        core.patch_namespaced_pod(name, bench.namespace, {"metadata": {"labels": {IN_ROTATION: OUT}}})
    bench.endpoints("bf16", [])
    ready(bench)
    bench.turns(bench.operator(), 3)
    assert len(taken_out(bench)) == 1
