"""Whether the suite runs against a full cluster (``SELVAGE_CLUSTER=1``) in place of a server of its own."""

from __future__ import annotations

import os
import time

from kubernetes import client, config

from tests.support.cluster.made_cluster import definitions_installed


def reached() -> client.Configuration:
    """How to reach the cluster that KUBECONFIG names."""
    found = client.Configuration()
    config.load_kube_config(client_configuration=found)
    return found


def prepared(api: client.ApiClient) -> None:
    """Create the definitions that the cluster lacks; those that it has are left as they are."""
    definitions_installed(api, keep=True)


def settled(core: client.CoreV1Api, namespace: str) -> None:
    """Wait until a full cluster lets pods into a new namespace: until it has its default account."""
    for _ in range(300):
        if any(
            one.metadata.name == "default" for one in core.list_namespaced_service_account(namespace).items
        ):
            return
        time.sleep(0.1)
    raise AssertionError(f"namespace {namespace} has no default ServiceAccount after 30 s")


def unstarted() -> dict[str, list[dict[str, str]]]:
    """What of a pod's spec keeps a cluster from starting it: tests say themselves what pods are doing."""
    gate = {"schedulingGates": [{"name": "selvage.dev/tests"}]}
    return gate if os.environ.get("SELVAGE_CLUSTER") else {}
