"""Real servers that all tests of this package share, and a namespace with a full data path for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kubernetes import client

from tests.support.cluster.cluster_worlds import Bench
from tests.support.cluster.data_paths import DataPath, Engines, data_path, real_engines


@pytest.fixture(scope="package")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engines]:
    """Servers of every kernel, which are starting."""
    with real_engines(tmp_path_factory.mktemp("engines")) as found:
        yield found


@pytest.fixture
def path(servers: Engines, api: client.ApiClient, namespace: str, tmp_path: Path) -> Iterator[DataPath]:
    """A namespace for this test with these servers behind its pods."""
    with data_path(Bench(api=api, namespace=namespace), tmp_path, servers) as found:
        yield found
