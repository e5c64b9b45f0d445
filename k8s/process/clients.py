"""How this process reaches its cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import yaml
from kubernetes import client, config

from contracts.loading.untrusted import MALFORMED
from k8s.operator.objects import ClusterError


@contextmanager
def cluster_client() -> Iterator[client.ApiClient]:
    """In a pod by its account, else by KUBECONFIG. ClusterError where neither names a cluster."""
    found = client.Configuration()
    try:
        config.load_incluster_config(client_configuration=found)
    except config.ConfigException:
        try:
            config.load_kube_config(client_configuration=found)
        except (config.ConfigException, yaml.YAMLError, *MALFORMED) as error:
            step = "let KUBECONFIG name a file whose current context is the cluster, or run it in a pod"
            raise ClusterError(f"no cluster is named: {error}; {step}") from None
    found.retries = False
    with client.ApiClient(found) as api:
        yield api
