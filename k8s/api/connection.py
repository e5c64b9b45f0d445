"""How a process connects to a cluster, and how the server's refusals are reported."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import yaml
from kubernetes import client, config
from urllib3.exceptions import HTTPError

from contracts.loading.untrusted import MALFORMED, json_of
from k8s.operator.objects import ClusterError

#: Statuses for which a retry is pointless; 429 and 409 are not among them.
_REFUSALS = (400, 403, 404, 405, 413, 422)
#: Most characters quoted from the server's message.
_MOST_TOLD = 300


def _why(error: client.ApiException) -> str:
    """The message in a server's error body, for example of an admission policy; "" if there is none."""
    try:
        found = json_of(error.body or "{}")
        said = " ".join(str(found["message"]).split())
    except (KeyError, *MALFORMED):
        return ""
    return f": {said[:_MOST_TOLD]}"


@contextmanager
def answers(what: str) -> Iterator[None]:
    """Raise ``ClusterError`` that names ``what`` if the server refuses or does not answer.

    The message quotes the server and adds nothing of the request. Throttling (429) and conflicts (409) are
    not refusals: a retry may succeed.
    """
    try:
        yield
    except client.ApiException as error:
        message = f"{what}: the API server said {error.status} {error.reason}{_why(error)}"
        raise ClusterError(message, refused=error.status in _REFUSALS) from error
    except (HTTPError, OSError) as error:
        raise ClusterError(f"{what}: the API server does not answer ({type(error).__name__})") from error


@contextmanager
def cluster_client() -> Iterator[client.ApiClient]:
    """A client with the pod's service account, else by KUBECONFIG. ClusterError if neither is there."""
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
