"""The Kubernetes client: a missing cluster, refusals by the server, and ConfigMaps whose owner is fixed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from kubernetes import client
from typer.testing import CliRunner

from k8s.api.cluster import ApiCluster
from k8s.api.connection import answers
from k8s.operator.actuator import ClusterActuator, RouteTarget
from k8s.operator.objects import Cluster, ClusterError
from k8s.routes.writer import WrittenRoute
from scripts.cli.main import app
from tests.k8s.routes.test_rules import shape_of
from tests.support.servers.live_fleets import LAYOUT

pytestmark = pytest.mark.waits


@pytest.mark.parametrize("text", [None, "{}", "current-context: [", "- 1"])
def test_a_missing_or_bad_kubeconfig_is_bad_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None
) -> None:
    """A kubeconfig that is missing, empty, not YAML or not a mapping gives exit code 2 and no traceback."""
    file = tmp_path / "kubeconfig"
    if text is not None:
        file.write_text(text)
    monkeypatch.setenv("KUBECONFIG", str(file))
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(file))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    done = CliRunner().invoke(app, ["status", "--kubernetes"])
    assert done.exit_code == 2, done.output
    assert "KUBECONFIG" in done.output


STATUS = json.dumps({"kind": "Status", "message": 'pods "a" is forbidden:\n policy says no'})


@pytest.mark.parametrize(
    ("status", "body", "refused", "said"),
    [
        (403, STATUS, True, 'pods "a" is forbidden: policy says no'),
        (422, STATUS.encode(), True, "policy says no"),
        (429, "Too many requests", False, "429"),
        (409, None, False, "409"),
        (500, "[]", False, "500"),
        (422, json.dumps({"message": "x" * 10_000}), True, "x" * 300),
    ],
)
def test_the_servers_message_is_in_the_error(status: int, body: Any, refused: bool, said: str) -> None:
    """A ClusterError holds the server's reason on one line; throttling and conflicts are not refusals."""
    error = client.ApiException(status=status, reason="Reason")
    error.body = body
    with pytest.raises(ClusterError) as caught, answers("Pod a"):
        raise error
    told = str(caught.value)
    assert caught.value.refused == refused
    assert told.startswith(f"Pod a: the API server said {status} Reason")
    assert said in told
    assert len(told.splitlines()) == 1
    assert len(told) < 400


def test_a_refused_route_is_reported_with_its_reason() -> None:
    """A route write that admission refuses is reported as ServerRefused with the server's message."""
    routes = Refused()
    target = RouteTarget(
        route=WrittenRoute(name="chat", owner="team/chat"), shape=shape_of(2, 2), layout=LAYOUT
    )
    actuator = ClusterActuator(cast(Cluster, routes), target, tuple)
    assert not actuator.write(np.array([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]))
    assert actuator.last_reason == "ServerRefused"
    assert "policy says no" in actuator.last_error


class Refused:
    """A cluster that refuses to read a route."""

    @property
    def routes(self) -> Refused:
        """Itself."""
        return self

    def read(self, name: str) -> None:
        """Raise the client's 403 error."""
        error = client.ApiException(status=403, reason="Forbidden")
        error.body = STATUS
        with answers(f"HTTPRoute {name}"):
            raise error


@pytest.mark.needs("kube_api")
def test_a_state_is_kept_although_its_owner_may_not_be_changed(
    api: client.ApiClient, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the server forbids changing owner references, the ConfigMap is written with its old owner."""
    cluster = ApiCluster(api, namespace)
    before = owned("first", "old")
    cluster.write_config(before)
    replace_config = cluster._core.replace_namespaced_config_map

    def enforced(name: str, place: str, body: dict[str, Any], **options: Any) -> Any:
        if body["metadata"]["ownerReferences"] != before["metadata"]["ownerReferences"]:
            raise client.ApiException(status=403, reason="Forbidden")
        return replace_config(name, place, body, **options)

    monkeypatch.setattr(cluster._core, "replace_namespaced_config_map", enforced)
    cluster.write_config(owned("second", "new"))
    found = cluster.read_config("kept")
    assert found is not None
    assert found["data"] == {"state": "new"}
    assert [one["uid"] for one in found["metadata"]["ownerReferences"]] == ["first"]


def owned(uid: str, state: str) -> dict[str, Any]:
    """A ConfigMap of a policy."""
    owner = {"apiVersion": "selvage.dev/v1alpha1", "kind": "RoutePolicy", "name": "chat", "uid": uid}
    return {"metadata": {"name": "kept", "ownerReferences": [owner]}, "data": {"state": state}}
