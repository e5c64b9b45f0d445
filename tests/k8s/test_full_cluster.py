"""What only a full cluster can show: admission policies, network policies and garbage collection.

``SELVAGE_CLUSTER=1 KUBECONFIG=...`` runs these, and the rest of tests/k8s, against that cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from kubernetes import client

from tests.support.cluster.cluster_worlds import Bench, Object, pod
from tests.support.cluster.kube_api import kubeconfig
from tests.support.cluster.kubectl import Kubectl
from tests.support.paths import ROOT
from tests.support.waiting import until

pytestmark = [pytest.mark.needs("full_cluster", "kubectl"), pytest.mark.slow]

POLICY = ROOT / "k8s" / "manifests" / "admission" / "quarantine-label.yaml"
DRILLS = ROOT / "k8s" / "manifests" / "components" / "drills" / "admission.yaml"
ACCOUNT = "selvage-operator"


@pytest.fixture
def kubectl(api: client.ApiClient, tmp_path: Path) -> Kubectl:
    """kubectl for the cluster."""
    return Kubectl(kubeconfig=kubeconfig(api.configuration, tmp_path), folder=tmp_path)


@pytest.fixture
def chat(api: client.ApiClient) -> Iterator[str]:
    """The namespace of the manifests, needed for dry runs; deleted afterwards if it was created here."""
    core = client.CoreV1Api(api)
    made = "chat" not in {one.metadata.name for one in core.list_namespace().items}
    if made:
        core.create_namespace({"metadata": {"name": "chat"}})
    yield "chat"
    if made:
        core.delete_namespace("chat")


@contextmanager
def in_force(api: client.ApiClient, file: Path) -> Iterator[None]:
    """The admission policy of ``file`` is in force within the block, under a name of these tests."""
    admission = client.AdmissionregistrationV1Api(api)
    policy, binding = _renamed(yaml.safe_load_all(file.read_text(encoding="utf-8")))
    admission.create_validating_admission_policy(policy)
    admission.create_validating_admission_policy_binding(binding)
    try:
        yield
    finally:
        admission.delete_validating_admission_policy_binding(binding["metadata"]["name"])
        admission.delete_validating_admission_policy(policy["metadata"]["name"])


def _renamed(found: Iterator[Object]) -> tuple[Object, Object]:
    policy, binding = found
    for one in (policy, binding):
        one["metadata"]["name"] = "selvage-tests"
    binding["spec"]["policyName"] = "selvage-tests"
    return policy, binding


@pytest.fixture
def judged(api: client.ApiClient) -> Iterator[client.ApiClient]:
    """The cluster with the operator's admission policy in force."""
    with in_force(api, POLICY):
        yield api


def test_the_admission_policy_allows_the_operator_two_labels(
    judged: client.ApiClient, namespace: str, kubectl: Kubectl
) -> None:
    """The operator's account may set the rotation label of pods in its namespace, and change nothing else.

    The policy matches the account by the request's namespace; accounts of other namespaces do not match.
    """
    client.CoreV1Api(judged).create_namespaced_pod(namespace, pod("one", {"app": "chat"}))
    operator = f"system:serviceaccount:{namespace}:{ACCOUNT}"
    as_operator = (f"--namespace={namespace}", f"--as={operator}", "--as-group=system:masters", "--overwrite")

    def refused(what: str, *change: str) -> bool:
        done = kubectl.run(what, "pod", "one", *change, *as_operator, "--dry-run=server")
        assert done.returncode == 0 or "selvage-tests" in done.stderr, done.stderr  # no other refusal
        return done.returncode != 0

    until(lambda: refused("label", "app=other"))  # a new policy takes effect after a delay
    assert refused("annotate", "a=b")
    assert refused("label", "selvage.dev/in-rotation=maybe")
    assert not refused("label", "selvage.dev/in-rotation=false")


def test_the_drill_runner_deletes_labelled_pods_alone(
    api: client.ApiClient, namespace: str, kubectl: Kubectl
) -> None:
    """The drill runner's account of a pod's own namespace deletes it only where its label allows that."""
    for name, labels in (("plain", {"app": "chat"}), ("drilled", {"selvage.dev/drills": "allowed"})):
        client.CoreV1Api(api).create_namespaced_pod(namespace, pod(name, labels))
    runner = f"system:serviceaccount:{namespace}:selvage-drills"
    as_runner = (f"--namespace={namespace}", f"--as={runner}", "--as-group=system:masters")

    def refused(name: str) -> bool:
        done = kubectl.run("delete", "pod", name, *as_runner, "--dry-run=server", "--wait=false")
        assert done.returncode == 0 or "selvage-tests" in done.stderr, done.stderr  # refused by somebody else
        return done.returncode != 0

    with in_force(api, DRILLS):
        until(lambda: refused("plain"))  # a policy counts some time after it was made
        assert not refused("drilled")


@pytest.mark.parametrize("folder", ["k8s/manifests", "k8s/examples/drills"])
@pytest.mark.usefixtures("chat")
def test_a_full_cluster_takes_every_kind_of_a_folder(kubectl: Kubectl, folder: str) -> None:
    """All objects, also network and admission policies, pass a server-side dry run, strictly validated."""
    assert kubectl.apply(folder, "--dry-run=server") == set()


def test_the_kept_state_goes_with_its_policy(api: client.ApiClient, namespace: str) -> None:
    """Deleting a policy lets the cluster delete its kept state; the route stays."""
    bench = Bench(api=api, namespace=namespace)
    bench.everything()
    bench.turns(bench.operator(), 3)
    core = client.CoreV1Api(api)

    def kept() -> list[str]:
        return [one.metadata.name for one in core.list_namespaced_config_map(namespace).items]

    assert "selvage-state-chat" in kept()
    rules = bench.route()["spec"]
    bench.delete("RoutePolicy", "chat")
    until(lambda: "selvage-state-chat" not in kept())
    assert bench.route()["spec"] == rules
