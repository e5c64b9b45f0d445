"""The shipped manifests: accepted by the server, restricted, with no more rights than the operator uses."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client

from k8s.operator.pods.pod_facts import IN_ROTATION
from tests.support.cluster.cluster_worlds import SAMPLE, Bench
from tests.support.cluster.granted import OPERATOR, Account, granted
from tests.support.cluster.promotions import promote
from tests.support.paths import ROOT

pytestmark = pytest.mark.waits

MANIFESTS = ROOT / "k8s" / "manifests"
#: Rights of the operator that no turn uses: kopf watches over its own connection, in the process
#: (tests/k8s/process/test_serve.py).
BY_KOPF = {call for call in granted(OPERATOR) if call[:2] == ("watch", "selvage.dev")}


#: Watches of Services, pods and what leads to them, which run beside the turns.
BUILT_IN_WATCHES = {call for call in granted(OPERATOR) if call[0] == "watch"} - BY_KOPF


def objects(folder: Path) -> Iterator[dict[str, Any]]:
    """Every object in a folder, as written."""
    for path in sorted(folder.rglob("*.yaml")):
        if path.name not in ("kustomization.yaml", "envoy.yaml"):
            yield from (one for one in yaml.safe_load_all(path.read_text(encoding="utf-8")) if one)


def named(kind: str, name: str, folder: Path = MANIFESTS) -> dict[str, Any]:
    """The object of the given kind and name."""
    return next(one for one in objects(folder) if (one["kind"], one["metadata"]["name"]) == (kind, name))


@pytest.mark.parametrize("name", ["selvage-operator", "selvage-refuse"])
def test_our_pods_keep_the_restricted_standard(name: str) -> None:
    """Our pods meet the restricted Pod Security standard, with a read-only root file system."""
    spec = named("Deployment", name)["spec"]["template"]["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in spec["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


def test_the_operator_reads_the_key_by_mount_and_may_read_no_secret() -> None:
    """The servers' key is an optional mounted file, and no rule of the Role allows to read Secrets."""
    spec = named("Deployment", "selvage-operator")["spec"]["template"]["spec"]
    volume = next(one for one in spec["volumes"] if "secret" in one)
    mount = next(one for one in spec["containers"][0]["volumeMounts"] if one["name"] == volume["name"])
    assert volume["secret"]["optional"] is True
    assert mount["readOnly"] is True
    assert f"--api-key-file={mount['mountPath']}/api-key" in spec["containers"][0]["args"]
    resources = {one for rule in named("Role", "selvage-operator")["rules"] for one in rule["resources"]}
    assert "secrets" not in resources


def test_the_operators_arguments_are_those_of_the_command() -> None:
    """The command accepts the arguments in the manifest."""
    from typer.main import get_command

    from scripts.cli.kubernetes import app

    commands = vars(get_command(app))["commands"]
    arguments = named("Deployment", "selvage-operator")["spec"]["template"]["spec"]["containers"][0]["args"]
    assert arguments[:2] == ["kubernetes", "operator"]
    context = commands["operator"].make_context("operator", list(arguments[2:]))
    assert str(context.params["references"]) == "/var/lib/selvage/references"


def test_logs_cannot_outgrow_their_volume() -> None:
    """A pod whose emptyDir exceeds its limit is evicted: the logs may fill at most 0.8 of theirs."""
    spec = named("Deployment", "selvage-operator")["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    told = dict(one.lstrip("-").split("=", 1) for one in container["args"] if "=" in one)
    mount = max(
        (one for one in container["volumeMounts"] if told["decision-log"].startswith(one["mountPath"])),
        key=lambda one: len(one["mountPath"]),
    )
    volume = next(one for one in spec["volumes"] if one["name"] == mount["name"])
    limit = volume["emptyDir"]["sizeLimit"]
    assert limit.endswith("Gi")
    assert int(told["decision-log-mib"]) <= 0.8 * 1024 * float(limit[:-2])
    assert all("sizeLimit" in one["emptyDir"] for one in spec["volumes"] if "emptyDir" in one)


@pytest.mark.parametrize("kernel", ["fp8", "bf16"])
def test_quarantine_is_in_the_service_and_never_in_the_deployment(kernel: str) -> None:
    """The label is in the Service's selector and the pod template, but not in the Deployment's selector."""
    deployment = named("Deployment", f"chat-{kernel}", SAMPLE)["spec"]
    assert deployment["template"]["metadata"]["labels"][IN_ROTATION] == "true"
    assert IN_ROTATION not in deployment["selector"]["matchLabels"]
    assert named("Service", f"chat-{kernel}", SAMPLE)["spec"]["selector"][IN_ROTATION] == "true"


@pytest.mark.parametrize("kernel", ["fp8", "bf16"])
def test_servers_of_the_sample_run_on_nodes_with_gpus_and_are_probed(kernel: str) -> None:
    """A server of the sample is placed by the node's GPU, claims it, and is probed at the port it serves."""
    spec = named("Deployment", f"chat-{kernel}", SAMPLE)["spec"]["template"]["spec"]
    (container,) = (one for one in spec["containers"] if one["name"] == "vllm")
    assert spec["nodeSelector"] == {"nvidia.com/gpu.present": "true"}
    for kind in ("requests", "limits"):
        assert container["resources"][kind]["nvidia.com/gpu"] == "1"
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    for probe in ("startupProbe", "readinessProbe"):
        asked = container[probe]["httpGet"]
        assert asked["path"] == "/health"
        assert asked["port"] in {*ports, *ports.values()}


def test_every_file_is_listed_by_its_kustomization() -> None:
    """The kustomization of each folder lists every file and folder in it."""
    for folder in {path.parent for path in [*MANIFESTS.rglob("*.yaml"), *SAMPLE.parent.rglob("*.yaml")]}:
        listed = yaml.safe_load((folder / "kustomization.yaml").read_text(encoding="utf-8"))
        files = {path.name for kind in ("yaml", "json", "py") for path in folder.glob(f"*.{kind}")}
        files -= {"kustomization.yaml"}
        generated = {one for each in listed.get("configMapGenerator", []) for one in each["files"]}
        generated |= {one["path"] for one in listed.get("patches", []) if "path" in one}
        # Folders that are applied on their own:
        apart = {"alerts", "dashboard", "components", "late", "monitor", "namespace", "suite", "webhooks"}
        folders = {path.name for path in folder.iterdir() if path.is_dir()} - {*apart, "__pycache__"}
        own = {one for one in listed.get("resources", []) if not one.startswith("..")}
        assert files | folders == own | generated


@pytest.mark.needs("kube_api")
def test_the_sample_passes_a_dry_run_with_strict_validation(api: client.ApiClient, namespace: str) -> None:
    """Every object of the samples passes a server-side dry run with strict field validation."""
    drill = list(objects(SAMPLE.parent / "drills" / "late"))
    for one in drill:
        del one["metadata"]["namespace"]
    e5 = [*objects(SAMPLE.parent / "e5"), *objects(SAMPLE.parent / "e5" / "suite")]
    others = [*objects(SAMPLE.parent / "promotion"), *objects(SAMPLE.parent / "inference-pool")]
    for found in [*objects(SAMPLE), *others, *drill, *e5]:
        path = _path(found, namespace)
        api.call_api(
            "POST",
            f"{api.configuration.host}{path}?dryRun=All&fieldValidation=Strict",
            header_params={
                "Content-Type": "application/json",
                **api.configuration.api_key_prefix,
                "Authorization": api.configuration.api_key["authorization"],
            },
            body=found,
        )


def _path(found: dict[str, Any], namespace: str) -> str:
    plurals = {"RoutePolicy": "routepolicies"}
    plural = plurals.get(found["kind"], f"{found['kind'].lower()}s")
    group = found["apiVersion"]
    root = "/api" if "/" not in group else "/apis"
    return f"{root}/{group}/namespaces/{namespace}/{plural}"


@pytest.mark.needs("kube_api")
@pytest.mark.slow
def test_the_role_is_what_the_operator_uses(api: client.ApiClient, namespace: str) -> None:
    """The operator uses everything that its Role allows; the fixture ``calls`` checks the opposite."""
    from k8s.api.watched import NamespaceWatch
    from k8s.process.election import Leadership
    from tests.support.waiting import until

    bench = Bench(api=api, namespace=namespace)
    account = bench.account
    bench.everything(_pooled)
    for found in objects(SAMPLE.parent / "inference-pool"):
        if found["kind"] == "InferencePool":
            place = found["apiVersion"].split("/")
            bench.custom.create_namespaced_custom_object(*place, namespace, "inferencepools", found)
    promote(bench, {"uri": "configmap:nothing/nowhere", "sha256": "0" * 64})
    operator = bench.operator()
    leadership = Leadership(account.api, namespace, "one", timeout_s=20.0)
    assert leadership.step()
    bench.turns(operator, 16)
    bench.drift["bf16-1"] = 0.02
    bench.turns(operator, 40)
    leadership._asked_s = float("-inf")
    assert leadership.step()
    with NamespaceWatch(account.api, namespace) as watched:
        watched.want_pools()
        until(lambda: watched.places is not None and watched.places.lists("inferencepools"))
        until(lambda: account.calls >= BUILT_IN_WATCHES)
    assert account.calls == granted(OPERATOR) - BY_KOPF


def _pooled(pool: dict[str, Any]) -> None:
    """One kernel behind an InferencePool, the other behind its Service."""
    found = named("KernelPool", "chat-pool", SAMPLE.parent / "inference-pool")
    pool["spec"]["kernels"][0] = found["spec"]["kernels"][0]


@pytest.mark.needs("kube_api")
def test_one_of_two_replicas_leads(api: client.ApiClient, namespace: str) -> None:
    """Of several replicas that ask for the Lease exactly one leads."""
    from k8s.process.election import Leadership

    account = Account(api.configuration)
    candidates = [Leadership(account.api, namespace, f"replica-{n}", timeout_s=20.0) for n in range(4)]
    assert sum(one.step() for one in candidates) == 1


@pytest.mark.needs("kubectl")
def test_kustomize_builds_both() -> None:
    """kubectl kustomize builds the manifests, the dashboard and every example."""
    late = SAMPLE.parent / "drills" / "late"
    for folder in (
        MANIFESTS,
        MANIFESTS / "dashboard",
        MANIFESTS / "namespace",
        late,
        *(p for p in SAMPLE.parent.iterdir() if p.is_dir()),
    ):
        done = subprocess.run(["kubectl", "kustomize", str(folder)], capture_output=True, check=True)
        assert done.stdout


@pytest.mark.needs("kubectl")
def test_deleting_the_manifests_deletes_nothing_of_the_users() -> None:
    """`kubectl delete -k` removes no namespace, route, server or document of the user's."""
    done = subprocess.run(
        ["kubectl", "kustomize", str(MANIFESTS)], capture_output=True, check=True, text=True
    )
    found = [one for one in yaml.safe_load_all(done.stdout) if one]
    names = {one["metadata"]["name"].partition(".")[2] or one["metadata"]["name"] for one in found}
    assert all(one == "selvage.dev" or one.startswith("selvage-") for one in names)
    kinds = {one["kind"] for one in found}
    assert kinds.isdisjoint({"Namespace", "HTTPRoute", "Gateway", "InferencePool", "Secret"})
    assert kinds.isdisjoint({"KernelContract", "KernelPool", "RoutePolicy", "KernelPromotion", "FaultDrill"})
    own = {"selvage-operator", "selvage-refuse"}
    assert {one["metadata"]["name"] for one in found if one["kind"] == "Deployment"} == own
