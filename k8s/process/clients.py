"""How this process reaches its cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kubernetes import client, config


@contextmanager
def cluster_client() -> Iterator[client.ApiClient]:
    """In a pod by its account, else by KUBECONFIG."""
    found = client.Configuration()
    try:
        config.load_incluster_config(client_configuration=found)
    except config.ConfigException:
        config.load_kube_config(client_configuration=found)
    found.retries = False
    with client.ApiClient(found) as api:
        yield api
