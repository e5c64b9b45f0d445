"""The PodMonitor by which Prometheus finds the operator, against Deployment, NetworkPolicy and command."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
import yaml
from typer.main import get_command

from scripts.cli.kubernetes import app
from tests.k8s.test_manifests import MANIFESTS, named, objects


def endpoint() -> dict[str, Any]:
    """The only endpoint that the PodMonitor scrapes."""
    (found,) = named("PodMonitor", "selvage-operator", MANIFESTS / "monitor")["spec"]["podMetricsEndpoints"]
    return dict(found)


def operator() -> dict[str, Any]:
    """The pod template of the operator."""
    return dict(named("Deployment", "selvage-operator")["spec"]["template"])


def test_the_monitor_selects_the_operators_pods_and_no_others() -> None:
    """The selector matches the labels of the operator's pods and of no other pod that we ship."""
    wanted = named("PodMonitor", "selvage-operator", MANIFESTS / "monitor")["spec"]["selector"]["matchLabels"]
    selected = [
        one["metadata"]["name"]
        for one in objects(MANIFESTS)
        if one["kind"] == "Deployment"
        and wanted.items() <= one["spec"]["template"].get("metadata", {}).get("labels", {}).items()
    ]
    assert selected == ["selvage-operator"]


def test_the_monitor_scrapes_the_port_of_the_metrics() -> None:
    """The port has the container's name and the command's number, and the NetworkPolicy opens it."""
    (container,) = operator()["spec"]["containers"]
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    command = vars(get_command(app))["commands"]["operator"]
    arguments = command.make_context("operator", list(container["args"][2:])).params
    assert ports[endpoint()["port"]] == arguments["metrics_port"]
    assert endpoint()["path"] == "/metrics"
    network = named("NetworkPolicy", "selvage-operator")["spec"]
    assert endpoint()["port"] in {one["port"] for rule in network["ingress"] for one in rule["ports"]}


def test_the_monitor_is_in_no_other_kustomization() -> None:
    """Only the monitor's own folder has a PodMonitor, so the manifests work without Prometheus operator."""
    base = yaml.safe_load((MANIFESTS / "kustomization.yaml").read_text(encoding="utf-8"))
    assert "monitor" not in base["resources"]
    kinds = {one["kind"] for folder in base["resources"] for one in objects(MANIFESTS / folder)}
    assert "PodMonitor" not in kinds


@pytest.mark.needs("kubectl")
def test_monitor_and_operator_are_built_for_one_namespace() -> None:
    """Built by kubectl, the PodMonitor is in the namespace of the pods that it selects."""
    found = []
    for folder in ("monitor", "operator"):
        done = subprocess.run(
            ["kubectl", "kustomize", str(MANIFESTS / folder)], capture_output=True, check=True
        )
        found += list(yaml.safe_load_all(done.stdout))
    places = {
        one["kind"]: one["metadata"]["namespace"]
        for one in found
        if one["kind"] in ("PodMonitor", "Deployment")
    }
    assert places["PodMonitor"] == places["Deployment"]
