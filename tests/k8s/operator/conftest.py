"""One namespace with the sample for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kubernetes import client

from tests.support.cluster.cluster_worlds import Bench
from tests.support.cluster.route_revisions import whole_routes


@pytest.fixture
def bench(api: client.ApiClient, namespace: str) -> Iterator[Bench]:
    """A namespace of the test's own, still empty, in which no revision of a route leaves a slice empty."""
    with whole_routes(api, namespace):
        yield Bench(api=api, namespace=namespace)
