"""A namespace with the sample for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kubernetes import client

from tests.support.cluster.cluster_worlds import Bench
from tests.support.cluster.route_revisions import whole_routes


@pytest.fixture
def bench(api: client.ApiClient, namespace: str) -> Iterator[Bench]:
    """An empty namespace for this test, in which no revision of a route may leave a slice empty."""
    with whole_routes(api, namespace):
        yield Bench(api=api, namespace=namespace)
