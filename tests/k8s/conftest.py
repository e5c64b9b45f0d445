"""One API server for all Kubernetes tests, with our definitions and those that routes need."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("kubernetes", reason="install the extra k8s: make setup-test")

from kubernetes import client

from tests.support.cluster.cluster_worlds import Bench
from tests.support.cluster.full_cluster import prepared, reached, settled
from tests.support.cluster.granted import NOTES, noted
from tests.support.cluster.kube_api import api_server
from tests.support.cluster.kube_assets import assets, full_cluster
from tests.support.cluster.made_cluster import definitions_installed
from tests.support.cluster.route_revisions import whole_routes


@pytest.fixture(scope="session")
def api() -> Iterator[client.ApiClient]:
    """A client of a fresh API server, or of the full cluster named in the environment."""
    if full_cluster():
        with client.ApiClient(reached()) as found:
            prepared(found)
            yield found
        return
    programs = assets()
    assert programs is not None
    with api_server(programs) as configuration, client.ApiClient(configuration) as found:
        definitions_installed(found)
        yield found


@pytest.fixture
def bench(api: client.ApiClient, namespace: str) -> Iterator[Bench]:
    """An empty namespace for this test, in which no revision of a route may leave a slice empty."""
    with whole_routes(api, namespace):
        yield Bench(api=api, namespace=namespace)


@pytest.fixture(autouse=True)
def calls(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """File of the calls that our accounts make in this test; fails if a call exceeds their Roles."""
    path = tmp_path_factory.mktemp("calls") / "calls"
    monkeypatch.setenv(NOTES, str(path))
    yield path
    beyond = {(account, call) for account, call, allowed in noted(path) if not allowed}
    assert not beyond, f"calls that the shipped Role does not grant: {sorted(beyond)}"


@pytest.fixture
def namespace(api: client.ApiClient) -> Iterator[str]:
    """A namespace for this test; it is deleted afterwards on a full cluster."""
    core = client.CoreV1Api(api)
    made = core.create_namespace({"metadata": {"generateName": "test-"}})
    if full_cluster():
        settled(core, made.metadata.name)
    yield str(made.metadata.name)
    if full_cluster():
        core.delete_namespace(made.metadata.name)
