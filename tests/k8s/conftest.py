"""One API server for all tests of the cluster world, with our definitions and those that routes need."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml

pytest.importorskip("kubernetes", reason="install the extra k8s: make setup-test")

from kubernetes import client

from k8s.resources.definition import definitions
from tests.support.kube_api import api_server, install_definitions
from tests.support.kube_assets import assets, gateway_crds, pool_crd


@pytest.fixture(scope="session")
def api() -> Iterator[client.ApiClient]:
    """A client of a fresh API server."""
    programs, gateway, pool = assets(), gateway_crds(), pool_crd()
    assert programs is not None
    assert gateway is not None
    assert pool is not None
    with api_server(programs) as configuration, client.ApiClient(configuration) as found:
        others = [
            yaml.safe_load(one.read_text(encoding="utf-8")) for one in (gateway / "httproutes.yaml", pool)
        ]
        install_definitions(found, [*definitions(), *others])
        yield found


@pytest.fixture
def namespace(api: client.ApiClient, request: pytest.FixtureRequest) -> str:
    """A namespace of the test's own."""
    core = client.CoreV1Api(api)
    made = core.create_namespace({"metadata": {"generateName": "test-"}})
    return str(made.metadata.name)
