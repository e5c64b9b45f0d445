"""A namespace with the sample for each test."""

from __future__ import annotations

import pytest
from kubernetes import client

from tests.support.cluster.cluster_worlds import Bench


@pytest.fixture
def bench(api: client.ApiClient, namespace: str) -> Bench:
    """An empty namespace for this test."""
    return Bench(api=api, namespace=namespace)
