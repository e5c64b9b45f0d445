"""A namespace with pods that accept faults, for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kubernetes import client

from tests.support.cluster.cluster_worlds import Bench
from tests.support.cluster.drilled_pods import DrillWorld, drill_world


@pytest.fixture
def world(api: client.ApiClient, namespace: str, tmp_path: Path) -> Iterator[DrillWorld]:
    """A namespace for this test with running servers."""
    with drill_world(Bench(api=api, namespace=namespace), tmp_path) as found:
        yield found
