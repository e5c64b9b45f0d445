"""Whether the suite runs against a full cluster (``SELVAGE_CLUSTER=1``) instead of its own server."""

from __future__ import annotations

import os
import time

from kubernetes import client, config

from tests.support.cluster.made_cluster import definitions_installed


def reached() -> client.Configuration:
    """Connection to the cluster of KUBECONFIG."""
    found = client.Configuration()
    config.load_kube_config(client_configuration=found)
    return found


def prepared(api: client.ApiClient) -> None:
    """Create the definitions that the cluster lacks; existing ones stay unchanged."""
    definitions_installed(api, keep=True)


def settled(core: client.CoreV1Api, namespace: str) -> None:
    """Wait until a full cluster accepts pods in a new namespace: until it has its default account."""
    for _ in range(300):
        if any(
            one.metadata.name == "default" for one in core.list_namespaced_service_account(namespace).items
        ):
            return
        time.sleep(0.1)
    raise AssertionError(f"namespace {namespace} has no default ServiceAccount after 30 s")


def unstarted() -> dict[str, list[dict[str, str]]]:
    """Fields of a pod's spec that prevent its start: tests set the status of pods themselves."""
    gate = {"schedulingGates": [{"name": "selvage.dev/tests"}]}
    return gate if os.environ.get("SELVAGE_CLUSTER") else {}
