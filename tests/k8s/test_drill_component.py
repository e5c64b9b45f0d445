"""The drill component: generated from the sources, pinned by hash, mounted read-only, and optional."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client
from typer.testing import CliRunner

from faults.client.launch import PACKAGE, extension_files
from k8s.resources.drill_extension import (
    ALLOWED,
    DRILL_PORT,
    DRILLS,
    TOKEN_SECRET,
    extension_sha256,
    extension_texts,
    loader,
)
from scripts.cli.main import app
from tests.k8s.test_manifests import MANIFESTS, named
from tests.support.cluster.cluster_worlds import SAMPLE, sample

pytestmark = pytest.mark.waits

COMPONENT = MANIFESTS / "components" / "drills"


def shipped(name: str) -> dict[str, Any]:
    """One file of the component."""
    found: dict[str, Any] = yaml.safe_load((COMPONENT / name).read_text(encoding="utf-8"))
    return found


def test_the_shipped_extension_is_the_generated_one() -> None:
    """ConfigMap and patch equal those generated from the sources."""
    told = "write them anew: selvage kubernetes drill-extension --out k8s/manifests/components/drills"
    for name, text in extension_texts().items():
        assert (COMPONENT / name).read_text(encoding="utf-8") == text, told


def test_the_command_writes_and_prints_the_same(tmp_path: Path) -> None:
    """The command writes to files what it prints without ``--out``."""
    written = CliRunner().invoke(app, ["kubernetes", "drill-extension", "--out", str(tmp_path)])
    assert written.exit_code == 0
    printed = CliRunner().invoke(app, ["kubernetes", "drill-extension"]).stdout
    assert printed == "---\n".join((tmp_path / name).read_text() for name in extension_texts())


def mounted(folder: Path) -> Path:
    """The extension as mounted by the patch's volume."""
    data = shipped("extension.yaml")["data"]
    volumes = shipped("servers.yaml")["spec"]["template"]["spec"]["volumes"]
    (items,) = (one["configMap"]["items"] for one in volumes if "configMap" in one)
    for item in items:
        path = folder / item["path"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(data[item["key"]], encoding="utf-8")
    return folder


def started(folder: Path, sha256: str) -> subprocess.CompletedProcess[str]:
    """Run the loader on ``folder``, with a program that prints its arguments as the server."""
    bin_folder = folder / "bin"
    bin_folder.mkdir()
    server = bin_folder / "python3"
    server.write_text('#!/bin/sh\necho "$@"\n')
    server.chmod(0o755)
    return subprocess.run(
        [sys.executable, "-I", "-c", loader(sha256, str(folder)), "--model=m"],
        env={**os.environ, "PATH": f"{bin_folder}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_loader_starts_the_server_of_pinned_files(tmp_path: Path) -> None:
    """With the generated files the server starts and gets its arguments."""
    done = started(mounted(tmp_path), extension_sha256(extension_files()))
    assert done.stdout.split() == ["-m", "vllm.entrypoints.openai.api_server", "--model=m"], done.stderr


@pytest.mark.parametrize("change", ["edited", "added", "missing"])
def test_the_loader_refuses_other_files(tmp_path: Path, change: str) -> None:
    """If a file was edited, added or removed the server does not start, and the message says what to do."""
    package = mounted(tmp_path) / PACKAGE
    if change == "edited":
        (package / "inside" / "gate.py").write_text("enabled = True\n")
    elif change == "added":
        (package / "inside" / "more.py").write_text("")
    else:
        (package / "vllm_worker.py").unlink()
    done = started(tmp_path, extension_sha256(extension_files()))
    assert done.returncode != 0
    assert "apply the drills component anew" in done.stderr
    assert done.stdout == ""


def test_the_manifests_without_the_component_have_no_drill_parts() -> None:
    """No plain manifest names the component, its Role or its token; the operator's Role has no delete."""
    kustomization = yaml.safe_load((MANIFESTS / "kustomization.yaml").read_text())
    assert "components" not in str(kustomization)
    role = named("Role", "selvage-operator", MANIFESTS / "operator")
    assert all("delete" not in rule["verbs"] for rule in role["rules"])
    assert "faultdrills" not in str(role)
    for path in (MANIFESTS / "operator").glob("*.yaml"):
        assert TOKEN_SECRET not in path.read_text()


def test_the_port_of_drills_is_reached_by_the_runner_alone() -> None:
    """The NetworkPolicy opens the drill port to the runner only, and all other ports to everyone."""
    policies = list(yaml.safe_load_all((COMPONENT / "network.yaml").read_text()))
    spec = policies[0]["spec"]
    assert spec["podSelector"]["matchLabels"] == {DRILLS: ALLOWED}
    own, others = spec["ingress"]
    runner = yaml.safe_load((COMPONENT / "runner.yaml").read_text())["spec"]["template"]["metadata"]["labels"]
    (peer,) = own["from"]
    assert peer["podSelector"]["matchLabels"].items() <= runner.items()
    assert [one["port"] for one in own["ports"]] == [DRILL_PORT]
    assert "from" not in others
    open_ports = {p for one in others["ports"] for p in range(one["port"], one["endPort"] + 1)}
    assert open_ports == set(range(1, 65536)) - {DRILL_PORT}


def test_the_runner_keeps_the_restricted_standard() -> None:
    """The runner's pod meets the restricted standard, and the command accepts its arguments."""
    from typer.main import get_command

    from scripts.cli.kubernetes import app as kubernetes

    spec = shipped("runner.yaml")["spec"]["template"]["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    (container,) = spec["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    arguments = container["args"]
    context = vars(get_command(kubernetes))["commands"]["drills"].make_context("drills", arguments[2:])
    assert context.params["allow_namespace"] == ["chat"]


@pytest.mark.needs("kube_api")
def test_a_real_server_merges_the_patch_into_the_sample(api: client.ApiClient, namespace: str) -> None:
    """The patch merges into the sample's Deployment: arguments stay, the extension is read-only."""
    deployment, _ = sample("fp8")
    apps = client.AppsV1Api(api)
    apps.create_namespaced_deployment(namespace, deployment)
    patch = shipped("servers.yaml")
    patch["metadata"] = {}
    merged = apps.patch_namespaced_deployment(
        "chat-fp8", namespace, patch, _content_type="application/strategic-merge-patch+json"
    )
    (container,) = merged.spec.template.spec.containers
    assert container.args == deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    assert container.image == deployment["spec"]["template"]["spec"]["containers"][0]["image"]
    mounts = {one.name: one for one in container.volume_mounts}
    assert set(mounts) == {"shared-memory", "drill-extension", "drill-token", "drill-lease"}
    assert mounts["drill-extension"].read_only
    assert mounts["drill-token"].read_only
    assert merged.spec.template.metadata.labels[DRILLS] == ALLOWED
    environment = {one.name: one.value for one in container.env}
    assert environment["VLLM_SERVER_DEV_MODE"] == "0"
    api_core = client.CoreV1Api(api)
    assert api_core.create_namespaced_config_map(namespace, shipped("extension.yaml")).immutable


@pytest.mark.needs("kubectl")
def test_kustomize_puts_the_extension_into_labelled_deployments_alone() -> None:
    """Built by kubectl, the example's fp8 servers accept faults and the known-good kernel's do not."""
    example = SAMPLE.parent / "drills"
    done = subprocess.run(["kubectl", "kustomize", str(example)], capture_output=True, check=True)
    found = [one for one in yaml.safe_load_all(done.stdout) if one["kind"] == "Deployment"]
    labels = {
        one["metadata"]["name"]: one["spec"]["template"]["metadata"]["labels"].get(DRILLS) for one in found
    }
    assert labels["chat-fp8"] == ALLOWED
    assert labels["chat-bf16"] is None
    (server,) = (one for one in found if one["metadata"]["name"] == "chat-fp8")
    (container,) = server["spec"]["template"]["spec"]["containers"]
    assert container["command"][:3] == ["python3", "-I", "-c"]
    assert "--model=Qwen/Qwen3-8B" in container["args"]
